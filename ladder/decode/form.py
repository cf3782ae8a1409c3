"""Forms and fields: how one code becomes one lane, and where a register finds the bits of its codes.

A **form** keeps the lane bits ``positions`` from the packed word, forces the others to ``constant``, and may finish with
one fma. A **field** is one register: a form and the pieces of (rotated) words that its bits come from.
"""

from __future__ import annotations

from dataclasses import dataclass

from ladder.decode.program import Affine


def mask_of(positions: tuple[int, ...]) -> int:
    """``(0, 2) -> 0b101``."""
    return sum(1 << p for p in positions)


def rotate(mask: int, n: int, width: int) -> int:
    """``mask`` rotated left by ``n`` in a ring of ``width`` bits."""
    n %= width
    return ((mask << n) | (mask >> (width - n))) & ((1 << width) - 1)


@dataclass(frozen=True, slots=True)
class Form:
    """One way to hold a code in a 16-bit lane.

    Attributes:
        positions: lane bits that carry the stored bits, least significant stored bit first.
        constant: the lane's other bits.
        stored: ``code -> stored bits``, a permutation of ``0 .. 2**bits-1``.
        deferred: ``value = alpha*lane_value + beta`` of the finished lane.
        fma: ``(factor, addend)`` as lane patterns, applied after the mask, or None.
        carried: codes without a finite value (NaN, infinity) that the form decodes rightly all the same.
        bare: what the lane would defer without its fma, None where it has none.
    """

    positions: tuple[int, ...]
    constant: int
    stored: tuple[int, ...]
    deferred: Affine
    fma: tuple[int, int] | None = None
    carried: tuple[int, ...] = ()
    bare: Affine | None = None

    @property
    def mask(self) -> int:
        """The positions as a lane mask."""
        return mask_of(self.positions)


@dataclass(frozen=True, slots=True)
class Piece:
    """Bits ``mask`` of the register come from ``word`` rotated left by ``rotation`` (both in the width of a lane)."""

    word: int
    rotation: int
    mask: int


@dataclass(frozen=True, slots=True)
class Field:
    """One register and the pieces that make it; their masks partition the form's mask."""

    form: Form
    pieces: tuple[Piece, ...]
