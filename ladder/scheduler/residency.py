"""What kernels leave to those that run beside them under programmatic launch: room on the SMs, and the memory's time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.scheduler.walk import blocks_ahead, holds_slice

if TYPE_CHECKING:
    from ladder.scheduler.plan import Plan

#: registers that every kernel takes: with these, registers limit no CTA that shared memory lets in
LEAST_REGISTERS = 32

#: part of the SMs that a launch has to fill for the next one to find room beside it: the others repeat a tile
FILLED = 0.8

#: most blocks that a ring asks for one by one where the next kernel finds no room: each takes a round trip to memory
MOST_PACED = 4


def launches_together(plan: Plan) -> int:
    """Launches that an SM has room for at once: two where the next one can load all of its weights beside this one.

    Programmatic launch; a CTA an SM. The next kernel is then left with its activations, its products and its sums (on an H200,
    int4, M = 1, 4096 channels and columns: 2.9 us instead of 3.4).
    """
    if not may_leave_room(plan) or not holds_slice(plan) or early_blocks(plan) < blocks_ahead(plan):
        return 1
    resident = plan.device.blocks_resident(
        threads=plan.threads, registers=plan.registers, shared_bytes=plan.shared_bytes
    )
    # none is resident of a plan that asks for too much: the checker says so
    return max(1, min(2, resident))


def may_leave_room(plan: Plan) -> bool:
    """Whether some number of slots may let two launches share an SM: about a CTA an SM under programmatic launch."""
    sms = plan.device.sms
    return _is_overlapped(plan) and FILLED * sms <= plan.channel_tiles <= sms


def grid_tiles(plan: Plan) -> int:
    """CTAs of a launch along the output channels.

    Where two launches are together every SM has one of each: one without would take two of the next, and so on. CTAs
    beyond the last tile do as others do, and store nothing.
    """
    return plan.device.sms if launches_together(plan) > 1 else plan.channel_tiles


def launch_bytes(plan: Plan) -> int:
    """Dynamic shared memory that a launch asks for, in bytes.

    With programmatic launch the CTAs of the next kernel start while this one's still run. An SM must then have room for its
    share alone, or for as much again: with room for more, SMs get unlike numbers of CTAs (on an H200, M = 1, twice the share
    instead of one: 46 us and 33, 12.9 and 9.7). More shared memory than is used keeps the others out.
    """
    if not _is_overlapped(plan):
        return plan.shared_bytes
    device = plan.device
    wanted = launches_together(plan) * _share(plan)
    resident = device.blocks_resident(
        threads=plan.threads, registers=LEAST_REGISTERS, shared_bytes=plan.shared_bytes
    )
    if resident <= wanted:
        return plan.shared_bytes
    room = device.shared_bytes_per_sm // wanted - device.shared_bytes_reserved
    return max(plan.shared_bytes, min(room // 128 * 128, device.shared_bytes_per_block))


def early_blocks(plan: Plan) -> int:
    """Blocks of a ring whose weights are asked for before the wait for the kernel before this one.

    Activations of as many bytes would be late behind them (on an H200, int4, 4096 channels and columns: M = 8 4.0 us with three
    blocks, 3.7 with one; M = 16 5.1 and 4.8).
    """
    ring = plan.load_ring
    return 1 if ring.activation_bytes >= ring.weight_bytes else blocks_ahead(plan)


def is_paced(plan: Plan) -> bool:
    """Whether a ring asks for a block when the one before it is there, up to the wait for the kernel before this one.

    More requests on their way than keep the memory busy stand in queues, and behind them the activations that the kernel
    before this one reads: what it takes for them delays both (on an H200, int4, M = 1: 3.9 us and 2.9 with 4096 channels and
    columns, 8.65 and 8.45 with 8192). Where the loop goes on to ask for weights, a block of all rings has to keep the memory
    busy by itself (Little's law).
    """
    if not _is_overlapped(plan):
        return False
    if launches_together(plan) > 1:
        return True
    device = plan.device
    busy = device.dram_bytes_per_second * device.cost.dram_latency_us * 1e-6 / device.sms
    block = _share(plan) * plan.load_ring.rings * plan.load_ring.weight_bytes
    return early_blocks(plan) <= MOST_PACED and (holds_slice(plan) or block >= busy)


def _share(plan: Plan) -> int:
    """CTAs of a launch on the busiest SM."""
    return -(-plan.channel_tiles // plan.device.sms)


def _is_overlapped(plan: Plan) -> bool:
    """Whether CTAs of the next kernel may start beside those of this one, as soon as an SM has room for them."""
    return plan.launch == "pdl" and plan.family == "skinny"
