"""The bars of the suites, as data: what is asked of which rows. :mod:`benchmarks.verdicts` says how rows are judged.

Microseconds are those of the GPU on which the bars were found; on another one they scale by the pure-read floor that the
same run measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from benchmarks.grid import (
    DOWN,
    EPILOGUE_TOKENS,
    GATE_AND_UP,
    MIDDLE,
    SQUARE,
    TALL,
    WIDE,
    Shape,
)
from benchmarks.verdicts import (
    Bar,
    Pick,
    against,
    share,
    step,
    time_of,
    time_of_larger,
    time_us,
)

CUBLAS, HUMMING = against("cublas_fp16"), against("humming")
#: 33 MB of 4-bit weights and more
LARGE = (SQUARE, TALL, WIDE)
SMALL: Shape = (1024, 8192)
DECODE_SHAPES = (TALL, WIDE, SQUARE, *MIDDLE, SMALL)
PREFILL_SHAPES = (SQUARE, TALL, WIDE, *MIDDLE)
PREFILL_TOKENS = (128, 256, 512, 1024, 2048, 4096)
FORMAT_SHAPES = (SQUARE, TALL)


# -- base -----------------------------------------------------------------------------------------------------


def _base() -> Iterator[Bar]:
    rows: tuple[tuple[int, tuple[Shape, ...], float], ...] = (
        (1, (SQUARE, WIDE), 2.5),
        (16, (SQUARE, WIDE), 2.0),
        (256, ((4096, 4096), SQUARE, WIDE), 0.6),
    )
    for m, shapes, least in rows:
        yield Bar(
            "B4", f"int4 M={m}: x cuBLAS float16", Pick(("int4",), shapes, (m,)), CUBLAS, least
        )


# -- decode ---------------------------------------------------------------------------------------------------

#: M = 1: (N, K) -> microseconds of a programmatic launch, and of a plain one in the study
ONE_TOKEN: tuple[tuple[Shape, float, float], ...] = (
    (TALL, 31.2, 32.57),
    (WIDE, 31.2, 32.62),
    (SQUARE, 10.4, 11.80),
    ((14336, 4096), 9.6, 11.07),
    ((4096, 14336), 9.7, 10.81),
    ((4096, 4096), 3.2, 4.96),
    (SMALL, 3.9, 4.69),
)
#: a plain launch may be slower than the study's by this part
PLAIN_SLACK = 1.06

#: M -> microseconds of the better launch at (8192, 8192) and (8192, 28672)
FEW_TOKENS = ((8, 11.6, 35.5), (16, 14.0, 42.0), (32, 16.5, 50.0), (64, 18.2, 56.0))

#: weights -> least speed against humming-kernels at M = 1, 16, 64
DECODE_HUMMING = (
    (("int4_sym", "int4", "int3", "int2", "mxfp4"), (1.25, 1.1, 1.3)),
    (("int8", "fp8_e4m3fn"), (1.1, 1.0, 1.0)),
)

#: M = 1, programmatic launch: weights -> least part of the own bound at (28672, 8192)
SHARES = (
    (("int8", "fp8_e4m3fn"), 0.90),
    (("nf4_g128", "codebook4"), 0.82),
    (("codebook3",), 0.68),
    (("uint2",), 0.68),
    (("uint1",), 0.36),
)
#: and microseconds at (8192, 8192)
SQUARE_US = (("nf4_g128", 11.6), ("codebook3", 10.3), ("uint2", 7.9), ("uint1", 6.8))

#: floats -> the integer of the same bits whose time per byte they come near
INTEGER_OF = (
    ("fp4_e2m1", "int4_sym"),
    ("mxfp4", "int4_sym"),
    ("nvfp4", "int4_sym"),
    ("fp6_e3m2", "int6"),
    ("fp8_e5m2", "int8"),
)
TOKENS = (1, 16, 64)


def _times() -> Iterator[Bar]:
    for shape, pdl, plain in ONE_TOKEN:
        name = "x".join(map(str, shape))
        one = Pick(("int4",), (shape,), (1,), launch="pdl")
        yield Bar("B1", f"int4 {name} M=1 pdl: us", one, time_us, pdl, at_most=True)
        one = Pick(("int4",), (shape,), (1,))
        limit = round(PLAIN_SLACK * plain, 2)
        yield Bar("B1", f"int4 {name} M=1 plain: us", one, time_us, limit, at_most=True)
    for m, *limits in FEW_TOKENS:
        for shape, limit in zip((SQUARE, WIDE), limits, strict=True):
            name = "x".join(map(str, shape))
            some = Pick(("int4",), (shape,), (m,), launch="best")
            what = f"int4 {name} M={m} better launch: us"
            yield Bar("B2", what, some, time_us, limit, at_most=True)


def _peers() -> Iterator[Bar]:
    for weights, limits in DECODE_HUMMING:
        for m, limit in zip(TOKENS, limits, strict=True):
            for weight in weights:
                shapes = DECODE_SHAPES if weight == "int4" else FORMAT_SHAPES
                yield Bar(
                    "B3",
                    f"{weight} M={m} plain: x humming",
                    Pick((weight,), shapes, (m,)),
                    HUMMING,
                    limit,
                    needed=False,
                )
    for m, limit in ((1, 3.0), (64, 1.9)):
        yield Bar(
            "B3",
            f"int4 M={m} plain, 33 MB and up: x cuBLAS float16",
            Pick(("int4",), LARGE, (m,)),
            CUBLAS,
            limit,
        )


def _formats() -> Iterator[Bar]:
    for weights, limit in SHARES:
        for weight in weights:
            one = Pick((weight,), (TALL,), (1,), launch="pdl")
            yield Bar("B4", f"{weight} 28672x8192 M=1 pdl: part of the bound", one, share, limit)
    for weight, limit in SQUARE_US:
        one = Pick((weight,), (SQUARE,), (1,), launch="pdl")
        yield Bar("B4", f"{weight} 8192x8192 M=1 pdl: us", one, time_us, limit, at_most=True)
    for weight, integer in INTEGER_OF:
        yield Bar(
            "B4",
            f"{weight} M=1 pdl: time a byte, x {integer}",
            Pick((weight,), FORMAT_SHAPES, (1,), launch="pdl"),
            time_of(explained=True, weight=integer),
            1.15,
            at_most=True,
        )


def _variants() -> Iterator[Bar]:
    for launch in ("plain", "pdl"):
        for weight in ("int4", "int8", "nf4_g128", "mxfp4"):
            yield Bar(
                "B5",
                f"{weight} bfloat16 {launch}: time, x float16",
                Pick((weight,), FORMAT_SHAPES, TOKENS, "bfloat16", launch),
                time_of(activation="float16"),
                1.06,
                at_most=True,
            )
        for weight in ("int4_g32", "int4_g64"):
            yield Bar(
                "B5",
                f"{weight} {launch}: time a byte, x groups of 128",
                Pick((weight,), FORMAT_SHAPES, TOKENS, launch=launch),
                time_of(explained=True, weight="int4"),
                1.10,
                at_most=True,
            )


# -- prefill ----------------------------------------------------------------------------------------------------

#: weights -> least speed against humming-kernels from M = 64 on
PREFILL_HUMMING = (
    ("int4", 1.15),
    ("int3", 1.15),
    ("int8", 1.15),
    ("fp8_e4m3fn", 1.15),
    ("int2", 1.08),
    ("mxfp4", 1.10),
)
NEAR_INT4 = ("int3", "int5", "fp6_e3m2", "nf4_g128", "codebook4")


def _prefill() -> Iterator[Bar]:
    grid = Pick(("int4",), PREFILL_SHAPES, PREFILL_TOKENS)
    yield Bar("B1", "int4: geometric mean, x cuBLAS float16", grid, CUBLAS, 1.03, mean=True)
    yield Bar("B1", "int4: every point, x cuBLAS float16", grid, CUBLAS, 0.96)
    some = Pick(("int4",), PREFILL_SHAPES, (256,))
    yield Bar("B1", "int4 M=256: every shape, x cuBLAS float16", some, CUBLAS, 1.03)
    for weight, limit in PREFILL_HUMMING:
        whole = weight == "int4"
        shapes = PREFILL_SHAPES if whole else (SQUARE,)
        tokens = (64, *PREFILL_TOKENS) if whole else (64, 256, 1024, 4096)
        many = Pick((weight,), shapes, tokens)
        yield Bar("B2", f"{weight} M >= 64: x humming", many, HUMMING, limit, needed=False)
    for weight in NEAR_INT4:
        yield Bar(
            "B6",
            f"{weight} M >= 1024: time, x int4",
            Pick((weight,), (SQUARE,), (1024, 4096)),
            time_of(weight="int4"),
            1.10,
            at_most=True,
        )


# -- prefill8 ---------------------------------------------------------------------------------------------------

#: weights, activations -> least speed against cuBLAS float16 from M = 1024 on
EIGHT_BITS = (
    ("int4_channel", "int8", 2.1),
    ("int8_channel", "int8", 1.95),
    ("fp4_e2m1_channel", "fp8_e4m3fn", 1.85),
    ("fp8_e4m3fn_channel", "fp8_e4m3fn", 1.85),
)


def _prefill8() -> Iterator[Bar]:
    for weight, activation, limit in EIGHT_BITS:
        yield Bar(
            "A8",
            f"{weight} {activation} M >= 1024: x cuBLAS float16",
            Pick((weight,), (SQUARE, TALL), (1024, 4096), activation),
            CUBLAS,
            limit,
        )
    for weight, limit in (("fp4_e2m1_channel", 1.1), ("fp8_e4m3fn_channel", 1.0)):
        yield Bar(
            "A8",
            f"{weight} fp8_e4m3fn M >= 256: x cuBLASLt fp8",
            Pick((weight,), (SQUARE, TALL), (256, 1024, 4096), "fp8_e4m3fn"),
            against("cublaslt_fp8"),
            limit,
        )
    for tokens, limit in (((64, 256), 1.0), ((1024, 4096), 1.05)):
        yield Bar(
            "A8",
            f"int4_channel int8 M = {', '.join(map(str, tokens))}: x humming",
            Pick(("int4_channel",), (SQUARE, TALL), tokens, "int8"),
            HUMMING,
            limit,
            needed=False,
        )


# -- sweep ------------------------------------------------------------------------------------------------------

FINE, COARSE = tuple(range(1, 65)), tuple(range(64, 513, 8))


def _sweep() -> Iterator[Bar]:
    every = tuple(dict.fromkeys((*FINE, *COARSE)))
    yield Bar(
        "decode B6, prefill B5",
        "no M slower than a larger one: time, x the least of larger M",
        Pick(("int4",), (SQUARE,), every, any_m=True),
        time_of_larger,
        1.10,
        at_most=True,
    )
    yield Bar(
        "prefill B5",
        "no cliff in M = 64 .. 512: time, x that of 8 tokens fewer",
        Pick(("int4",), (SQUARE,), COARSE, any_m=True),
        step(8),
        1.30,
        at_most=True,
    )


# -- epilogue ---------------------------------------------------------------------------------------------------

#: an epilogue takes no longer than this part of the product alone
EPILOGUE_PART = 1.05


def _epilogue() -> Iterator[Bar]:
    for shape, steps in ((GATE_AND_UP, "silu_gate"), (DOWN, "residual")):
        for m in EPILOGUE_TOKENS:
            yield Bar(
                "epilogue",
                f"int4 {'x'.join(map(str, shape))} {steps} M={m}: time, x without it",
                Pick(("int4",), (shape,), (m,), epilogue=steps),
                time_of(epilogue=""),
                EPILOGUE_PART,
                at_most=True,
            )


# -- dense ------------------------------------------------------------------------------------------------------


def _dense() -> Iterator[Bar]:
    for name, peer in (("float16", CUBLAS), ("bfloat16", against("cublas_bf16"))):
        large = Pick((name,), PREFILL_SHAPES, (1024, 4096), name)
        yield Bar("dense", f"{name} M >= 1024: every point, x cuBLAS {name}", large, peer, 0.97)


# -- quantised activations (benchmarks.quantize, whose rows are no products) --------------------------------------

#: from so many rows on, the quantisation of activations takes no longer than this part of a plain read of as many bytes says
QUANTIZE_TOKENS = (256, 1024, 4096)
QUANTIZE_PART = 0.75


#: suite -> its bars
BARS: Mapping[str, tuple[Bar, ...]] = MappingProxyType(
    {
        "base": tuple(_base()),
        "decode": (*_times(), *_peers(), *_formats(), *_variants()),
        "prefill": tuple(_prefill()),
        "dense": tuple(_dense()),
        "prefill8": tuple(_prefill8()),
        "epilogue": tuple(_epilogue()),
        "ampere": (),  # nothing is asked of kernels of an older device on a newer one
        "sweep": tuple(_sweep()),
    }
)
