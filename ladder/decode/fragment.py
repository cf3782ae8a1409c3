"""From decoded registers to the A fragment: which register serves which step and row half.

Rows g (registers a0, a2) and g+8 (a1, a3) each sum over k in the mma, so a deferred factor may differ between the two
row halves of a step but not inside one. Steps whose two factors differ from another step's need their own accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ladder.decode.program import Affine, Slot

#: halves of the rows of a fragment: g, and g + 8
ROW_HALVES = 2


@dataclass(frozen=True, slots=True)
class Decoded:
    """A finished register: its number, its codes' slots (lowest lane first), and what it defers.

    ``bare`` is what it would defer without the fma that finishes it, None where there is none.
    """

    register: int
    slots: tuple[Slot, ...]
    deferred: Affine
    bare: Affine | None = None


@dataclass(frozen=True, slots=True)
class Fragment:
    """Registers in fragment order; the fields are those of :class:`ladder.decode.program.DecodeProgram`."""

    outputs: tuple[tuple[int, int, int, int], ...]
    slots: tuple[tuple[tuple[Slot, ...], ...], ...]
    step_class: tuple[int, ...]
    affine: tuple[tuple[Affine, Affine], ...]


@cache
def pairing(counts: tuple[int, ...]) -> tuple[tuple[int, int, int], ...] | None:
    """The fewest classes for ``counts[i]`` registers that defer the ``i``-th affine map.

    Returns ``(i, j, steps)`` triples: so many steps whose rows g defer map i and rows g+8 map j; None where a count is
    odd. In an optimal answer some map meets a single partner (a leaf of the graph of classes) or itself, so trying
    every smallest remaining map against every partner is exhaustive.
    """
    if any(n % 2 for n in counts):
        return None
    pairs = tuple(n // 2 for n in counts)
    found = _pair(pairs)
    return None if found is None else tuple(sorted(found))


@cache
def _pair(pairs: tuple[int, ...]) -> tuple[tuple[int, int, int], ...] | None:
    left = [i for i, n in enumerate(pairs) if n]
    if not left:
        return ()
    best: tuple[tuple[int, int, int], ...] | None = None
    i = min(left, key=lambda x: (pairs[x], x))
    options = [(i, j, pairs[i]) for j in left if j != i]
    options += [(j, j, pairs[j] // 2) for j in left if pairs[j] > 1 and (j == i or len(left) > 1)]
    for a, b, n in options:
        rest = list(pairs)
        rest[a] -= n
        rest[b] -= n
        tail = _pair(tuple(rest))
        if tail is not None and (best is None or len(tail) + 1 < len(best)):
            best = ((min(a, b), max(a, b), n), *tail)
    return best


def classes(counts: Sequence[int]) -> int | None:
    """Accumulator classes that such counts of registers need, or None where they fit no fragment."""
    found = pairing(tuple(sorted((n for n in counts if n), reverse=True)))
    return None if found is None else len(found)


def arrange(registers: Sequence[Decoded]) -> Fragment | None:
    """Put registers into fragment order with the fewest classes, keeping their given order where possible."""
    affines = sorted({r.deferred for r in registers}, key=lambda a: (a.alpha, a.beta))
    by_affine = {a: _alike([r for r in registers if r.deferred == a]) for a in affines}
    plan = pairing(tuple(len(by_affine[a]) for a in affines))
    if plan is None:
        return None
    rank = {r.register: i for i, r in enumerate(registers)}
    steps: list[tuple[int, int, tuple[Decoded, ...]]] = []
    for cls, (i, j, count) in enumerate(plan):
        for _ in range(count):
            a0, a2 = by_affine[affines[i]].pop(0), by_affine[affines[i]].pop(0)
            a1, a3 = by_affine[affines[j]].pop(0), by_affine[affines[j]].pop(0)
            step = (a0, a1, a2, a3)
            steps.append((max(rank[r.register] for r in step), cls, step))
    steps.sort(key=lambda s: s[0])
    return Fragment(
        outputs=tuple(
            (s[0].register, s[1].register, s[2].register, s[3].register) for _, _, s in steps
        ),
        slots=tuple(tuple(r.slots for r in s) for _, _, s in steps),
        step_class=tuple(cls for _, cls, _ in steps),
        affine=tuple((affines[i], affines[j]) for i, j, _ in plan),
    )


def _alike(registers: list[Decoded]) -> list[Decoded]:
    """The registers, those that would defer one map without their fma for rows g, those of another one for rows g+8.

    A kernel may then do without the fma (:mod:`ladder.decode.bare`). As they are where there are more maps, or not equally many
    registers of two.
    """
    maps = list(dict.fromkeys(register.bare for register in registers))
    halves = [[r for r in registers if r.bare == bare] for bare in maps]
    if len(halves) != ROW_HALVES or len(halves[0]) != len(halves[1]) or len(halves[0]) % 2:
        return registers
    pairs = [[half[i : i + 2] for i in range(0, len(half), 2)] for half in halves]
    return [register for step in zip(*pairs, strict=True) for pair in step for register in pair]
