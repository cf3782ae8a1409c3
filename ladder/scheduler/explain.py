"""Why a plan is as it is: type, device, hint, choice, arithmetic, rejected candidates, losslessness of the decode.

The search is run again over the plan's own packing and M range, so that a plan read from a file explains itself, and a
plan that was changed by hand is compared with what the search would have picked.
"""

from __future__ import annotations

from collections import Counter

from ladder.decode.geometry import HALVES
from ladder.errors import ScheduleError
from ladder.scheduler.beside import beside_lines
from ladder.scheduler.candidates import Rejected
from ladder.scheduler.hint import device_hint
from ladder.scheduler.packing import TILE_ROWS
from ladder.scheduler.plan import Plan
from ladder.scheduler.ranking import TIE, Ranking, rank
from ladder.scheduler.residency import launches_together
from ladder.ttype import losslessness

#: runners-up that are shown
SHOWN = 5


def explain(plan: Plan) -> str:
    """The explanation, as text."""
    sections = (
        ("type", type_lines(plan)),
        ("device", device_lines(plan)),
        ("hint (Algorithm 1)", hint_lines(plan)),
        ("packing", str(plan.packing).splitlines()),
        ("decode", decode_lines(plan)),
        ("choice", choice_lines(plan)),
        ("cost", str(plan.cost()).splitlines()),
        *ranking_sections(plan),
        ("decoded first", beside_lines(plan)),
    )
    lines = [str(plan.op), f"on {plan.device.name} for M {plan.m_text}"]
    for title, body in sections:
        lines += ["", title, *(f"  {line}" for line in body)]
    return "\n".join(lines)


def type_lines(plan: Plan) -> list[str]:
    """The weight's format and what it costs in memory."""
    weight, op = plan.op.weight, plan.op
    element = weight.element
    return [
        str(weight),
        (
            f"{element.bits} bits, values {element.min:g} .. {element.max:g};"
            f" {weight.bits_per_weight(op.n, op.k):.4g} bits a weight with metadata"
        ),
        f"{plan.packing.nbytes} B packed",
    ]


def device_lines(plan: Plan) -> list[str]:
    """The device's limits that decide."""
    device = plan.device
    levels = ", ".join(
        f"{level.name} {level.bytes_per_second / 1e12:.3g} TB/s" for level in device.levels
    )
    return [
        f"{device.title} ({device.arch}), {device.sms} SMs, {device.shared_bytes_per_block} B shared a block",
        levels,
    ]


def hint_lines(plan: Plan) -> list[str]:
    """Algorithm 1 for the two operand types."""
    try:
        hint = device_hint(plan.op.element, plan.op.activation, plan.device)
    except ScheduleError as error:
        return [f"none: {error.what}"]
    return str(hint).splitlines()


def decode_lines(plan: Plan) -> list[str]:
    """The decode program, what it defers, and whether it keeps every value."""
    program = plan.program
    pipes = ", ".join(f"{count:g} {pipe}" for pipe, count in program.pipes().items() if count)
    answer = losslessness(plan.op.weight, plan.op.weight_compute)
    lines = [
        f"{program.form}: {pipes or 'no instruction'} per 8 codes, {program.words} words a lane and atom",
        f"operand {answer}; scales are applied to float32 accumulators",
    ]
    for number, pair in enumerate(program.affine):
        if not all(affine.is_identity for affine in pair):
            places = ("rows 0-7", "rows 8-15") if len(pair) == HALVES else ("a0", "a1", "a2", "a3")
            maps = "; ".join(
                f"value = {float(affine.alpha):g} * lane {float(affine.beta):+g} in {place}"
                for affine, place in zip(pair, places, strict=True)
            )
            lines.append(f"deferred, class {number}: {maps}")
    if program.undefined:
        lines.append(f"codes {program.undefined} must not occur in weights")
    return lines


def choice_lines(plan: Plan) -> list[str]:
    """What was decided, and the reasons that are not in the arithmetic."""
    cut = plan.packing.geometry
    lines = [plan.brief, *_arrangement_lines(plan)]
    if plan.access == "scalar":
        why = (
            f"groups of {cut.group} are padded to {cut.padded_group}"
            if not cut.is_contiguous
            else f"K = {cut.k} is no multiple of {plan.piece}"
            if cut.k % plan.piece
            else "fixed by hand: any stride of x"
        )
        lines.append(f"activations are read one at a time: {why}")
    elif plan.access == "column":
        lines.append("the token's activations lie in registers; each step of a block has a column")
    else:
        lines.append("activations are read 16 bytes at a time: x needs a unit stride along K")
    if cut.padded_k != cut.k:
        lines.append(
            f"K = {cut.k} is padded to {cut.padded_k} in the packing, activations there are 0"
        )
    rows = plan.packing.stored_tiles * TILE_ROWS
    if rows != plan.op.n:
        lines.append(f"N = {plan.op.n} is padded to {rows} in the packing")
    return lines


def _arrangement_lines(plan: Plan) -> list[str]:
    """Family, room for the next launch, and the place of zero points."""
    lines = []
    if plan.family == "skinny":
        lines.append(
            f"M up to {plan.tiling.tokens} fits one CTA: each warp has a ring and a K slice of its own"
        )
    else:
        lines.append(
            "all warps of a K slice share a ring and its activations: for any M, shape and stride"
        )
    if launches_together(plan) > 1:
        lines.append(
            "an SM has room for a CTA of the next launch, which loads all of its weights beside this one"
        )
    if plan.compute == "wgmma":
        lines.append(
            f"four warps multiply 64 channels by all {plan.tiling.tokens} tokens at once:"
            " activations stay in shared memory"
        )
    if plan.lookahead:
        lines.append(
            "a block's first fragments are made beside the last products of the block before, for a slot"
        )
    if plan.zero == "register":
        lines.append(
            "zeros come off the weights by one exact fma a register: no product is spent on activation sums"
        )
    elif plan.has_zeros:
        share = f"1/{plan.tiling.row_tiles}"
        lines.append(f"zeros come off the accumulators by activation sums, {share} more products")
    return lines


def ranking_sections(plan: Plan) -> tuple[tuple[str, list[str]], ...]:
    """Runners-up and rejected candidates of a search over the same packing and M range."""
    fixed = {"convert": plan.convert, "launch": plan.launch}
    if plan.access != "column":  # of one token, which the search chooses itself
        fixed["access"] = plan.access
    fixed["epilogue"] = plan.epilogue  # type: ignore[assignment]  # a mapping of mixed decisions
    try:
        ranking = rank(plan.op, plan.device, plan.packing, plan.m_range, fixed)
    except ScheduleError as error:
        return (("candidates", [error.what]),)
    return (
        ("candidates", _candidate_lines(plan, ranking)),
        ("rejected", _rejected_lines(ranking.rejected)),
    )


def _candidate_lines(plan: Plan, ranking: Ranking) -> list[str]:
    own = plan.cost().us
    lines = [f"{len(ranking.ranked)} legal plans; this one {own:.2f} us"]
    if plan != ranking.chosen:
        best, cost = ranking.ranked[0]
        lines.append(
            f"fixed by hand, measured, or shared with other M; the search picks {cost.us:.2f} us: {best.brief}"
        )
    others = [pair for pair in ranking.ranked if pair[0] not in (plan, ranking.chosen)]
    if plan == ranking.chosen and any(cost.us < own for _, cost in others):
        lines.append(
            f"faster ones by the estimate lost: within {TIE:.1%} the least shared memory wins"
        )
    for other, cost in others[:SHOWN]:
        lines.append(f"{cost.us:8.2f} us, bound by {cost.limit.name}: {other.brief}")
    return lines


def _rejected_lines(rejected: tuple[Rejected, ...]) -> list[str]:
    """Rejections by reason, with an example each; numbers differ between candidates, so the first words tell reasons apart."""
    if not rejected:
        return ["none"]
    kinds = Counter(_kind(r) for r in rejected)
    lines = []
    for kind, count in kinds.most_common():
        example = next(r for r in rejected if _kind(r) == kind)
        lines.append(f"{count} x {example.reason}, for example {example.plan}")
    return lines


def _kind(rejected: Rejected) -> str:
    return rejected.reason.split()[0]
