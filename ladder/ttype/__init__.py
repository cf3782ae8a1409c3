"""Types: what the codes of a low-bit number format mean, alone and in groups.

Read in this order: ``encoding`` (writing a table down), ``element`` (:class:`TType`, the table itself),
``group`` (shared scales and zeros), ``quantized`` and ``quantize`` (arrays), ``lossless`` (what a compute
type can hold).
"""

from __future__ import annotations

from ladder.registry import types
from ladder.ttype.compute import (
    COMPUTE_TYPES,
    ComputeType,
    bfloat16,
    float16,
    float32,
    int4,
    int8,
    uint4,
)
from ladder.ttype.dense import DENSE, Dense
from ladder.ttype.element import TType
from ladder.ttype.encoding import (
    Bipolar,
    Codebook,
    Encoding,
    Float,
    Integer,
    Offset,
    PowerOfTwo,
    SignMagnitude,
    Ternary,
)
from ladder.ttype.group import CHANNEL, TENSOR, Granularity, Group, GroupedType, Zero
from ladder.ttype.lossless import (
    Exact,
    Example,
    Losslessness,
    MayOverflow,
    Rounds,
    losslessness,
)
from ladder.ttype.quantize import quantize
from ladder.ttype.quantized import Quantized
from ladder.ttype.resolve import compute_type, element_type, weight_type
from ladder.ttype.scale import SCALE_TYPES, ScaleType, scale_type

__all__ = [
    "CHANNEL",
    "COMPUTE_TYPES",
    "DENSE",
    "SCALE_TYPES",
    "TENSOR",
    "Bipolar",
    "Codebook",
    "ComputeType",
    "Dense",
    "Encoding",
    "Exact",
    "Example",
    "Float",
    "Granularity",
    "Group",
    "GroupedType",
    "Integer",
    "Losslessness",
    "MayOverflow",
    "Offset",
    "PowerOfTwo",
    "Quantized",
    "Rounds",
    "ScaleType",
    "SignMagnitude",
    "TType",
    "Ternary",
    "Zero",
    "bfloat16",
    "compute_type",
    "element_type",
    "float16",
    "float32",
    "int4",
    "int8",
    "losslessness",
    "quantize",
    "scale_type",
    "types",
    "uint4",
    "weight_type",
]
