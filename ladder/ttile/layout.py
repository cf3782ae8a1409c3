"""Layouts: F2-linear maps between named coordinates with power-of-two extents.

A layout says where things lie: hardware coordinates (register, lane, warp, word, byte, ...) on one side, logical
ones (row, column, k, ...) on the other. Each coordinate is a number of bits; the flat index of a point is its
coordinates joined with the **first-named one outermost** (most significant). A layout is stored as the images of
the input's basis vectors: ``basis[i]`` is the flat output of flat input ``1 << i``, and the image of any other
point is the xor of the images of its bits. Composition, inverse, bijectivity, bank conflicts and vector width are
then linear algebra over the field of two elements.

    >>> swap = Layout.from_bits((("x", 1), ("y", 2)), (("p", 3),), {"p": "x.0 y.0 y.1"})
    >>> swap.apply(x=1, y=0)
    {'p': 1}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladder.errors import LayoutError
from ladder.ttile import f2

#: ``(name, bits)`` of each coordinate, outermost first
Coordinates = tuple[tuple[str, int], ...]
#: an integer or an array of them, which NumPy broadcasts
Index = Any


@dataclass(frozen=True, slots=True)
class Layout:
    """A linear map over F2 from the coordinates ``ins`` to the coordinates ``outs``.

    Attributes:
        ins: ``(name, bits)`` of the input coordinates, outermost first.
        outs: the same of the output coordinates.
        basis: flat output of each flat input bit, least significant input bit first.

    Raises:
        LayoutError: names repeat, bits are negative, or the images do not fit the coordinates.
    """

    ins: Coordinates
    outs: Coordinates
    basis: tuple[int, ...]

    def __post_init__(self) -> None:
        for side, coordinates in (("input", self.ins), ("output", self.outs)):
            names = [name for name, _ in coordinates]
            if len(set(names)) != len(names):
                raise LayoutError(f"{side} coordinates repeat a name", at=names)
            if any(bits < 0 for _, bits in coordinates):
                raise LayoutError(f"{side} coordinates have negative bits", at=coordinates)
        if len(self.basis) != self.in_bits:
            raise LayoutError(
                f"{len(self.basis)} images for {self.in_bits} input bits",
                at=self.ins,
                hint="give one image for each input bit, least significant first",
            )
        if any(not 0 <= image < 1 << self.out_bits for image in self.basis):
            raise LayoutError(f"an image needs more than {self.out_bits} bits", at=self.basis)

    # -- ways to write one down -----------------------------------------------------------------

    @classmethod
    def identity(cls, coordinates: Coordinates) -> Layout:
        """Every point to itself."""
        bits = _width(coordinates)
        return cls(coordinates, coordinates, tuple(1 << i for i in range(bits)))

    @classmethod
    def row_major(cls, coordinates: Coordinates, into: str = "offset") -> Layout:
        """Coordinates, outermost first, to one linear offset: the last-named one is contiguous."""
        bits = _width(coordinates)
        return cls(coordinates, ((into, bits),), tuple(1 << i for i in range(bits)))

    @classmethod
    def xor_swizzle(cls, name: str, bits: int, *, count: int, low: int, high: int) -> Layout:
        """One coordinate onto itself: bits ``low .. low+count-1`` are xored with ``high .. high+count-1``.

        The 128-byte swizzle of TMA and wgmma is ``xor_swizzle("byte", n, count=3, low=4, high=7)``
        (PTX ISA, "Swizzling modes"): 16-byte chunks of a 128-byte line are xored with the line's number.
        """
        if count < 0 or low < 0 or low + count > high or high + count > bits:
            raise LayoutError(
                f"xor of bits {low}..{low + count - 1} with {high}..{high + count - 1} does not fit",
                at=f"{name}, {bits} bits",
                hint="low + count <= high and high + count <= bits keep the map a bijection",
            )
        images = [1 << i for i in range(bits)]
        for i in range(count):
            images[high + i] |= 1 << (low + i)
        return cls(((name, bits),), ((name, bits),), tuple(images))

    @classmethod
    def from_bits(cls, ins: Coordinates, outs: Coordinates, bits: Mapping[str, str]) -> Layout:
        """Each output coordinate as its bits, least significant first: ``{"row": "lane.2 lane.3^register.0"}``.

        ``name.i`` is bit i of an input; ``^`` joins bits that are xored; ``0`` is a constant zero bit.
        """
        flat = {f"{name}.{i}": _offsets(ins)[name] + i for name, width in ins for i in range(width)}
        images = [0] * _width(ins)
        for name, width in outs:
            terms = bits.get(name, "").split()
            if len(terms) != width:
                raise LayoutError(
                    f"{name} has {width} bits, {len(terms)} are given", at=bits.get(name, "")
                )
            for place, term in enumerate(terms):
                for source in term.split("^") if term != "0" else ():
                    if source not in flat:
                        raise LayoutError(f"{source} is no input bit", at=term, hint=str(ins))
                    images[flat[source]] ^= 1 << (_offsets(outs)[name] + place)
        return cls(ins, outs, tuple(images))

    # -- questions ------------------------------------------------------------------------------

    @property
    def in_bits(self) -> int:
        """Bits of the input."""
        return _width(self.ins)

    @property
    def out_bits(self) -> int:
        """Bits of the output."""
        return _width(self.outs)

    @property
    def rank(self) -> int:
        """Dimension of the image: ``2**rank`` different outputs are reached."""
        return f2.rank(self.basis)

    @property
    def is_injective(self) -> bool:
        """No two inputs share an output."""
        return self.rank == self.in_bits

    @property
    def is_surjective(self) -> bool:
        """Every output is reached."""
        return self.rank == self.out_bits

    @property
    def is_bijective(self) -> bool:
        """Every output is reached exactly once."""
        return self.is_injective and self.is_surjective

    @property
    def is_identity(self) -> bool:
        """Same coordinates on both sides, each point to itself."""
        return self == Layout.identity(self.ins)

    def image(self, name: str, bit: int = 0) -> dict[str, int]:
        """Output coordinates of the single input bit ``name.bit``."""
        offsets = _offsets(self.ins)
        if name not in offsets or not 0 <= bit < dict(self.ins)[name]:
            raise LayoutError(f"{name}.{bit} is no input bit", at=self.ins)
        return {k: int(v) for k, v in _split(self.basis[offsets[name] + bit], self.outs).items()}

    # -- use ------------------------------------------------------------------------------------

    def flat(self, index: Index) -> Index:
        """Flat output of a flat input: ``int`` to ``int``, integer array to int64 array."""
        array = np.asarray(index, dtype=np.int64)
        if array.size and (array.min() < 0 or array.max() >= 1 << self.in_bits):
            raise LayoutError(f"an index is outside 0 .. {(1 << self.in_bits) - 1}", at=self.ins)
        result = np.zeros_like(array)
        for i, image in enumerate(self.basis):
            result ^= ((array >> i) & 1) * image
        return int(result) if np.ndim(index) == 0 else result

    def apply(self, **coordinates: Index) -> dict[str, Index]:
        """Output coordinates of the given input coordinates; arrays broadcast.

        Raises:
            LayoutError: a coordinate is missing, unknown, or outside its extent.
        """
        _same_names(coordinates, self.ins)
        flat: Index = 0
        for name, bits in self.ins:
            value = np.asarray(coordinates[name], dtype=np.int64)
            if value.size and (value.min() < 0 or value.max() >= 1 << bits):
                raise LayoutError(f"{name} is outside 0 .. {(1 << bits) - 1}", at=self)
            flat = (np.asarray(flat, dtype=np.int64) << bits) | value
        result = self.flat(flat if np.ndim(flat) else int(flat))
        return _split(result, self.outs)

    def points(self) -> NDArray[np.int64]:
        """Flat outputs of all inputs in order, int64[2**in_bits]."""
        result: NDArray[np.int64] = self.flat(np.arange(1 << self.in_bits, dtype=np.int64))
        return result

    # -- algebra --------------------------------------------------------------------------------

    def __rshift__(self, then: Layout) -> Layout:
        """``a >> b``: apply a, then b. Coordinates meet by name, whatever their order."""
        mine = self.reorder(outs=tuple(name for name, _ in then.ins)) if _same(self, then) else None
        if mine is None:
            raise LayoutError(
                f"outputs {_brief(self.outs)} do not meet inputs {_brief(then.ins)}",
                at=f"{_brief(self.ins)} >> {_brief(then.outs)}",
                hint="rename, or regroup with as_(outs=...)",
            )
        return Layout(self.ins, then.outs, tuple(f2.apply(then.basis, i) for i in mine.basis))

    def __mul__(self, inner: Layout) -> Layout:
        """``outer * inner``: both side by side; a name that both have is stacked, inner in its low bits."""
        ins, outs = _stack(self.ins, inner.ins), _stack(self.outs, inner.outs)
        place_in, place_out = _offsets(ins), _offsets(outs)
        images = [0] * _width(ins)
        for part, above_in, above_out in (
            (inner, {}, {}),
            (self, dict(inner.ins), dict(inner.outs)),
        ):
            for name, bits in part.ins:
                for bit in range(bits):
                    images[place_in[name] + above_in.get(name, 0) + bit] = sum(
                        value << (place_out[out] + above_out.get(out, 0))
                        for out, value in part.image(name, bit).items()
                    )
        return Layout(ins, outs, tuple(images))

    def inverse(self) -> Layout:
        """The map back.

        Raises:
            LayoutError: the layout is not a bijection.
        """
        if not self.is_bijective:
            raise LayoutError(
                f"rank {self.rank} of {self.in_bits} -> {self.out_bits} bits: no inverse", at=self
            )
        return Layout(self.outs, self.ins, f2.inverse(self.basis))

    def rename(self, names: Mapping[str, str]) -> Layout:
        """The same map with coordinates of other names, on both sides."""
        return Layout(
            tuple((names.get(n, n), b) for n, b in self.ins),
            tuple((names.get(n, n), b) for n, b in self.outs),
            self.basis,
        )

    def as_(self, *, ins: Coordinates | None = None, outs: Coordinates | None = None) -> Layout:
        """The same flat map with its bits cut into other coordinates (split, join, rename)."""
        return Layout(ins or self.ins, outs or self.outs, self.basis)

    def reorder(
        self, *, ins: Sequence[str] | None = None, outs: Sequence[str] | None = None
    ) -> Layout:
        """The same map of named points with the coordinates in another order."""
        new_ins = _reordered(self.ins, ins)
        new_outs = _reordered(self.outs, outs)
        place = _offsets(new_outs)
        images = tuple(
            sum(value << place[out] for out, value in self.image(name, bit).items())
            for name, bits in reversed(new_ins)
            for bit in range(bits)
        )
        return Layout(new_ins, new_outs, images)

    # -- print ----------------------------------------------------------------------------------

    def __str__(self) -> str:
        rows = [f"{_brief(self.ins)} -> {_brief(self.outs)}"]
        for name, bits in self.outs:
            terms = []
            for bit in range(bits):
                place = _offsets(self.outs)[name] + bit
                terms.append("^".join(self._sources(place)) or "0")
            rows.append(f"  {name} = {' '.join(terms)}")
        return "\n".join(rows)

    def _sources(self, place: int) -> list[str]:
        """Names of the input bits that enter flat output bit ``place``."""
        offsets = _offsets(self.ins)
        return [
            f"{name}.{i}"
            for name, width in self.ins
            for i in range(width)
            if self.basis[offsets[name] + i] >> place & 1
        ]

    def table(self, rows: str, columns: str, show: str) -> str:
        """A small table of output ``show`` over inputs ``rows`` x ``columns``, the others at 0."""
        extents = dict(self.ins)
        r = np.arange(1 << extents[rows])[:, None]
        c = np.arange(1 << extents[columns])[None, :]
        others = {name: 0 for name, _ in self.ins if name not in (rows, columns)}
        cells = self.apply(**{rows: r, columns: c}, **others)[show]
        width = max(len(str(int(cells.max()))), len(str(c.max())))
        head = f"{rows}\\{columns}"
        lines = [f"{head} | " + " ".join(f"{i:>{width}}" for i in c[0])]
        lines += [
            f"{i:>{len(head)}} | " + " ".join(f"{v:>{width}}" for v in row)
            for i, row in enumerate(cells)
        ]
        return "\n".join(lines)


def _width(coordinates: Coordinates) -> int:
    return sum(bits for _, bits in coordinates)


def _offsets(coordinates: Coordinates) -> dict[str, int]:
    """Place of each coordinate's lowest bit in the flat index."""
    result, place = {}, 0
    for name, bits in reversed(coordinates):
        result[name] = place
        place += bits
    return result


def _split(flat: Index, coordinates: Coordinates) -> dict[str, Index]:
    places = _offsets(coordinates)
    return {name: (flat >> places[name]) & ((1 << bits) - 1) for name, bits in coordinates}


def _brief(coordinates: Coordinates) -> str:
    return "(" + ", ".join(f"{name}:{1 << bits}" for name, bits in coordinates) + ")"


def _same(first: Layout, then: Layout) -> bool:
    return dict(first.outs) == dict(then.ins)


def _same_names(given: Mapping[str, object], wanted: Coordinates) -> None:
    if set(given) != {name for name, _ in wanted}:
        raise LayoutError(f"coordinates {sorted(given)} do not name {_brief(wanted)}", at="apply")


def _stack(outer: Coordinates, inner: Coordinates) -> Coordinates:
    low = dict(inner)
    joined = tuple((name, bits + low.get(name, 0)) for name, bits in outer)
    return joined + tuple((n, b) for n, b in inner if n not in dict(outer))


def _reordered(coordinates: Coordinates, names: Sequence[str] | None) -> Coordinates:
    if names is None:
        return coordinates
    if sorted(names) != sorted(name for name, _ in coordinates):
        raise LayoutError(f"{list(names)} is no order of {_brief(coordinates)}", at="reorder")
    return tuple((name, dict(coordinates)[name]) for name in names)
