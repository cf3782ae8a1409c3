"""The number formats that are shipped, one row each; written with the public API alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ladder.ttype import (
    Bipolar,
    ComputeType,
    Float,
    GroupedType,
    Integer,
    Offset,
    PowerOfTwo,
    SignMagnitude,
    Ternary,
    TType,
    bfloat16,
    float16,
    float32,
)

WIDTHS = range(1, 9)

#: QLoRA's 4-bit NormalFloat (Dettmers et al. 2023, appendix E): float32 quantiles of a normal
#: distribution, scaled to [-1, 1]
NF4_VALUES = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)

#: the same construction with 8 values, as published for AFPQ (Zhang et al. 2023), in float32
NF3_VALUES = (
    -1.0,
    -0.5350227355957031,
    -0.24693140387535095,
    0.0,
    0.1833375245332718,
    0.38199394941329956,
    0.6229856610298157,
    1.0,
)

INTEGERS: tuple[TType, ...] = (
    *(TType(f"int{b}", b, encoding=Integer(b, signed=True)) for b in WIDTHS),
    *(TType(f"uint{b}", b, encoding=Integer(b, signed=False)) for b in WIDTHS),
    *(TType(f"offset{b}", b, encoding=Offset(b)) for b in WIDTHS),
    *(TType(f"signmag{b}", b, encoding=SignMagnitude(b)) for b in WIDTHS),
    *(TType(f"bipolar{b}", b, encoding=Bipolar(b)) for b in WIDTHS),
    TType("ternary", 2, encoding=Ternary()),
)

# Biases and special codes: OCP Microscaling Formats v1.0, section 5.3; OCP FP8 v1.0, section 5.
FP4_E2M1 = TType("fp4_e2m1", 4, encoding=Float(exponent=2, mantissa=1, bias=1))
FP6_E2M3 = TType("fp6_e2m3", 6, encoding=Float(exponent=2, mantissa=3, bias=1))
FP6_E3M2 = TType("fp6_e3m2", 6, encoding=Float(exponent=3, mantissa=2, bias=3))
FP8_E4M3FN = TType("fp8_e4m3fn", 8, encoding=Float(exponent=4, mantissa=3, bias=7, specials="fn"))
FP8_E5M2 = TType("fp8_e5m2", 8, encoding=Float(exponent=5, mantissa=2, bias=15, specials="ieee"))

ELEMENTS: tuple[TType, ...] = (
    *INTEGERS,
    FP4_E2M1,
    FP6_E2M3,
    FP6_E3M2,
    FP8_E4M3FN,
    FP8_E5M2,
    TType("e8m0", 8, encoding=PowerOfTwo()),
    TType("nf4", 4, values=NF4_VALUES),
    TType("nf3", 3, values=NF3_VALUES),
)

GROUPED: tuple[GroupedType, ...] = (
    GroupedType(FP8_E4M3FN, (1, 32), "e8m0", label="mxfp8"),
    GroupedType(FP6_E3M2, (1, 32), "e8m0", label="mxfp6"),
    GroupedType(FP4_E2M1, (1, 32), "e8m0", label="mxfp4"),
    GroupedType(FP4_E2M1, (1, 16), "fp8_e4m3fn", second="float32", label="nvfp4"),
)

#: compute types of 8 bits have no row: "int8" names the element, and ladder.ttype.compute_type knows both
COMPUTE: tuple[ComputeType, ...] = (float16, bfloat16, float32)

TYPES: tuple[TType | GroupedType | ComputeType, ...] = (*ELEMENTS, *GROUPED, *COMPUTE)

#: other names in use -> name; ml_dtypes' first (int2, int4, bfloat16 and the like are the same here)
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "float4_e2m1fn": "fp4_e2m1",
        "float6_e2m3fn": "fp6_e2m3",
        "float6_e3m2fn": "fp6_e3m2",
        "float8_e4m3fn": "fp8_e4m3fn",
        "float8_e5m2": "fp8_e5m2",
        "float8_e8m0fnu": "e8m0",
        "fp16": "float16",
        "bf16": "bfloat16",
        "fp32": "float32",
    }
)
