from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import ScheduleError, ShapeError, TypeDeclarationError
from ladder.primitives import Convert, NoInverse, Step, fidelity
from ladder.ttile import Tile
from ladder.ttype import TType, bfloat16, float16, float32, int8

CODEBOOK = TType("cb3", bits=3, values=[-1, -0.5, -0.2, 0, 0.15, 0.35, 0.6, 1])
WHOLE = TType("int4_", bits=4, values=[c - 16 * (c > 7) for c in range(16)])
TWINS = TType("twins", bits=2, values=[0, 1, 1, 2])
HUGE = TType("huge", bits=1, values=[0, 1e6])


@pytest.mark.parametrize("ttype", [CODEBOOK, WHOLE, TWINS], ids=str)
@pytest.mark.parametrize("compute", [float16, bfloat16, float32], ids=str)
def test_codes_become_the_rounded_numbers_of_their_table(ttype: TType, compute: object) -> None:
    codes = np.arange(2**ttype.bits, dtype=np.uint8).reshape(2, -1)
    got = Step(Convert(ttype, compute), Tile(codes.shape, ttype)).evaluate(codes)
    dtype = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}[
        str(compute)
    ]
    assert got.dtype == dtype
    for index in np.ndindex(*codes.shape):
        assert got[index] == dtype(ttype.values[codes[index]])


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=8))
def test_numbers_are_rounded_once(values: list[float]) -> None:
    array = np.array([values], np.float32)
    with np.errstate(over="ignore"):
        expected = array.astype(np.float16)
    got = Convert("float32", "float16").evaluate(array)
    assert np.array_equal(got, expected)


def test_numbers_become_codes_of_the_nearest_value() -> None:
    got = Convert(float32, CODEBOOK).evaluate(np.array([0.34, -3, 0.61], np.float32))
    assert got.tolist() == [5, 0, 6]


def test_floats_become_integers_by_rounding_and_saturating() -> None:
    got = Convert(float32, int8).evaluate(np.array([1.5, 2.5, -0.6, 300, -300], np.float32))
    assert got.dtype == np.int8
    assert got.tolist() == [2, 2, -1, 127, -128]


@pytest.mark.parametrize(
    "source,target,verdict",
    [
        (WHOLE, "float16", "exact"),
        (WHOLE, int8, "exact"),
        (WHOLE.grouped(32), "bfloat16", "exact"),
        (CODEBOOK, "float16", "rounds"),
        (CODEBOOK, float32, "rounds"),
        (HUGE, "float16", "may overflow"),
        (HUGE, "bfloat16", "rounds"),
        (HUGE, "fp8_e4m3fn", "may overflow"),
        ("float16", "float32", "exact"),
        ("bfloat16", "float32", "exact"),
        ("float16", "bfloat16", "rounds"),
        ("bfloat16", "float16", "may overflow"),
        ("fp8_e4m3fn", "float16", "exact"),
        ("fp8_e5m2", "float16", "exact"),
        ("fp8_e5m2", "fp8_e4m3fn", "may overflow"),
        ("int8", "float16", "exact"),
        ("int8", "bfloat16", "exact"),
        ("float16", int8, "may overflow"),
        ("float32", "float16", "may overflow"),
        ("float32", "bfloat16", "may overflow"),
        ("int32", "float32", "rounds"),
        ("int8", "uint8", "may overflow"),
        ("float16", WHOLE, "may overflow"),
    ],
    ids=str,
)
def test_whether_a_type_holds_another(source: object, target: object, verdict: str) -> None:
    assert fidelity(source, target) == verdict
    assert Convert(source, target).fidelity == verdict


@pytest.mark.parametrize(
    "source,target",
    list(
        itertools.product(
            ["float16", "bfloat16", "int8", "fp8_e4m3fn"], ["float32", "bfloat16", "float16"]
        )
    ),
)
def test_fidelity_of_formats_against_casting_every_number(source: str, target: str) -> None:
    names = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "int8": np.int8}
    names |= {"float32": np.float32, "fp8_e4m3fn": ml_dtypes.float8_e4m3fn}
    form = np.dtype(names[source])
    every = np.arange(1 << 8 * form.itemsize).astype(f"u{form.itemsize}").view(form)
    with np.errstate(over="ignore", invalid="ignore"):
        every = every[np.isfinite(every.astype(np.float64))]
        kept = every.astype(names[target]).astype(np.float64)
    exact = bool(np.all(kept == every.astype(np.float64)))
    assert (fidelity(source, target) == "exact") == exact


@pytest.mark.parametrize("target", [float16, bfloat16, int8], ids=str)
def test_a_lossless_conversion_can_be_undone(target: object) -> None:
    step = Step(Convert(WHOLE, target), Tile((16,), WHOLE))
    back = step.inverse()
    assert isinstance(back, Step)
    assert back.result == step.source
    codes = np.arange(16, dtype=np.uint8)
    assert np.array_equal(back.evaluate(step.evaluate(codes)), codes)


@pytest.mark.parametrize(
    "source,target,reason",
    [
        (CODEBOOK, "float16", "no inverse: float16 does not hold every number of cb3 (rounds)"),
        (TWINS, "float16", "no inverse: codes [2] share their number with another code"),
        (
            "float32",
            "float16",
            "no inverse: float16 does not hold every number of float32 (may overflow)",
        ),
    ],
    ids=str,
)
def test_a_lossy_conversion_says_why_it_cannot_be_undone(
    source: object, target: object, reason: str
) -> None:
    lost = Convert(source, target).inverse(Tile((4,), source))
    assert isinstance(lost, NoInverse)
    assert str(lost) == reason


def test_the_line_that_a_convert_prints() -> None:
    step = Step(Convert(WHOLE, "float16", "shared"), Tile((16, 64), WHOLE))
    assert str(step) == "convert(int4_ -> float16 at shared) : int4_[16, 64] -> float16[16, 64]"


def test_what_a_conversion_costs_depends_on_where_it_happens() -> None:
    tile = Tile((16, 64), WHOLE)
    device: object = None
    pipes = (("alu", 4.0), ("fma", 2.0))

    def cost(level: str) -> object:
        return Convert(WHOLE, "float16", level, pipes).cost(tile, device)  # type: ignore[arg-type]

    work = "512 alu, 256 fma"  # 1024 elements, per 8
    assert str(cost("register")) == f"0 B in shared, {work}"
    assert str(cost("shared")) == f"2560 B in shared, {work}"
    assert str(cost("global")) == f"2560 B in dram, {work}"
    assert str(cost("offline")) == "0 B in shared"
    plain = Convert(WHOLE, "float16").cost(tile, device)  # type: ignore[arg-type]
    assert sum(count for _, count in plain.instructions) == 34 * 128


@pytest.mark.parametrize(
    "build,error,message",
    [
        (
            lambda: Convert(WHOLE, "float16", "nowhere"),
            ScheduleError,
            "no placement 'nowhere'",
        ),
        (
            lambda: Convert(WHOLE, "float16").result(Tile((1,), "int8")),
            ShapeError,
            "the tile holds int8, not int4_",
        ),
        (
            lambda: Convert(float32, "tfloat32").evaluate(np.ones(1)),
            TypeDeclarationError,
            "tfloat32 is no type that numbers",
        ),
    ],
)
def test_nonsense_is_refused(build: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build()  # type: ignore[operator]
