"""Constants of a graph: plain arrays, and weights in a low-bit type."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ladder.errors import GraphError
from ladder.graph.tensor import Array, TensorType, dtype_name
from ladder.ttype import GroupedType, Quantized


@dataclass(frozen=True, eq=False)
class Constant:
    """A named tensor that does not change from call to call.

    Large weights are not copied: an array is held as a read-only view of what the importer found, and whoever writes to
    the original afterwards changes the graph.

    Attributes:
        name: as the model calls it.
        value: an array in a dtype of :data:`~ladder.graph.tensor.DTYPES`, or a quantised weight [N, K].
        sources: names of the model's weights that it was quantised from, one below the other; empty where the model holds it.
    """

    name: str
    value: Array | Quantized
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.value, Quantized):
            return
        view = np.asarray(self.value).view()
        view.flags.writeable = False
        object.__setattr__(self, "value", view)

    @cached_property
    def type(self) -> TensorType:
        """Shape and type."""
        if isinstance(self.value, Quantized):
            return TensorType(self.value.shape, self.value.type.name, self.value.type)
        return TensorType(self.value.shape, dtype_name(self.value.dtype))

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in its own type."""
        return self.value.nbytes

    def values(self) -> Array:
        """What it means: float64 for real numbers, int64 for integers, bool for truths."""
        if isinstance(self.value, Quantized):
            return self.value.dequantize()
        if self.value.dtype == np.bool_:
            return self.value
        name = self.type.dtype
        return self.value.astype(np.float64 if _is_real(name) else np.int64)

    def renamed(self, name: str) -> Constant:
        """The same under another name."""
        return Constant(name, self.value, self.sources)

    def __eq__(self, other: object) -> bool:
        """Same name, type and bits."""
        if not isinstance(other, Constant):
            return NotImplemented
        if self is other:
            return True
        return (self.name, self.type) == (other.name, other.type) and _same(self.value, other.value)

    def __hash__(self) -> int:
        return hash((self.name, self.type))

    def __repr__(self) -> str:
        return f"Constant({self.name}: {self.type})"


def _is_real(name: str) -> bool:
    return "float" in name or name.startswith("fp8")


def _same(one: Array | Quantized, other: Array | Quantized) -> bool:
    if isinstance(one, Quantized) or isinstance(other, Quantized):
        return bool(one == other)
    return one is other or one.tobytes() == other.tobytes()


def transposed(weight: Quantized) -> Quantized:
    """A quantised weight with its axes exchanged: codes, scales and zeros alike, groups turned with them.

    >>> transposed(q).dequantize() == q.dequantize().T  # doctest: +SKIP
    """
    rows, columns = weight.type.group
    wt = weight.type
    turned = GroupedType(wt.element, (columns, rows), wt.scale, wt.zero, wt.second)
    return Quantized(
        turned if wt.scale is not None else wt,
        weight.codes.T,
        None if weight.scales is None else weight.scales.T,
        None if weight.zeros is None else weight.zeros.T,
        weight.global_scale,
    )


def stacked(weights: list[Quantized]) -> Quantized | None:
    """Weights of one type and K, one below the other; None where a group would span two of them.

    Raises:
        GraphError: there is none.
    """
    if not weights:
        raise GraphError("no weights to stack", at="stacked", hint="give one or more")
    wt = weights[0].type
    rows = wt.group[0]
    fits = all(
        w.type == wt and w.shape[1] == weights[0].shape[1] and (wt.scale is None or rows == 1)
        for w in weights
    )
    if not fits or wt.second is not None:
        return None

    def joined(part: str) -> Any:
        arrays = [getattr(w, part) for w in weights]
        return None if arrays[0] is None else np.concatenate(arrays)

    return Quantized(wt, joined("codes"), joined("scales"), joined("zeros"))
