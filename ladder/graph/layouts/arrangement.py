"""An arrangement: where the elements of a tensor lie, for shapes that may hold symbols.

Each axis is cut into pieces, outermost first; the pieces of all axes stand in an order, outermost first; within the last
``2**b`` elements a :class:`~ladder.ttile.layout.Layout` may move elements once more (a swizzle)::

    [batch, seq, 4096]  heads first:   cut batch | seq | 32*128     order batch 32 seq 128
    [64, 64]            16x16 tiles:   cut 4*16 | 4*16              order 4 4 16 16

A reshape or a transpose of the tensor does not move an element: it is the same memory under another arrangement, if one
exists. Arrangements have one normal form (no piece of extent 1, no two pieces of an axis side by side in both orders), so
that what a transpose and its inverse make is equal to what was there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from ladder.errors import LayoutError
from ladder.graph.extent import Extent, Shape, Sizes, divided, product, shape_of
from ladder.graph.tensor import Array
from ladder.ttile.layout import Layout

#: pieces of each axis, outermost first
Cut = tuple[tuple[Extent, ...], ...]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A layout of a tensor, in normal form; made by :func:`row_major`, :func:`arranged` and the views.

    Attributes:
        cut: of each axis, its pieces.
        order: of the storage, outermost first: numbers of pieces, counted through all axes.
        swizzle: a bijection of the flat index within the innermost ``2**b`` elements, or None.
    """

    cut: Cut
    order: tuple[int, ...]
    swizzle: Layout | None = None

    @property
    def shape(self) -> Shape:
        """Shape of the tensor."""
        return tuple(product(pieces) for pieces in self.cut)

    @property
    def pieces(self) -> tuple[tuple[int, Extent], ...]:
        """Every piece as ``(axis, extent)``, in the tensor's own order."""
        return tuple((axis, extent) for axis, pieces in enumerate(self.cut) for extent in pieces)

    @property
    def stored(self) -> tuple[tuple[int, Extent], ...]:
        """The same in the order of the storage."""
        return tuple(self.pieces[place] for place in self.order)

    @property
    def is_row_major(self) -> bool:
        """Whether the storage has the tensor's own order."""
        return self.order == tuple(range(len(self.order))) and self.swizzle is None

    @property
    def innermost(self) -> tuple[int, Extent]:
        """Axis and extent of the run that lies in consecutive elements; ``(-1, 1)`` of a single element."""
        return self.stored[-1] if self.order else (-1, 1)

    def whole_innermost(self, axis: int) -> bool:
        """Whether an axis lies uncut in consecutive elements (an axis of extent 1 always does)."""
        axis %= len(self.cut)
        if not self.cut[axis]:
            return self.swizzle is None
        return len(self.cut[axis]) == 1 and self.innermost[0] == axis and self.swizzle is None

    def without(self, *axes: int) -> Arrangement:
        """The arrangement of the other axes among themselves."""
        dropped = {axis % len(self.cut) for axis in axes}
        kept = [place for place, (axis, _) in enumerate(self.pieces) if axis not in dropped]
        cut = tuple(pieces for axis, pieces in enumerate(self.cut) if axis not in dropped)
        return arranged(cut, tuple(kept.index(place) for place in self.order if place in kept))

    # -- views ------------------------------------------------------------------------------------

    def transposed(self, order: Sequence[int]) -> Arrangement:
        """The same memory as the tensor's transpose."""
        starts = _starts(self.cut)
        cut = tuple(self.cut[axis] for axis in order)
        new_starts = _starts(cut)
        place = {
            starts[axis] + i: new_starts[new] + i
            for new, axis in enumerate(order)
            for i in range(len(self.cut[axis]))
        }
        return arranged(cut, tuple(place[one] for one in self.order), self.swizzle)

    def reshaped(self, shape: Shape) -> Arrangement | None:
        """The same memory as the tensor's reshape, None where the new axes do not divide the pieces."""
        waiting = [(place, extent) for place, (_, extent) in enumerate(self.pieces)]
        parts: list[list[tuple[int, Extent]]] = []  # of each new axis: (old piece, extent)
        for extent in shape:
            taken = _taken(waiting, extent)
            if taken is None:
                return None
            parts.append(taken)
        flat = [part for axis in parts for part in axis]
        new_of: dict[int, list[int]] = {}
        for new, (old, _) in enumerate(flat):
            new_of.setdefault(old, []).append(new)
        order = tuple(new for old in self.order for new in new_of.get(old, []))
        return arranged(tuple(tuple(e for _, e in axis) for axis in parts), order, self.swizzle)

    def resized(self, axis: int, extent: Extent) -> Arrangement | None:
        """The arrangement of a slice, or of a longer tensor: an uncut axis with another extent; None where it is cut."""
        if len(self.cut[axis]) > 1 or self.swizzle is not None:
            return None
        if not self.cut[axis]:  # of extent 1 so far: it may stand anywhere, outermost is as good
            cut = tuple((extent,) if i == axis else one for i, one in enumerate(self.cut))
            new = _starts(cut)[axis]
            moved = tuple(place + (place >= new) for place in self.order)
            return arranged(cut, (new, *moved))
        cut = tuple((extent,) if i == axis else one for i, one in enumerate(self.cut))
        return arranged(cut, self.order)

    # -- memory -----------------------------------------------------------------------------------

    def store(self, array: Array, sizes: Sizes) -> Array:
        """A tensor as it lies in memory, flat."""
        extents = [e for pieces in self.cut for e in shape_of(pieces, sizes)]
        flat: Array = array.reshape(extents).transpose(self.order).reshape(-1)
        if self.swizzle is None:
            return flat
        chunks = flat.reshape(-1, 1 << self.swizzle.in_bits)
        moved = np.empty_like(chunks)
        moved[:, self.swizzle.points()] = chunks
        return np.asarray(moved.reshape(-1))

    def load(self, flat: Array, sizes: Sizes) -> Array:
        """The tensor that lies in flat memory: the inverse of :meth:`store`."""
        if self.swizzle is not None:
            flat = flat.reshape(-1, 1 << self.swizzle.in_bits)[:, self.swizzle.points()]
        extents = [e for pieces in self.cut for e in shape_of(pieces, sizes)]
        stored = [extents[place] for place in self.order]
        back = np.argsort(self.order)
        shape = shape_of(self.shape, sizes)
        return np.asarray(flat.reshape(stored).transpose(back).reshape(shape))

    def __str__(self) -> str:
        if self.is_row_major:
            return "row-major"
        names = "abcdefghijklmnopqrstuvwxyz"
        seen: dict[int, int] = {}
        words = {}
        for place, (axis, extent) in enumerate(self.pieces):
            cut = len(self.cut[axis]) > 1
            words[place] = f"{names[axis]}{seen.get(axis, 0) if cut else ''}:{extent}"
            seen[axis] = seen.get(axis, 0) + 1
        text = " ".join(words[place] for place in self.order)
        return f"({text})" + ("" if self.swizzle is None else " swizzled")


def row_major(shape: Shape) -> Arrangement:
    """The arrangement that arrays have by themselves."""
    return arranged(tuple((extent,) for extent in shape), tuple(range(len(shape))))


def permuted(shape: Shape, order: Sequence[int]) -> Arrangement:
    """Whole axes in another order of storage, outermost first."""
    return arranged(tuple((extent,) for extent in shape), tuple(order))


def blocked(
    shape: Shape, rows: int, columns: int, swizzle: Layout | None = None
) -> Arrangement | None:
    """The last two axes in tiles of ``rows`` x ``columns`` that lie one after the other; None where they do not divide.

    Raises:
        LayoutError: the swizzle is no bijection of the elements of a tile.
    """
    if swizzle is not None and (not swizzle.is_bijective or 1 << swizzle.in_bits != rows * columns):
        raise LayoutError(
            f"the swizzle is of {1 << swizzle.in_bits} elements, a tile has {rows * columns}",
            at="blocked",
            hint="give a bijection of one tile's flat index",
        )
    if len(shape) < 2:
        return None
    outer = divided(shape[-2], rows), divided(shape[-1], columns)
    if outer[0] is None or outer[1] is None:
        return None
    lead = len(shape) - 2
    cut = (*((e,) for e in shape[:-2]), (outer[0], rows), (outer[1], columns))
    order = (*range(lead), lead, lead + 2, lead + 1, lead + 3)
    return arranged(cut, order, swizzle)


def arranged(cut: Cut, order: tuple[int, ...], swizzle: Layout | None = None) -> Arrangement:
    """An arrangement in normal form.

    Raises:
        LayoutError: the order does not name each piece once.
    """
    count = sum(map(len, cut))
    if sorted(order) != list(range(count)):
        raise LayoutError(
            f"{list(order)} is no order of {count} pieces", at="arrangement", hint="name each once"
        )
    if swizzle is not None and swizzle.basis == tuple(1 << i for i in range(swizzle.in_bits)):
        swizzle = None
    pieces = [(axis, extent) for axis, parts in enumerate(cut) for extent in parts]
    groups = _groups(pieces, order)
    first_of = sorted(range(len(groups)), key=lambda g: groups[g][0])
    new_cut: list[list[Extent]] = [[] for _ in cut]
    for group in first_of:
        axis = pieces[groups[group][0]][0]
        new_cut[axis].append(product(pieces[place][1] for place in groups[group]))
    return Arrangement(
        tuple(tuple(parts) for parts in new_cut),
        tuple(first_of.index(group) for group in range(len(groups))),
        swizzle,
    )


def _groups(pieces: Sequence[tuple[int, Extent]], order: Sequence[int]) -> list[list[int]]:
    """Pieces in storage order, those joined that are neighbours of one axis in both orders; extents of 1 left out."""
    kept = [place for place in range(len(pieces)) if pieces[place][1] != 1]
    after = dict(pairwise(kept))
    groups: list[list[int]] = []
    for place in order:
        if pieces[place][1] == 1:
            continue
        last = groups[-1][-1] if groups else None
        joins = (
            last is not None and after.get(last) == place and pieces[last][0] == pieces[place][0]
        )
        if joins:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _taken(waiting: list[tuple[int, Extent]], extent: Extent) -> list[tuple[int, Extent]] | None:
    """The leading pieces that make up an axis of ``extent``, the last of them cut if need be; they leave ``waiting``."""
    taken: list[tuple[int, Extent]] = []
    need = extent
    while need != 1:
        if not waiting:
            return None
        place, piece = waiting[0]
        left = divided(need, piece)
        if left is not None:
            waiting.pop(0)
            taken.append((place, piece))
            need = left
            continue
        rest = divided(piece, need)
        if rest is None:
            return None
        taken.append((place, need))
        waiting[0] = (place, rest)
        need = 1
    return taken


def _starts(cut: Cut) -> list[int]:
    return [0, *accumulate(map(len, cut))]
