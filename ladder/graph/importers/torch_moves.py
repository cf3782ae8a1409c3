"""Converters of operators that move elements: reshapes, transposes, pieces, joins, gathers."""

from __future__ import annotations

from collections.abc import Sequence

from ladder.errors import ModelImportError
from ladder.graph.extent import Extent
from ladder.graph.importers.torch_call import Call, Converter
from ladder.graph.operators import Concat, Expand, Gather, Reshape, Slice, Transpose


def reshape(call: Call) -> str:
    """view, reshape, flatten, squeeze and their like: torch has worked out the shape."""
    return call.add(Reshape(call.shape), call.tensor(0))


def transpose(call: Call) -> str:
    """Two axes exchanged."""
    order = list(range(call.rank()))
    a, b = (call.arg(1), call.arg(2)) if len(call.args) > 1 else (0, 1)
    order[a], order[b] = order[b], order[a]
    return call.add(Transpose(tuple(order)), call.tensor(0))


def matrix_transpose(call: Call) -> str:
    """``t``: all axes in reverse."""
    return call.add(Transpose(tuple(reversed(range(call.rank())))), call.tensor(0))


def permute(call: Call) -> str:
    """Axes in a given order."""
    rank = call.rank()
    return call.add(Transpose(tuple(int(i) % rank for i in call.arg(1))), call.tensor(0))


def concat(call: Call) -> str:
    """``cat``; empty tensors are left out, as torch does."""
    names = [call.value(one) for one in call.arg(0)]
    axis = int(call.arg(1, "dim", 0)) % call.draft.type(names[0]).rank
    kept = [name for name in names if call.draft.type(name).shape[axis] != 0]
    return call.add(Concat(axis), *kept)


def stack(call: Call) -> str:
    """A new axis, then ``cat``."""
    names = [call.value(one) for one in call.arg(0)]
    rank = call.draft.type(names[0]).rank
    axis = int(call.arg(1, "dim", 0)) % (rank + 1)
    wide = []
    for name in names:
        shape = call.draft.type(name).shape
        op = Reshape((*shape[:axis], 1, *shape[axis:]))
        wide.append(call.add(op, name, last=False))
    return call.add(Concat(axis), *wide)


def _pieces(call: Call, axis: int, sizes: Sequence[Extent]) -> list[str]:
    start: Extent = 0
    found = []
    for size in sizes:
        found.append(call.draft.add(Slice(axis, start, start + size), [call.tensor(0)], call.name))
        start = start + size
    return found


def split(axis_place: int) -> Converter:
    """chunk, split and split_with_sizes: torch has worked out the shapes of the pieces."""

    def convert(call: Call) -> list[str]:
        axis = int(call.arg(axis_place, "dim", 0)) % call.rank()
        return _pieces(call, axis, [one.shape[axis] for one in call.results])

    return convert


def unbind(call: Call) -> list[str]:
    """One piece to each index, without the axis."""
    axis = int(call.arg(1, "dim", 0)) % call.rank()
    pieces = _pieces(call, axis, [1] * len(call.results))
    return [
        call.draft.add(Reshape(one.shape), [piece], call.name)
        for piece, one in zip(pieces, call.results, strict=True)
    ]


def take_slice(call: Call) -> str:
    """``x[..., start:end:step]``."""
    axis = int(call.arg(1, "dim", 0)) % call.rank()
    extent = call.type(0).shape[axis]
    start, stop = call.arg(2, "start"), call.arg(3, "end")
    start = _within(0 if start is None else start, extent)
    stop = _within(extent if stop is None else stop, extent)
    step = int(call.arg(4, "step", 1))
    if (start, stop, step) == (0, extent, 1):
        return call.tensor(0)
    return call.add(Slice(axis, start, stop, step), call.tensor(0))


def _within(end: Extent, extent: Extent) -> Extent:
    """An end of a slice, counted from the front and not past the axis."""
    if not isinstance(end, int):
        return end
    if end < 0:
        return extent + end
    return min(end, extent) if isinstance(extent, int) else (extent if end >= 2**31 else end)


def take_one(call: Call) -> str:
    """``x[..., i]``, without the axis."""
    axis = int(call.arg(1)) % call.rank()
    extent = call.type(0).shape[axis]
    start = _within(call.arg(2), extent)
    piece = call.add(Slice(axis, start, start + 1), call.tensor(0), last=False)
    return call.add(Reshape(call.shape), piece)


def expand(call: Call) -> str:
    """Axes of 1 repeated."""
    if call.type(0).shape == call.shape:
        return call.tensor(0)
    return call.add(Expand(call.shape), call.tensor(0))


def embedding(call: Call) -> str:
    """Rows of a table."""
    return call.add(Gather(0), call.tensor(0), call.tensor(1))


def index_select(call: Call) -> str:
    """Rows along an axis."""
    return call.add(Gather(int(call.arg(1)) % call.rank()), call.tensor(0), call.tensor(2))


def take_index(call: Call) -> str:
    """``x[:, indices]`` with one tensor of indices."""
    indices = call.arg(1)
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1:
        raise ModelImportError(
            "indexing by several tensors", at=call.name, hint="gather along one axis at a time"
        )
    axis, index = given[0]
    return call.add(Gather(axis, from_end=True), call.tensor(0), call.value(index))


def repeat(call: Call) -> str:
    """``repeat_interleave`` by a number: each index of an axis several times in a row."""
    axis = int(call.arg(2, "dim", 0)) % call.rank()
    times = int(call.arg(1))
    shape = call.type(0).shape
    opened = call.add(
        Reshape((*shape[: axis + 1], 1, *shape[axis + 1 :])), call.tensor(0), last=False
    )
    wide = call.add(Expand((*shape[: axis + 1], times, *shape[axis + 1 :])), opened, last=False)
    return call.add(Reshape(call.shape), wide)
