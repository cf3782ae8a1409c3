"""Operators that move elements and change no value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ladder.errors import GraphError, ShapeError
from ladder.graph.extent import Extent, Shape, Sizes, product, same, shape_of, value_of
from ladder.graph.operators.base import Operator, axis_of
from ladder.graph.tensor import Array, TensorType


@dataclass(frozen=True)
class Reshape(Operator):
    """The same elements in the same order under other axes."""

    shape: Shape
    kind: ClassVar[str] = "reshape"

    def infer(self, *given: TensorType) -> TensorType:
        """The new shape."""
        if product(self.shape) != given[0].elements:
            raise ShapeError(
                f"{given[0]} has other elements than [{', '.join(map(str, self.shape))}]",
                at=self.kind,
                hint="a reshape keeps the number of elements",
            )
        return given[0].with_(shape=self.shape)

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:
        """NumPy's reshape."""
        return given[0].reshape(shape_of(self.shape, sizes))


@dataclass(frozen=True)
class Transpose(Operator):
    """Axes in another order: axis i of the result is axis ``order[i]`` of the input."""

    order: tuple[int, ...]
    kind: ClassVar[str] = "transpose"

    def infer(self, *given: TensorType) -> TensorType:
        """The axes in their new order."""
        if sorted(self.order) != list(range(given[0].rank)):
            raise ShapeError(
                f"{list(self.order)} is no order of the axes of {given[0]}",
                at=self.kind,
                hint="name each axis once",
            )
        return given[0].with_(shape=tuple(given[0].shape[i] for i in self.order))

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """NumPy's transpose."""
        result: Array = given[0].transpose(self.order)
        return result


@dataclass(frozen=True)
class Concat(Operator):
    """Tensors one after the other along an axis."""

    axis: int
    kind: ClassVar[str] = "concat"
    arity: ClassVar[tuple[int, int]] = (1, 2**31)

    def infer(self, *given: TensorType) -> TensorType:
        """The sum of the extents along the axis."""
        first = given[0]
        axis = axis_of(self.axis, first.rank, self)
        total: Extent = 0
        for one in given:
            if one.rank != first.rank:
                raise ShapeError(f"{one} beside {first}", at=self, hint="ranks have to agree")
            for i, extent in enumerate(one.shape):
                if i != axis:
                    same(extent, first.shape[i], f"axis {i}", self)
            total = total + one.shape[axis]
        shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
        return first.with_(shape=shape)

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """NumPy's concatenate."""
        return np.concatenate(given, axis=self.axis)


@dataclass(frozen=True)
class Slice(Operator):
    """Elements ``start, start + step, ... < stop`` along an axis; both ends lie within the axis."""

    axis: int
    start: Extent
    stop: Extent
    step: int = 1
    kind: ClassVar[str] = "slice"

    def infer(self, *given: TensorType) -> TensorType:
        """The taken elements along the axis."""
        x = given[0]
        axis = axis_of(self.axis, x.rank, self)
        taken = self.stop - self.start
        if isinstance(taken, int):
            taken = max(0, -(-taken // self.step))
        elif self.step != 1:
            raise ShapeError(
                f"{taken} elements in steps of {self.step}",
                at=self.brief,
                hint="a symbolic axis is taken in steps of 1",
            )
        return x.with_(shape=(*x.shape[:axis], taken, *x.shape[axis + 1 :]))

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:
        """NumPy's slice."""
        place: list[slice] = [slice(None)] * given[0].ndim
        place[self.axis] = slice(value_of(self.start, sizes), value_of(self.stop, sizes), self.step)
        return given[0][tuple(place)]


@dataclass(frozen=True)
class Expand(Operator):
    """Axes of extent 1 repeated to a shape, new ones in front."""

    shape: Shape
    kind: ClassVar[str] = "expand"

    def infer(self, *given: TensorType) -> TensorType:
        """The shape."""
        x = given[0]
        ends = zip(reversed(x.shape), reversed(self.shape), strict=False)
        if x.rank > len(self.shape) or any(mine not in (1, wanted) for mine, wanted in ends):
            raise ShapeError(
                f"{x} does not spread to [{', '.join(map(str, self.shape))}]",
                at=self.kind,
                hint="only extents of 1 repeat",
            )
        return x.with_(shape=self.shape)

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:
        """NumPy's broadcast."""
        return np.broadcast_to(given[0], shape_of(self.shape, sizes))


@dataclass(frozen=True)
class Gather(Operator):
    """Rows of the first input along an axis, by the indices of the second (an embedding: axis 0 of the table).

    Indices lie in ``0 .. size - 1``, as torch.embedding and torch.index_select take them.

    Attributes:
        axis: of the first input.
        from_end: whether ``-size .. -1`` are indices too, counted from the end, as for ``x[i]`` in torch and Gather in ONNX.
    """

    axis: int = 0
    from_end: bool = False
    kind: ClassVar[str] = "gather"
    arity: ClassVar[tuple[int, int]] = (2, 2)

    def infer(self, *given: TensorType) -> TensorType:
        """The indices' axes in place of the gathered one."""
        data, indices = given
        axis = axis_of(self.axis, data.rank, self)
        shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
        return TensorType(shape, "float32" if data.weight is not None else data.element)

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """NumPy's take.

        Raises:
            GraphError: an index is out of range.
        """
        data, indices = given[0], given[1].astype(np.int64)
        if indices.size:
            self.check(data.shape[self.axis], int(indices.min()), int(indices.max()))
        return np.take(data, indices, axis=self.axis)

    def check(self, size: int, least: int, most: int) -> None:
        """Refuse indices out of range.

        Args:
            size: of the gathered axis.
            least: of all indices.
            most: of all indices.

        Raises:
            GraphError: one is.
        """
        first = -size if self.from_end else 0
        if least < first or most >= size:
            raise GraphError(
                f"index {least if least < first else most} into an axis of {size}",
                at=self,
                hint=f"indices go from {first} to {size - 1}",
            )


@dataclass(frozen=True)
class Extents(Operator):
    """The number of elements along an axis, or a sum of such: a shape that a model computes with."""

    value: Extent
    kind: ClassVar[str] = "extent"
    arity: ClassVar[tuple[int, int]] = (0, 0)

    def infer(self, *given: TensorType) -> TensorType:  # noqa: ARG002
        """One integer."""
        return TensorType((), "int64")

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """The number."""
        return np.asarray(value_of(self.value, sizes))


@dataclass(frozen=True)
class Range(Operator):
    """``start, start + step, ...``: as many integers as the extent says."""

    count: Extent
    start: Extent = 0
    step: int = 1
    kind: ClassVar[str] = "range"
    arity: ClassVar[tuple[int, int]] = (0, 0)

    def infer(self, *given: TensorType) -> TensorType:  # noqa: ARG002
        """Integers."""
        return TensorType((self.count,), "int64")

    def evaluate(self, *given: Array, sizes: Sizes) -> Array:  # noqa: ARG002
        """NumPy's arange."""
        return value_of(self.start, sizes) + self.step * np.arange(value_of(self.count, sizes))
