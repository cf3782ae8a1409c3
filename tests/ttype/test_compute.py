"""Compute types round once, to nearest even, and say what overflows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import TypeDeclarationError
from ladder.ttype import (
    COMPUTE_TYPES,
    bfloat16,
    compute_type,
    float16,
    float32,
    int4,
    int8,
    uint4,
)


def test_they_know_their_dtype_width_and_range() -> None:
    facts = {c.name: (c.bits, c.min, c.max, c.is_float, str(c.dtype)) for c in COMPUTE_TYPES}
    assert facts == {
        "float16": (16, -65504.0, 65504.0, True, "float16"),
        "bfloat16": (16, -bfloat16.max, float(ml_dtypes.finfo("bfloat16").max), True, "bfloat16"),
        "float32": (32, -float32.max, float(np.finfo(np.float32).max), True, "float32"),
        "int8": (8, -128.0, 127.0, False, "int8"),
        "fp8_e4m3fn": (8, -448.0, 448.0, True, "float8_e4m3fn"),
        "fp8_e5m2": (8, -57344.0, 57344.0, True, "float8_e5m2"),
        "int4": (4, -8.0, 7.0, False, "int4"),
        "uint4": (4, 0.0, 15.0, False, "uint4"),
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


def test_integers_of_4_bits_round_likewise() -> None:
    assert int4.round([0.5, 1.5, -8.5, 7.4, 7.5, -9]).tolist() == [0, 2, -8, 7, np.inf, -np.inf]
    assert uint4.round([-0.5, 15.4, 15.5, -1]).tolist() == [0, 15, np.inf, -np.inf]


def test_values_of_4_bits_lie_two_to_a_byte_the_first_one_lowest() -> None:
    assert (int4.per_item, int4.storage, int4.items(5)) == (2, np.uint8, 3)
    packed = int4.pack(np.array([[1, -1, 7, -8, 3]]))
    assert packed.dtype == np.uint8
    assert packed.tolist() == [[0xF1, 0x87, 0x03]]
    assert uint4.pack(np.array([15, 1])).tolist() == [0x1F]


@pytest.mark.parametrize("compute", COMPUTE_TYPES, ids=str)
@pytest.mark.parametrize("shape", [(0, 4), (3, 1), (2, 3, 8), (4, 7)])
def test_rows_come_back_from_how_they_are_stored(compute, shape) -> None:
    numbers = np.random.default_rng(0).integers(0, 8, shape).astype(np.float64)
    values = numbers.astype(compute.dtype)
    stored = compute.pack(values)
    assert stored.shape == (*shape[:-1], compute.items(shape[-1]))
    assert stored.dtype == compute.storage
    assert stored.nbytes == -(-shape[-1] * compute.bits // 8) * np.prod(shape[:-1], dtype=int)
    again = compute.unpack(stored, shape[-1])
    assert again.dtype == compute.dtype
    np.testing.assert_array_equal(again.astype(np.float64), numbers)


def test_every_byte_is_two_codes() -> None:
    every = np.arange(256, dtype=np.uint8)[:, None]
    for compute in (int4, uint4):
        pairs = compute.unpack(every, 2).astype(np.int64)
        codes = pairs % 16  # two's complement
        assert (codes[:, 0] + 16 * codes[:, 1] == every[:, 0]).all()
        np.testing.assert_array_equal(compute.pack(pairs), every)


def test_float16_overflows_from_the_half_step_on() -> None:
    assert float16.round([65519.99, 65520]).tolist() == [65504, np.inf]


def test_names_resolve_and_int8_is_the_compute_type_here() -> None:
    assert compute_type("int8") is int8
    assert compute_type("bf16") is bfloat16
    assert compute_type(float32) is float32
    for unknown in ("float17", "int5"):
        with pytest.raises(TypeDeclarationError, match="unknown compute type"):
            compute_type(unknown)
