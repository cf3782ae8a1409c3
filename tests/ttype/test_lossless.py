"""Losslessness: what a compute type holds, against casts by NumPy and ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ladder.errors import TypeDeclarationError
from ladder.ttype import (
    COMPUTE_TYPES,
    Exact,
    MayOverflow,
    Rounds,
    TType,
    losslessness,
    quantize,
    types,
)

ELEMENTS = [t for t in types.values() if isinstance(t, TType)]
DTYPES = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "fp8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
}


#: least and largest of the integers
WHOLE = {"int8": (-128, 127), "int4": (-8, 7), "uint4": (0, 15)}


def cast(values: np.ndarray, compute: str) -> np.ndarray:
    """By NumPy's own casts; float64 -> float32 -> bfloat16 is safe for values of few bits."""
    if compute in WHOLE:
        whole, (least, most) = np.rint(values), WHOLE[compute]
        return np.where((whole < least) | (whole > most), np.inf, whole)
    with np.errstate(over="ignore"):
        given = values.astype(np.float32).astype(DTYPES[compute]).astype(np.float64)
    # fp8_e4m3fn has no infinity: what is too large becomes NaN there
    return np.where(np.isnan(given) & ~np.isnan(values), np.copysign(np.inf, values), given)


@pytest.mark.parametrize("compute", COMPUTE_TYPES, ids=str)
@pytest.mark.parametrize("t", ELEMENTS, ids=str)
def test_elements_agree_with_casts_of_their_tables(t, compute) -> None:
    values = t.values[list(t.number_codes)]
    got = cast(values, compute.name)
    answer = losslessness(t, compute)
    overflow = np.isinf(got) & (np.isfinite(values) | (compute.name in WHOLE))
    if overflow.any():
        assert isinstance(answer, MayOverflow)
        assert overflow[t.number_codes.index(answer.example.code)]
        assert not answer.is_exact
        return
    differs = got != values
    if not differs.any():
        assert answer == Exact()
        assert answer.is_exact
        return
    assert isinstance(answer, Rounds)
    assert answer.count == np.count_nonzero(differs)
    assert answer.total == len(values)
    relative = np.abs(got - values)[differs] / np.abs(values[differs])
    assert answer.worst == relative.max()
    assert t.values[answer.example.code] == answer.example.value
    assert cast(np.array([answer.example.value]), compute.name)[0] == answer.example.decoded


def test_the_answers_that_the_design_counts_on() -> None:
    exact = [
        "int4",
        "uint8",
        "bipolar8",
        "fp4_e2m1",
        "fp6_e3m2",
        "fp8_e4m3fn",
        "fp8_e5m2",
        "ternary",
    ]
    for name in exact:
        assert losslessness(name, "float16") == Exact()
        assert losslessness(name, "bfloat16") == Exact()
    assert isinstance(losslessness("nf4", "float16"), Rounds)
    assert isinstance(losslessness("nf4", "bfloat16"), Rounds)
    assert losslessness("nf4", "float32") == Exact()
    assert isinstance(losslessness("e8m0", "float16"), MayOverflow)
    assert losslessness("e8m0", "bfloat16") == Exact()
    assert isinstance(losslessness("uint8", "int8"), MayOverflow)


def test_where_the_scale_goes_decides() -> None:
    """mxfp4 is exact with its scale on the accumulator; in float16 operands it would overflow."""
    mxfp4 = types["mxfp4"]
    assert losslessness(mxfp4, "float16") == Exact()
    answer = losslessness(mxfp4, "float16", scale_on="operand")
    assert isinstance(answer, MayOverflow)
    assert answer.example.scale * types["fp4_e2m1"].values[answer.example.code] > 65504
    nvfp4 = types["nvfp4"]
    assert losslessness(nvfp4, "float16", scale_on="operand") == Exact()
    assert losslessness(nvfp4, "bfloat16", scale_on="operand") == Exact()


def test_given_the_scales_the_answer_is_theirs() -> None:
    q = quantize(np.random.default_rng(0).normal(size=(4, 64)), types["mxfp4"])
    for compute in ("float16", "bfloat16"):
        assert losslessness(q.type, compute, scale_on="operand", scales=q.scales) == Exact()
    wt = types["int4"].grouped(32)
    assert losslessness(wt, "float16", scale_on="operand", scales=[2.0, 0.5]) == Exact()
    answer = losslessness(wt, "float16", scale_on="operand", scales=[1 + 2**-10])
    assert isinstance(answer, Rounds)
    assert losslessness(wt, "float32", scale_on="operand") == Exact()


def test_float16_scales_are_tried_one_and_all() -> None:
    wt = types["ternary"].grouped(32)
    assert losslessness(wt, "float16", scale_on="operand") == Exact()
    answer = losslessness(wt, "bfloat16", scale_on="operand")
    assert isinstance(answer, Rounds)
    scales = np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16)
    lost = scales.astype(ml_dtypes.bfloat16).astype(np.float64) != scales
    assert answer.count == 2 * np.count_nonzero(lost)
    assert answer.total == 3 * len(scales)


def test_float32_scales_are_judged_by_those_that_decide() -> None:
    def on_operand(name: str, compute: str) -> object:
        return type(losslessness(types[name].grouped(32, "float32"), compute, scale_on="operand"))

    assert on_operand("ternary", "float32") is Exact
    assert on_operand("int4", "float32") is MayOverflow
    assert on_operand("nf4", "float32") is Rounds
    assert on_operand("ternary", "float16") is MayOverflow
    assert (
        on_operand("ternary", "bfloat16") is MayOverflow
    )  # the largest float32 rounds to infinity


def test_integer_zeros_count_on_the_operand() -> None:
    wt = types["uint8"].grouped(32, scale="e8m0", zero="integer")
    scales = [1.0]
    assert losslessness(wt, "bfloat16", scale_on="operand", scales=scales) == Exact()
    signed = types["int8"].grouped(32, scale="e8m0", zero="integer")
    assert losslessness(signed, "bfloat16", scale_on="operand", scales=scales) == Exact()
    fp8 = types["fp8_e4m3fn"].grouped(32, zero="integer")
    answer = losslessness(fp8, "float16", scale_on="operand", scales=scales)
    assert isinstance(answer, Rounds)  # 448 - 2**-9 takes 18 bits
    value = answer.example.value
    assert float(np.float16(value)) == answer.example.decoded != value


@pytest.mark.parametrize("zero", ["float", "rescaled"])
def test_free_zeros_may_overflow_an_operand(zero) -> None:
    wt = types["uint4"].grouped(32, zero=zero)
    assert losslessness(wt, "float16") == Exact()
    assert isinstance(losslessness(wt, "float16", scale_on="operand"), MayOverflow)


def test_infinities_of_the_format_are_no_overflow_of_a_float() -> None:
    assert losslessness("fp8_e5m2", "float16") == Exact()
    infinite = TType("infinite", 1, [1, np.inf])
    assert losslessness(infinite, "float16") == Exact()
    assert isinstance(losslessness(infinite, "int8"), MayOverflow)


def test_answers_print() -> None:
    assert str(losslessness("int4", "float16")) == "exact"
    assert str(losslessness("uint8", "int8")) == ("may overflow: code 128 means 128, becomes inf")
    assert str(losslessness("fp4_e2m1", "int8")) == (
        "rounds 4 of 16, by at most 1: code 1 means 0.5, becomes 0"
    )
    wt = types["int4"].grouped(32)
    scaled = losslessness(wt, "float16", scale_on="operand", scales=[65504])
    assert str(scaled) == ("may overflow: code 2 with scale 65504 means 131008, becomes inf")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(TypeDeclarationError, match="unknown type 'int9'"):
        losslessness("int9", "float16")
    with pytest.raises(TypeDeclarationError, match="unknown compute type 'int5'"):
        losslessness("int4", "int5")
