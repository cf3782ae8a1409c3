"""What operators ask of the memory that they read and write, as a table, and what it costs to ask for more.

Times are in microseconds. A kernel that reads or writes a tensor in runs of at least 32 bytes (a sector of the L2 cache) moves
it at the rate of memory; in shorter runs it stages tiles in shared memory, which is priced as one more pass over the tensor.
A conversion is a kernel of its own: a launch, one pass to read and one to write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from ladder.graph.extent import Shape, Sizes, product, value_of
from ladder.graph.layouts.arrangement import Arrangement, blocked
from ladder.graph.operators import (
    Attention,
    Binary,
    Cast,
    Concat,
    Dequantize,
    Expand,
    Extents,
    Foreign,
    Gather,
    LayerNorm,
    Linear,
    MatrixProduct,
    Operator,
    Quantize,
    QuantizeTokens,
    Range,
    Reduce,
    Reshape,
    RMSNorm,
    Rotary,
    Slice,
    Softmax,
    Transpose,
    Unary,
    Where,
)
from ladder.graph.tensor import TensorType
from ladder.ttile.layout import Layout

#: bytes of a sector: the least that memory moves at its full rate
SECTOR_BYTES = 32

#: of equal costs the plainer layout wins: what a layout that is not row-major adds, as a part of a pass
PLAIN = 1e-3


class Rates(Protocol):
    """What propagation asks of a device; devices of :mod:`ladder.ttile` have it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def dram_bytes_per_second(self) -> float:
        """Rate of memory."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What moving costs on a device, for one size of the graph's symbols.

    Attributes:
        bytes_per_us: rate of memory.
        launch_us: one more kernel.
        sizes: what symbols are taken as.
    """

    bytes_per_us: float
    launch_us: float
    sizes: Sizes

    def nbytes(self, tensor: TensorType) -> float:
        """Bytes of a tensor."""
        return value_of(product(tensor.shape), self.sizes) * tensor.bits / 8

    def passing(self, tensor: TensorType) -> float:
        """Microseconds of one pass over a tensor."""
        return self.nbytes(tensor) / self.bytes_per_us

    def conversion(self, tensor: TensorType) -> float:
        """Microseconds of a kernel that only moves a tensor."""
        return self.launch_us + 2 * self.passing(tensor)

    def run_bytes(self, tensor: TensorType, arrangement: Arrangement) -> float:
        """Bytes that lie in a row in memory and in the tensor's innermost piece."""
        run = value_of(arrangement.innermost[1], self.sizes)
        if arrangement.swizzle is not None:
            run = min(run, _fixed_run(arrangement.swizzle))
        return run * tensor.bits / 8


def _fixed_run(swizzle: Layout) -> int:
    """Elements at the low end that a swizzle keeps together."""
    run = 1
    for bit, image in enumerate(swizzle.basis):
        if image != 1 << bit:
            break
        run *= 2
    return run


@dataclass(frozen=True, slots=True)
class Contiguous:
    """The reduced axis lies in consecutive elements; other axes anyhow, as strides."""

    def accepts(self, arrangement: Arrangement) -> bool:
        """Whether an operand lies so."""
        return arrangement.whole_innermost(-1)

    def of(self, shape: Shape) -> Arrangement | None:  # noqa: ARG002
        """The one arrangement that is asked for; None: several are."""
        return None


@dataclass(frozen=True, slots=True)
class Blocked:
    """Tiles of rows x columns lie one after the other, their elements perhaps swizzled: what a tile load wants.

    A tensor whose extents do not divide is read contiguous.
    """

    rows: int
    columns: int
    swizzle: Layout | None = None

    def accepts(self, arrangement: Arrangement) -> bool:
        """Whether an operand lies so."""
        wanted = self.of(arrangement.shape)
        return arrangement.whole_innermost(-1) if wanted is None else arrangement == wanted

    def of(self, shape: Shape) -> Arrangement | None:
        """The arrangement of a tensor, None where tiles do not divide it."""
        return blocked(shape, self.rows, self.columns, self.swizzle)


#: how kernels read the x of a linear layer
Reading = Contiguous | Blocked


@dataclass(frozen=True, slots=True)
class Access:
    """How an operator reads and writes.

    Attributes:
        innermost: per operand, the axes of which one has to lie uncut in consecutive elements; None for any layout. The
            last entry stands for all operands after it.
        out: the same of the result.
        rows: result and first operand share the arrangement of their leading axes, or the kernel writes scattered.
        alike: operands of the result's shape are read beside it: another layout than the result's costs a pass.
        plain: row-major only, on both sides.
    """

    innermost: tuple[tuple[int, ...] | None, ...] = (None,)
    out: tuple[int, ...] | None = None
    rows: bool = False
    alike: bool = False
    plain: bool = False

    def of(self, place: int) -> tuple[int, ...] | None:
        """The axes that are asked for of an operand."""
        return self.innermost[min(place, len(self.innermost) - 1)]


_LAST = (-1,)
_POINTWISE = Access(alike=True)
_ROWS = Access(innermost=(_LAST, None), rows=True)

#: class of operator -> its access; views (reshape, transpose, slice, concat) have rules of their own
ACCESS: Mapping[type[Operator], Access] = MappingProxyType(
    {
        Linear: Access(innermost=(None, None), rows=True, alike=True),
        # a library reads and writes matrices either way round
        MatrixProduct: Access(innermost=((-1, -2),), out=(-1, -2)),
        Attention: Access(innermost=(_LAST, _LAST, _LAST, None), out=_LAST),
        **dict.fromkeys((LayerNorm, RMSNorm, QuantizeTokens, Softmax, Reduce), _ROWS),
        **dict.fromkeys((Unary, Binary, Where, Cast, Rotary, Quantize, Dequantize), _POINTWISE),
        Gather: Access(innermost=(_LAST, None), out=_LAST),
        Expand: Access(),
        **dict.fromkeys((Extents, Range, Foreign), Access(plain=True)),
    }
)

#: operators whose result may be the operand's memory under another arrangement
VIEWS = (Reshape, Transpose, Slice)
__all__ = [
    "ACCESS",
    "VIEWS",
    "Access",
    "Blocked",
    "Concat",
    "Contiguous",
    "Prices",
    "Rates",
    "Reading",
]
