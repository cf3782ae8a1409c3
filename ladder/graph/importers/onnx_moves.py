"""Converters of ONNX operators that move elements: reshapes, transposes, pieces, joins, gathers."""

from __future__ import annotations

import numpy as np

from ladder.errors import ModelImportError
from ladder.graph.extent import Extent, Shape, broadcast, divided, product
from ladder.graph.importers.onnx_call import Call
from ladder.graph.operators import Concat, Expand, Gather, Range, Reshape, Slice, Transpose


def reshape(call: Call) -> str:
    """A shape with 0 for "as it was" (unless allowzero) and one -1 for "what is left"."""
    source = call.type(0)
    wanted = list(call.integers(1) or ())
    if not call.attributes.get("allowzero", 0):
        wanted = [source.shape[i] if extent == 0 else extent for i, extent in enumerate(wanted)]
    if -1 in wanted:
        place = wanted.index(-1)
        left = divided(source.elements, product(e for i, e in enumerate(wanted) if i != place))
        if left is None:
            raise ModelImportError(
                f"{source} has no -1 in {wanted}", at=call.name, hint="extents have to divide"
            )
        wanted[place] = left
    return call.add(Reshape(tuple(wanted)), call.tensor(0))


def transpose(call: Call) -> str:
    """``perm``, or all axes in reverse."""
    order = call.attributes.get("perm", tuple(reversed(range(call.rank()))))
    return call.add(Transpose(tuple(int(i) for i in order)), call.tensor(0))


def concat(call: Call) -> str:
    """All inputs along an axis."""
    names = call.tensors()
    axis = call.from_front(call.number("axis"), call.values.draft.type(names[0]).rank)
    return call.add(Concat(axis), *names)


def slices(call: Call) -> str:
    """Starts, ends, axes and steps as inputs; one node to each axis."""
    starts, ends = call.integers(1) or (), call.integers(2) or ()
    rank = call.rank()
    axes = call.integers(3) or tuple(range(len(starts)))
    steps = call.integers(4) or (1,) * len(starts)
    made = call.tensor(0)
    for place, (start, end, axis, step) in enumerate(zip(starts, ends, axes, steps, strict=True)):
        if not isinstance(axis, int) or not isinstance(step, int) or step < 1:
            raise ModelImportError(
                f"a slice by steps of {step}", at=call.name, hint="steps are 1 or more"
            )
        place_of_axis = call.from_front(axis, rank)
        extent = call.values.draft.type(made).shape[place_of_axis]
        op = Slice(place_of_axis, _within(start, extent), _within(end, extent), step)
        made = call.add(op, made, last=place == len(starts) - 1)
    return made


def _within(end: Extent, extent: Extent) -> Extent:
    """An end of a slice counted from the front, and not past the axis."""
    if not isinstance(end, int):
        return end
    if end < 0:
        return max(0, extent + end) if isinstance(extent, int) else extent + end
    if isinstance(extent, int):
        return min(end, extent)
    return extent if end >= 2**31 - 1 else end


def split(call: Call) -> list[str]:
    """Pieces of given sizes, or as many equal ones as there are outputs."""
    axis = call.axis(0)
    extent = call.type(0).shape[axis]
    sizes = call.integers(1, "split")
    if sizes is None:
        count = int(call.attributes.get("num_outputs", len(call.outputs)))
        piece = divided(extent, count)
        if piece is None:
            if not isinstance(extent, int):
                raise ModelImportError(
                    f"{extent} in {count} pieces", at=call.name, hint="give the sizes"
                )
            piece = -(-extent // count)  # the last piece is the smaller one
        sizes = (piece,) * (count - 1) + (extent - piece * (count - 1),)
    start: Extent = 0
    made = []
    for size, output in zip(sizes, call.outputs, strict=True):
        op = Slice(axis, start, start + size)
        made.append(call.values.draft.add(op, [call.tensor(0)], call.name, output))
        start = start + size
    if isinstance(start, int) and isinstance(extent, int) and start != extent:
        raise ModelImportError(
            f"pieces of {start} from {extent}", at=call.name, hint="sizes add up to the axis"
        )
    return made


def squeeze(call: Call) -> str:
    """Axes of 1 away: the named ones, or all."""
    shape = call.type(0).shape
    axes = call.integers(1, "axes")
    named = (
        {i for i, extent in enumerate(shape) if extent == 1}
        if axes is None
        else {call.from_front(a, len(shape)) for a in axes if isinstance(a, int)}
    )
    kept = tuple(extent for i, extent in enumerate(shape) if i not in named)
    return call.add(Reshape(kept), call.tensor(0))


def unsqueeze(call: Call) -> str:
    """Axes of 1 at given places of the result."""
    shape = list(call.type(0).shape)
    axes = [int(a) for a in call.integers(1, "axes") or () if isinstance(a, int)]
    rank = len(shape) + len(axes)
    for axis in sorted(call.from_front(a, rank) for a in axes):
        shape.insert(axis, 1)
    return call.add(Reshape(tuple(shape)), call.tensor(0))


def expand(call: Call) -> str:
    """Both ways: the result is the broadcast of the shape and the tensor."""
    shape: Shape = broadcast([call.type(0).shape, tuple(call.integers(1) or ())], call.name)
    if shape == call.type(0).shape:
        return call.tensor(0)
    return call.add(Expand(shape), call.tensor(0))


def gather(call: Call) -> str:
    """Rows along an axis; a constant index that is one number is a slice without its axis."""
    axis = call.axis(0)
    index = call.values.integers(call.inputs[1])
    if isinstance(index, int):
        shape = call.type(0).shape
        start = index if index >= 0 else shape[axis] + index
        piece = call.add(Slice(axis, start, start + 1), call.tensor(0), last=False)
        return call.add(Reshape((*shape[:axis], *shape[axis + 1 :])), piece)
    return call.add(Gather(axis, from_end=True), call.tensor(0), call.tensor(1))


def filled(call: Call) -> str:
    """ConstantOfShape."""
    value = np.asarray(call.attributes.get("value", np.zeros(1, np.float32))).reshape(())
    constant = call.values.draft.constant(f"{call.name}.value", value)
    shape = tuple(call.integers(0) or ())
    return call.add(Expand(shape), constant) if shape else constant


def counted(call: Call) -> str:
    """Range with ends that are known."""
    ends = [call.integers(place) for place in range(3)]
    start, stop, step = (one[0] if one else 0 for one in ends)
    if not isinstance(step, int):
        raise ModelImportError("a symbolic step", at=call.name, hint="make it a constant")
    count = divided(stop - start, step)
    if count is None:
        raise ModelImportError(
            f"range from {start} to {stop} by {step}", at=call.name, hint="steps have to divide"
        )
    return call.add(Range(count, start, step))


def into_heads(call: Call, name: str, heads: int) -> str:
    """[B, S, H*D] -> [B, H, S, D]."""
    b, s, width = call.values.draft.type(name).shape
    size = divided(width, heads)
    if size is None:
        raise ModelImportError(f"{width} over {heads} heads", at=call.name, hint="heads divide it")
    split_up = call.add(Reshape((b, s, heads, size)), name, last=False)
    return call.add(Transpose((0, 2, 1, 3)), split_up, last=False)


def out_of_heads(call: Call, name: str) -> str:
    """[B, H, S, D] -> [B, S, H*D]."""
    b, heads, s, size = call.values.draft.type(name).shape
    turned = call.add(Transpose((0, 2, 1, 3)), name, last=False)
    return call.add(Reshape((b, s, heads * size)), turned)


def angles(call: Call, place: int) -> str:
    """cos or sin of each token as [B, 1, S, D/2], from caches [B, S, D/2] or tables by position."""
    cache = call.tensor(place)
    if call.has(3):
        cache = call.add(Gather(0, from_end=True), cache, call.tensor(3), last=False)
    shape = call.values.draft.type(cache).shape
    return call.add(Reshape((*shape[:-2], 1, *shape[-2:])), cache, last=False)
