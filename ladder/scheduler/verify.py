"""Every rule that a plan must obey before anything is lowered, as a table of rules.

A rule looks at a plan and names what is broken and what to do, or nothing. :func:`check` lists all broken rules,
:func:`verify` raises them as one :class:`~ladder.errors.PlanError`. A stage from outside the package brings no rule: what it
needs of shared memory and registers is added up with the others'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from ladder.errors import PlanError
from ladder.scheduler.choose import row_order
from ladder.scheduler.decisions import OFFERED, misfits
from ladder.scheduler.epilogue import OPERATORS_OWN, default_epilogue
from ladder.scheduler.plan import Plan
from ladder.scheduler.problem import Problem, Rule
from ladder.scheduler.registers import given
from ladder.scheduler.tiling import TILE_TOKENS, Tiling
from ladder.scheduler.verify_specialised import (
    multicast_is_even,
    persistent_is_kept,
    scales_are_applied_once,
    specialised_is_kept,
    split_is_even,
)
from ladder.scheduler.zero import register_shifts
from ladder.ttile.device import GRID_LIMITS

#: most tokens of a wgmma, and bytes of k of the tiles that its activations lie in (PTX ISA, wgmma, 128-byte swizzle)
WARPGROUP_TOKENS = 256
WARPGROUP_TILE_BYTES = 128

#: most tokens of a CTA in the skinny family: two n8 operands of one mma
SKINNY_TOKENS = 16

#: named barriers of a CTA that are free for K slices: 16, less barrier 0 of the whole CTA (PTX ISA, bar)
SLICE_BARRIERS = 15

#: slots of a ring with lookahead: one is read, one is looked into, one is filled
LOOKAHEAD_DEPTH = 3


#: counts that a tiling holds
TILING_PARTS = tuple(part.name for part in fields(Tiling))

#: what every plan needs of a device besides its product instruction
FEATURES = ("cp.async", "ldmatrix")

#: what to do where the device lacks the product instruction
INSTEAD = {
    "mma": "choose another activation type",
    "wgmma": 'compute="mma", or other token_tiles where the device has wgmma',
}


def decisions_have_their_kinds(plan: Plan) -> Iterator[Problem]:
    """Every decision is of the kind that :data:`~ladder.scheduler.decisions.DECISIONS` says."""
    for what, hint in misfits(plan):
        yield Problem(what, hint)


def tiling_is_positive(plan: Plan) -> Iterator[Problem]:
    """Warps and tiles are counted from 1."""
    parts = [getattr(plan.tiling, name) for name in TILING_PARTS]
    if not all(type(part) is int and part >= 1 for part in parts):
        yield Problem(f"a tiling holds integers >= 1, not {parts}", "at least one warp and tile")


def decisions_are_known(plan: Plan) -> Iterator[Problem]:
    """Family, placement, zeros, access, product and launch are among those offered."""
    for name, offered in OFFERED.items():
        value = getattr(plan, name)
        if value not in offered:
            yield Problem(f"{name} = {value!r} is not offered", f"one of {', '.join(offered)}")
    if type(plan.depth) is not int or plan.depth < 2:
        yield Problem(f"a ring of {plan.depth} slots cannot load ahead", "depth >= 2")
    if type(plan.split) is not int or plan.split < 1:
        yield Problem(f"K is shared by at least one CTA, not {plan.split}", "split >= 1")
    if type(plan.multicast) is not int or plan.multicast < 1:
        yield Problem(f"tokens are loaded for one CTA, not {plan.multicast}", "multicast >= 1")


def packing_is_the_operators(plan: Plan) -> Iterator[Problem]:
    """The packing holds the operator's weight, decoded to the type of its activations."""
    op, packing = plan.op, plan.packing
    if (packing.weight, packing.n, packing.k) != (op.weight, op.n, op.k):
        yield Problem(
            f"the packing holds {packing.weight}[{packing.n}, {packing.k}],"
            f" the operator reads {op.weight}[{op.n}, {op.k}]",
            "choose a packing of the operator",
        )
    if packing.order != (wanted := row_order(op)):
        yield Problem(
            f"the packing holds rows in {packing.order} order, the epilogue asks for the {wanted} one",
            "choose a packing of the operator with its epilogue",
        )
    if packing.program.compute != (kind := op.weight_compute.name):
        yield Problem(
            f"weights decode to {packing.program.compute}, activations are {op.activation.name}, beside which they are {kind}",
            "choose a packing for the activation's type",
        )


def device_has_what_is_used(plan: Plan) -> Iterator[Problem]:
    """The device has the product instruction and the features that the stages use."""
    device, name = plan.device, plan.instruction
    if not any(instruction.name == name for instruction in device.instruction_set):
        yield Problem(f"{device.name} has no instruction {name}", INSTEAD[plan.compute])
    wanted = [*FEATURES, *(["pdl"] if plan.launch == "pdl" else [])]
    wanted += ["tma"] if plan.access == "tensor" else []
    wanted += ["cluster"] if plan.cluster > 1 else []
    wanted += sorted({f"cvt.{op.fmt}x2" for op in plan.program.ops if op.kind == "cvt"})
    for feature in () if device.has(*wanted) else wanted:
        if not device.has(feature):
            yield Problem(f"{device.name} lacks {feature}", "choose another device or decision")


def threads_fit(plan: Plan) -> Iterator[Problem]:
    """A CTA is not larger than the device's blocks."""
    threads, most = plan.threads, plan.device.threads_per_block
    if threads > most:
        yield Problem(f"{threads} threads > {most} of a block", "fewer warps along n, m or k")


def family_is_kept(plan: Plan) -> Iterator[Problem]:
    """Skinny: one warp a ring and at most 16 tokens. Ring: a named barrier for each K slice of several warps."""
    tiling = plan.tiling
    if plan.family == "skinny" and tiling.ring_warps != 1:
        yield Problem(
            f"skinny rings belong to one warp, not {tiling.warps_n} x {tiling.warps_m}",
            "warps_n = warps_m = 1, or the ring family",
        )
    if plan.family == "skinny" and tiling.tokens > SKINNY_TOKENS:
        yield Problem(
            f"skinny takes at most {SKINNY_TOKENS} tokens, not {tiling.tokens}", "the ring family"
        )
    if tiling.ring_warps > 1 and tiling.warps_k > SLICE_BARRIERS:
        yield Problem(
            f"{tiling.warps_k} K slices of several warps need more than {SLICE_BARRIERS} barriers",
            f"warps_k <= {SLICE_BARRIERS}",
        )


def vector_access_is_aligned(plan: Plan) -> Iterator[Problem]:
    """Vector access copies 16 bytes of activations, a tensor map has strides of them: rows and groups start on a piece."""
    if plan.access == "scalar":
        return
    if plan.op.k % plan.piece:
        yield Problem(
            f"{plan.access} access needs K to be a multiple of {plan.piece}, not {plan.op.k}",
            'access="scalar"',
        )
    cut = plan.packing.geometry
    if not cut.is_contiguous:
        yield Problem(
            f"{plan.access} access needs groups without padding, {cut.group} is padded to {cut.padded_group}",
            'access="scalar"',
        )


def columns_are_steps(plan: Plan) -> Iterator[Problem]:
    """Columns that are the steps of a block: of one token, multiplied by a warp's mma that has a ring of its own."""
    if plan.access != "column":
        return
    cut, most = plan.packing.geometry, plan.m_range[1]
    kept = plan.family == "skinny" and plan.compute == "mma" and plan.convert == "register"
    if not kept or plan.lookahead or most is None or most > 1 or plan.tiling.token_tiles != 1:
        yield Problem(
            "columns are the steps of one token, in the skinny family, decoded in registers without lookahead",
            'access="vector", or an M of 1',
        )
    if plan.block_steps > TILE_TOKENS and cut.groups_per_block > 1:
        yield Problem(
            f"a block of {plan.block_steps} steps and {cut.groups_per_block} groups does not fit {TILE_TOKENS} columns",
            'access="vector"',
        )


def zeros_are_exact(plan: Plan) -> Iterator[Problem]:
    """Zero points come off in registers only where every difference is a number of the compute type."""
    if plan.zero == "register" and register_shifts(plan.reading) is None:
        yield Problem(
            f"zeros of {plan.op.weight} cannot be taken off exactly in {plan.packing.program.compute}",
            'zero="sums"',
        )


def lookups_are_known(plan: Plan) -> Iterator[Problem]:
    """Codes are looked up in registers where a program does, which otherwise would be looked up in shared memory."""
    if plan.lookup == "register" and plan.packing.in_registers is None:
        yield Problem(
            f"no program looks {plan.op.element.name} up in registers instead of shared memory",
            'lookup="shared"',
        )


def lookahead_has_room(plan: Plan) -> Iterator[Problem]:
    """Lookahead reads the next block's slot early, before it would be overwritten, and makes its fragments in registers."""
    if not plan.lookahead:
        return
    if plan.depth < LOOKAHEAD_DEPTH:
        yield Problem(
            f"lookahead keeps a slot more of the ring busy, {plan.depth} are too few",
            f"depth >= {LOOKAHEAD_DEPTH}",
        )
    if plan.tiling.warps_k > plan.packing.geometry.blocks:
        yield Problem(
            f"lookahead reads a first block in each of {plan.tiling.warps_k} K slices, there are"
            f" {plan.packing.geometry.blocks}",
            "fewer K slices",
        )
    if plan.convert != "register":
        yield Problem(
            f"lookahead makes fragments in registers, convert is in {plan.convert}",
            'convert="register"',
        )


def warpgroups_are_whole(plan: Plan) -> Iterator[Problem]:
    """wgmma: four warps of 16 channels each multiply all tokens of the CTA, which lie in tiles of 64 k."""
    if plan.compute != "wgmma":
        return
    tiling, program = plan.tiling, plan.program
    if tiling.warps_n % 4 or tiling.warps_m != 1 or tiling.row_tiles != 1:
        yield Problem(
            "a warpgroup is four warps along n with one row tile each, not"
            f" n{tiling.warps_n} m{tiling.warps_m} with {tiling.row_tiles}",
            "warps_n a multiple of 4, warps_m = row_tiles = 1",
        )
    if tiling.tokens > WARPGROUP_TOKENS:
        yield Problem(f"wgmma takes at most {WARPGROUP_TOKENS} tokens, not {tiling.tokens}")
    tile_k = 8 * WARPGROUP_TILE_BYTES // plan.value_bits
    if plan.packing.geometry.block_k % tile_k:
        yield Problem(
            f"activations of wgmma lie in tiles of {tile_k} k, a block has"
            f" {plan.packing.geometry.block_k}"
        )
    if (program.classes > 1 and plan.scale != "register") or plan.sum_sets:
        yield Problem(
            f"wgmma keeps one set of accumulators, not {program.classes} classes and"
            f" {len(plan.sum_sets)} activation sums",
            'zero="register", or compute="mma"',
        )
    if (
        program.is_constant
    ):  # ptxas makes its registers anew between products, which it then runs one by one (C7513)
        yield Problem(
            f"all codes of {plan.op.element.name} decode to one value, which leaves nothing to decode beside products",
            'compute="mma"',
        )
    if plan.family == "ring" and not plan.lookahead:
        yield Problem("products of wgmma run ahead of the ring barrier", "lookahead=True")


def m_range_is_covered(plan: Plan) -> Iterator[Problem]:
    """The M range is one, holds the operator's M, and fits a skinny CTA."""
    least, most = plan.m_range
    if least < 0 or (most is not None and most < least):
        yield Problem(f"M from {least} to {most} is no range", "0 <= least <= most")
        return
    m = plan.op.m
    if m is not None and (m < least or (most is not None and m > most)):
        yield Problem(
            f"M = {m} of the operator is outside {least} .. {most}", f"m_range=({m}, {m})"
        )
    if plan.family == "skinny" and (most is None or most > plan.tiling.tokens):
        yield Problem(
            f"skinny covers M with one CTA of {plan.tiling.tokens} tokens, not up to {most}",
            "m_range within the tokens, or the ring family",
        )


def rows_fit_the_grid(plan: Plan) -> Iterator[Problem]:
    """The CTAs of the largest known M fit the grid; where M has no limit, a call is refused that needs more."""
    least, most = plan.m_range
    known = max(least, plan.op.m or 0) if most is None else most
    tokens, limit = plan.tiling.tokens, GRID_LIMITS[1]
    if -(-known // tokens) > limit:
        yield Problem(
            f"M = {known} takes more than {limit} CTAs of {tokens} tokens, which is all that a grid has along M",
            f"at most {limit * tokens} rows a launch: split the rows of x, or more tokens a CTA",
        )


def epilogue_is_whole(plan: Plan) -> Iterator[Problem]:
    """The epilogue holds all that the operator and its packing ask for, in that order."""
    found, wanted = plan.epilogue, default_epilogue(plan.op, plan.packing)
    hint = "start from default_epilogue(op, packing)"
    for step in dict.fromkeys((*wanted, *found)):
        count, asked = found.count(step), wanted.count(step)
        if count < asked or (count > asked and isinstance(step, OPERATORS_OWN)):
            times = "not once" if asked == 1 else f"not {asked} times"
            yield Problem(f"the epilogue holds {step.name} {count} times, {times}", hint)
            return
    rest = iter(found)
    if not all(step in rest for step in wanted):
        yield Problem("the epilogue has another order than the operator's steps", hint)


def shared_memory_fits(plan: Plan) -> Iterator[Problem]:
    """Rings, tables, scratch and the reduction fit the device's shared memory of a block."""
    need, most = plan.shared_bytes, plan.device.shared_bytes_per_block
    if need > most:
        ring = plan.load_ring
        yield Problem(
            f"shared {need} B > {most} B of a block on {plan.device.name}"
            f" (rings {ring.rings} x {ring.slots} x {ring.slot_bytes} B)",
            "fewer slots, K slices or tokens",
        )


def registers_fit(plan: Plan) -> Iterator[Problem]:
    """The estimate stays within a thread's registers, and a block's within the SM's."""
    device, need = plan.device, plan.most_registers
    most = given(device, plan.threads)
    if need > most:
        yield Problem(
            f"about {need} registers a thread > {most} of {plan.threads} threads",
            "smaller tiles a warp, or fewer warps",
        )


#: rules that the others rest on: later ones read sizes that make sense only where these hold
FIRST: tuple[Rule, ...] = (
    tiling_is_positive,
    decisions_are_known,
    packing_is_the_operators,
    epilogue_is_whole,
)

RULES: tuple[Rule, ...] = (
    device_has_what_is_used,
    threads_fit,
    family_is_kept,
    vector_access_is_aligned,
    columns_are_steps,
    zeros_are_exact,
    lookups_are_known,
    lookahead_has_room,
    specialised_is_kept,
    scales_are_applied_once,
    split_is_even,
    multicast_is_even,
    persistent_is_kept,
    warpgroups_are_whole,
    m_range_is_covered,
    rows_fit_the_grid,
    shared_memory_fits,
    registers_fit,
)


def problems(plan: Plan) -> tuple[Problem, ...]:
    """All broken rules, in the order of the tables, of a plan whose decisions have their kinds."""
    for rules in (FIRST, RULES):
        found = tuple(problem for rule in rules for problem in rule(plan))
        if found:
            return found
    return ()


def has_sizes(plan: Plan) -> bool:
    """Whether a plan keeps the first rules, without which its sizes, and an estimate of its time, mean nothing."""
    return not any(True for rule in FIRST for _ in rule(plan))


def _all_problems(plan: Plan) -> tuple[Problem, ...]:
    """The same of any plan; the search, which makes thousands from checked decisions, spares itself the kinds."""
    return tuple(decisions_have_their_kinds(plan)) or problems(plan)


def check(plan: Plan) -> tuple[str, ...]:
    """What is wrong with a plan, one sentence a broken rule; empty for a legal plan."""
    return tuple(str(problem) for problem in _all_problems(plan))


def verify(plan: Plan) -> None:
    """Raise where a plan breaks a rule.

    Raises:
        PlanError: some rule is broken; all of them are named.
    """
    found = _all_problems(plan)
    if found:
        raise PlanError(
            "; ".join(problem.what for problem in found),
            at="Plan" if any(misfits(plan)) else plan.title,
            hint="; ".join(dict.fromkeys(problem.hint for problem in found if problem.hint)),
        )
