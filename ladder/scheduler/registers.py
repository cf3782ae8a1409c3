"""Registers of a thread, estimated: what a kernel keeps alive, and what it needs at its busiest point.

Families whose warps do everything add up their stages. In the specialised family the warps that multiply are few and wide,
and ptxas packs them to the last register; what they keep is known (measured on int4, nf4, mxfp4, int3, int8 and fp8, 16 to
256 tokens: within 4 registers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ladder.scheduler.scale_lanes import own_numbers
from ladder.scheduler.walk import steps_held, sums_of_tokens

if TYPE_CHECKING:
    from ladder.scheduler.plan import Plan
    from ladder.ttile import Device

#: addresses, cursors, scales and the like
BASE = 24
READER_BASE = 18

#: part of what their stages keep, and of what they need beside, that lives at once, by family: (skinny: measured at M = 1 and 16
#: on sixteen types, within 20 %; with 7 row tiles of 16 tokens ptxas makes values again rather than spill)
AT_ONCE = {"skinny": 0.7}
UNDER_WAY = {"skinny": 0.15}

#: what a warp of that family keeps where a block has several groups, for each but the first, up to three: factors of flushes to
#: come, and offsets of sums where zero points are taken off by them (measured on groups of 64, 32 and 16: within 20 registers)
FLUSH_REGISTERS = 8
OFFSET_REGISTERS = 2
MOST_FLUSHES = 3

#: what a warp of that family keeps for each copy of 16 bytes of activations that a lane starts in a block: an address and a
#: bound (measured at M = 1 to 16: within 6 registers)
COPY_REGISTERS = 3.5
COPY_BYTES = 16
LANES = 32

#: what a warp of that family with one tile of one token tile keeps beside where its loop has so many turns: the compiler takes them
#: together (measured at M = 1 on 4 bits: within 10 registers)
TURN_REGISTERS = 40
TURNS_TOGETHER = 4

#: what a warp keeps whose activations lie in registers: masks of the columns, and the words of two blocks (measured at M = 1 on
#: ten types: 5 to 15, more where codes are looked up)
COLUMN_REGISTERS = 12

#: by how much the estimate of the specialised family may be off: with fewer to spare, types of 7 bits spill
CLOSE = 4

#: what a block of several groups takes beside, of scales and of zero points each, where bfloat16 weights are scaled in registers
#: (measured at 256 tokens and groups of 64: int3, int4, int5, int6 and int8 spill with less, float16 weights do not)
GROUP_CHANGE = 1

#: steps of an atom from which more of its values live at once
SHORT_ATOM = 8

#: most tokens of a CTA whose warps read all words of a block at once; others read one atom ahead
ALL_WORDS_TOKENS = 128

#: threads by which a CTA's registers are given out: a warp for each quarter of an SM, and registers of a thread in eights
QUARTERED = 128
EIGHTS = 8


class Estimate(NamedTuple):
    """Registers per thread of a plan.

    Attributes:
        kept: what lives all the time.
        most: what the busiest point needs; with fewer the kernel would spill.
        held: the constants of the decode program that find a register, those that are used most first; others cost an
            operation each use.
    """

    kept: int
    most: int
    held: tuple[int, ...]


def estimate(plan: Plan) -> Estimate:
    """The registers of a plan; its held constants take what the rest leaves free."""
    beside = _close(plan) if plan.load_warps else sum([stage.temporaries for stage in plan.stages])
    kept = AT_ONCE.get(plan.family, 1.0) * _kept(plan)
    kept += _copies(plan) + _flushes(plan) + _turns(plan)
    kept += COLUMN_REGISTERS * (plan.access == "column")
    most = round(kept + UNDER_WAY.get(plan.family, 1.0) * beside)
    kept = round(kept)
    held = plan.program.held_constants[: max(0, given(plan.device, plan.threads) - most)]
    constants = max(len(held), _own_constants(plan))
    return Estimate(kept + len(held), most + constants, held)


def _close(plan: Plan) -> int:
    """By how much the estimate of a plan of the specialised family may be off, before constants are held."""
    if not _rounds_to_bfloat16(plan) or plan.packing.geometry.groups_per_block == 1:
        return CLOSE
    return CLOSE + (1 + (plan.zero == "register")) * GROUP_CHANGE


def _own_constants(plan: Plan) -> int:
    """Registers for the constants that taking zero points off has; where constants are held it finds room among them."""
    has_one = _rounds_to_bfloat16(plan) and plan.zero == "register"
    return int(has_one and _close(plan) == CLOSE)


def _rounds_to_bfloat16(plan: Plan) -> bool:
    return plan.scale == "register" and plan.program.compute == "bfloat16"


def _copies(plan: Plan) -> float:
    """Registers for copies of activations, where each warp has a ring of its own."""
    if plan.family != "skinny" or plan.access != "vector":
        return 0.0
    nbytes = plan.value_bytes(plan.rows_loaded * plan.packing.geometry.block_k)
    return COPY_REGISTERS * nbytes / COPY_BYTES / LANES


def _flushes(plan: Plan) -> int:
    """Registers for the flushes of a block, where each warp has a ring of its own and multiplies several tokens at once."""
    if plan.family != "skinny" or plan.access == "column":
        return 0
    of_one = FLUSH_REGISTERS + OFFSET_REGISTERS * (len(plan.sum_sets) > 0)
    return of_one * min(max(0, plan.flushes_per_block - 1), MOST_FLUSHES)


def _turns(plan: Plan) -> int:
    """Registers for turns of the loop that the compiler takes together, where each warp has a ring of its own."""
    tiling, blocks = plan.tiling, plan.packing.geometry.blocks
    if plan.family != "skinny" or tiling.row_tiles * tiling.token_tiles > 1:
        return 0
    return TURN_REGISTERS if blocks // tiling.warps_k >= TURNS_TOGETHER else 0


def _kept(plan: Plan) -> int:
    if not plan.load_warps:
        return BASE + sum([stage.registers for stage in plan.stages])
    program = plan.program
    if not program.ops:  # words are fragments: those of two chunks
        live = program.words * min(2 * -(-plan.chunk_steps // program.steps), plan.atoms_per_block)
        return READER_BASE + sums_of_tokens(plan) // 2 + live
    fragments = 4 * steps_held(plan)
    words = program.words * atoms_at_once(plan)
    shifted = 2 * max(0, program.steps - SHORT_ATOM)
    # S and Z beyond those of one class; ptxas makes products of others again where it lacks registers
    factors = max(0, own_numbers(plan) - 2) if plan.scale == "register" else 0
    return READER_BASE + sums_of_tokens(plan) // 2 + fragments + words + shifted + factors


def atoms_at_once(plan: Plan) -> int:
    """Atoms of a block whose words a warp of the specialised family holds at once.

    Words that are fragments are read when their turn comes: before that products may still read the registers.
    """
    if plan.program.multiplies_words:
        return 1
    if sums_of_tokens(plan) <= ALL_WORDS_TOKENS:
        return plan.atoms_per_block
    return min(2, plan.atoms_per_block)


def given(device: Device, threads: int) -> int:
    """The most registers that a thread of a CTA of so many threads can have (CUDA C++ guide, "Compute Capabilities")."""
    whole = -(-threads // QUARTERED) * QUARTERED
    return min(device.registers_per_thread, device.registers_per_sm // whole // EIGHTS * EIGHTS)
