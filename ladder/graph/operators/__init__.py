"""Operators of graphs: frozen values with shape inference and a float64 meaning."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ladder.graph.epilogue import (
    Activated,
    AddResidual,
    Biased,
    Coded,
    EpilogueStep,
    Gated,
    Scaled,
)
from ladder.graph.functions import ACTIVATIONS, FUNCTIONS
from ladder.graph.operators.attention import Attention, Rotary
from ladder.graph.operators.base import Operator
from ladder.graph.operators.elementwise import PAIRS, Binary, Cast, Unary, Where
from ladder.graph.operators.foreign import Foreign
from ladder.graph.operators.linear import Linear, MatrixProduct
from ladder.graph.operators.norm import LayerNorm, Reduce, RMSNorm, Softmax
from ladder.graph.operators.quantize import (
    ROW_TARGETS,
    Dequantize,
    Quantize,
    QuantizedRows,
    QuantizeTokens,
)
from ladder.graph.operators.shape import (
    Concat,
    Expand,
    Extents,
    Gather,
    Range,
    Reshape,
    Slice,
    Transpose,
)

#: all operators, by kind
OPERATORS: Mapping[str, type[Operator]] = MappingProxyType(
    {
        cls.kind: cls
        for cls in (
            *(Linear, MatrixProduct, Attention, Rotary, Softmax, LayerNorm, RMSNorm, Reduce),
            *(Unary, Binary, Where, Cast, Quantize, Dequantize, QuantizeTokens),
            *(Reshape, Transpose, Concat, Slice, Expand, Gather, Extents, Range, Foreign),
        )
    }
)

#: all steps of epilogues
STEPS: tuple[type[EpilogueStep], ...] = (
    Biased,
    Scaled,
    Activated,
    Gated,
    AddResidual,
    QuantizedRows,
    Coded,
)

__all__ = [
    "ACTIVATIONS",
    "FUNCTIONS",
    "OPERATORS",
    "PAIRS",
    "ROW_TARGETS",
    "STEPS",
    "Activated",
    "AddResidual",
    "Attention",
    "Biased",
    "Binary",
    "Cast",
    "Coded",
    "Concat",
    "Dequantize",
    "EpilogueStep",
    "Expand",
    "Extents",
    "Foreign",
    "Gated",
    "Gather",
    "LayerNorm",
    "Linear",
    "MatrixProduct",
    "Operator",
    "Quantize",
    "QuantizeTokens",
    "QuantizedRows",
    "RMSNorm",
    "Range",
    "Reduce",
    "Reshape",
    "Rotary",
    "Scaled",
    "Slice",
    "Softmax",
    "Transpose",
    "Unary",
    "Where",
]
