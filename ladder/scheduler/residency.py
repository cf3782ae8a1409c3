"""How many CTAs share an SM, where that has to be kept even."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ladder.scheduler.plan import Plan

#: registers that every kernel takes: with these, registers limit no CTA that shared memory lets in
LEAST_REGISTERS = 32


def launch_bytes(plan: Plan) -> int:
    """Dynamic shared memory that a launch asks for, in bytes.

    With programmatic launch the CTAs of the next kernel start while this one's still run. An SM must then have room for its
    share alone: with room for more, SMs get unlike numbers of CTAs (on an H200, M = 1, twice the share instead of one: 46 us
    and 33, 12.9 and 9.7, 4.5 and 3.9). More shared memory than is used keeps the others out.
    """
    if plan.launch != "pdl" or plan.family != "skinny":
        return plan.shared_bytes
    device, share = plan.device, -(-plan.channel_tiles // plan.device.sms)
    resident = device.blocks_resident(
        threads=plan.threads, registers=LEAST_REGISTERS, shared_bytes=plan.shared_bytes
    )
    if resident <= share:
        return plan.shared_bytes
    room = device.shared_bytes_per_sm // share - device.shared_bytes_reserved
    return max(plan.shared_bytes, min(room // 128 * 128, device.shared_bytes_per_block))
