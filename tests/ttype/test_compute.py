"""Compute types round once, to nearest even, and say what overflows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import TypeDeclarationError
from ladder.ttype import COMPUTE_TYPES, bfloat16, compute_type, float16, float32, int8


def test_they_know_their_dtype_width_and_range() -> None:
    facts = {c.name: (c.bits, c.min, c.max, c.is_float, str(c.dtype)) for c in COMPUTE_TYPES}
    assert facts == {
        "float16": (16, -65504.0, 65504.0, True, "float16"),
        "bfloat16": (16, -bfloat16.max, float(ml_dtypes.finfo("bfloat16").max), True, "bfloat16"),
        "float32": (32, -float32.max, float(np.finfo(np.float32).max), True, "float32"),
        "int8": (8, -128.0, 127.0, False, "int8"),
        "fp8_e4m3fn": (8, -448.0, 448.0, True, "float8_e4m3fn"),
        "fp8_e5m2": (8, -57344.0, 57344.0, True, "float8_e5m2"),
    }
    assert str(float16) == "float16"


@given(st.floats(allow_nan=False) | st.floats(-1e-6, 1e-6) | st.floats(-7e4, 7e4))
def test_floats_round_as_numpy_does(x) -> None:
    for compute in (float16, float32):  # NumPy casts float64 to both with a single rounding
        with np.errstate(over="ignore"):
            want = float(np.float64(x).astype(compute.dtype))
        assert float(compute.round(x)) == want


def test_bfloat16_rounds_once() -> None:
    """A detour over float32 would first round to the tie 1 + 2**-8 and then down to 1."""
    assert float(bfloat16.round(1 + 2**-8 + 2**-30)) == 1 + 2**-7
    assert bfloat16.round([1 + 2**-8, 1 + 3 * 2**-8]).tolist() == [1.0, 1 + 2**-6]


def test_float32_values_round_to_bfloat16_as_ml_dtypes_does() -> None:
    words = np.random.default_rng(0).integers(0, 2**32, 20000, dtype=np.uint32)
    x = words.view(np.float32)
    x = x[np.isfinite(x)]
    want = x.astype(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_array_equal(bfloat16.round(x), want)


def test_int8_rounds_to_even_and_shows_overflow_as_infinite() -> None:
    assert int8.round([0.5, 1.5, -128.5, 127.4]).tolist() == [0, 2, -128, 127]
    assert int8.round([127.5, -129]).tolist() == [np.inf, -np.inf]


def test_float16_overflows_from_the_half_step_on() -> None:
    assert float16.round([65519.99, 65520]).tolist() == [65504, np.inf]


def test_names_resolve_and_int8_is_the_compute_type_here() -> None:
    assert compute_type("int8") is int8
    assert compute_type("bf16") is bfloat16
    assert compute_type(float32) is float32
    for unknown in ("float17", "int4"):
        with pytest.raises(TypeDeclarationError, match="unknown compute type"):
            compute_type(unknown)
