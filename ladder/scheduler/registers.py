"""Registers of a thread, estimated: what a kernel keeps alive, and what it needs at its busiest point.

Families whose warps do everything add up their stages. In the specialised family the warps that multiply are few and wide,
and ptxas packs them to the last register; what they keep is known (measured on int4, nf4, mxfp4, int3, int8 and fp8, 16 to
256 tokens: within 4 registers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.scheduler.walk import sums_of_tokens

if TYPE_CHECKING:
    from ladder.scheduler.plan import Plan
    from ladder.ttile import Device

#: addresses, cursors, scales and the like
BASE = 24
READER_BASE = 18

#: steps of an atom from which more of its values live at once
SHORT_ATOM = 8

#: most tokens of a CTA whose warps read all words of a block at once; others read one atom ahead
ALL_WORDS_TOKENS = 128

#: threads by which a CTA's registers are given out: a warp for each quarter of an SM, and registers of a thread in eights
QUARTERED = 128
EIGHTS = 8


def kept(plan: Plan) -> int:
    """Registers per thread."""
    if not plan.load_warps:
        return BASE + sum(stage.registers for stage in plan.stages)
    program = plan.program
    fragments = 4 * min(2 * plan.chunk_steps, plan.block_steps)
    words = program.words * atoms_at_once(plan)
    shifted = 2 * max(0, program.steps - SHORT_ATOM)
    return READER_BASE + sums_of_tokens(plan) // 2 + fragments + words + shifted


def most(plan: Plan) -> int:
    """Registers per thread at the busiest point; with fewer the kernel would spill."""
    if plan.load_warps:
        return kept(plan)
    return kept(plan) + sum(stage.temporaries for stage in plan.stages)


def atoms_at_once(plan: Plan) -> int:
    """Atoms of a block whose words a warp of the specialised family holds at once."""
    if sums_of_tokens(plan) <= ALL_WORDS_TOKENS:
        return plan.atoms_per_block
    return min(2, plan.atoms_per_block)


def given(device: Device, threads: int) -> int:
    """The most registers that a thread of a CTA of so many threads can have (CUDA C++ guide, "Compute Capabilities")."""
    whole = -(-threads // QUARTERED) * QUARTERED
    return min(device.registers_per_thread, device.registers_per_sm // whole // EIGHTS * EIGHTS)
