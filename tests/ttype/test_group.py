"""Grouped types: shapes of metadata, conventions, and combinations that are refused."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import ShapeError, TypeDeclarationError
from ladder.ttype import CHANNEL, TENSOR, GroupedType, types, weight_type

INT4 = types["int4"]


@pytest.mark.parametrize(
    "group, extents, shape",
    [
        ("tensor", TENSOR, (1, 1)),
        ("channel", CHANNEL, (4096, 1)),
        (128, (1, 128), (4096, 64)),
        (np.int64(128), (1, 128), (4096, 64)),
        ((128, 128), (128, 128), (32, 64)),
        ((None, 128), (None, 128), (1, 64)),
        ((16, None), (16, None), (256, 1)),
        ([2, 8192], (2, 8192), (2048, 1)),
    ],
)
def test_granularity_gives_the_shape_of_the_scales(group, extents, shape) -> None:
    wt = INT4.grouped(group)
    assert wt.group == extents
    assert wt.scale_shape(4096, 8192) == shape
    assert hash(wt) == hash(INT4.grouped(group))


def test_last_groups_may_be_short() -> None:
    """C40: group 32 with K=4304 (134.5 groups) has 135 scales; group 512 with K=768 has 2."""
    assert INT4.grouped(32).scale_shape(5, 4304) == (5, 135)
    assert INT4.grouped(512).scale_shape(5, 768) == (5, 2)
    assert INT4.grouped((4, 4)).scale_shape(5, 9) == (2, 3)
    assert INT4.grouped(1024).scale_shape(1, 16) == (1, 1)


@given(n=st.integers(1, 99), k=st.integers(1, 999), rows=st.integers(1, 9), g=st.integers(1, 99))
def test_every_element_lies_in_a_group_that_exists(n, k, rows, g) -> None:
    shape = INT4.grouped((rows, g)).scale_shape(n, k)
    assert shape == ((n - 1) // rows + 1, (k - 1) // g + 1)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (-1, 2)])
def test_weights_have_a_row_and_a_column(shape) -> None:
    with pytest.raises(ShapeError, match="not an integer >= 1"):
        INT4.grouped(32).scale_shape(*shape)


def test_dtypes_of_the_metadata() -> None:
    assert INT4.grouped(32, scale="bfloat16").scale_dtype == ml_dtypes.bfloat16
    assert types["mxfp4"].scale_dtype == ml_dtypes.float8_e8m0fnu
    assert types["nvfp4"].scale_dtype == ml_dtypes.float8_e4m3fn
    assert INT4.grouped(32).zero_dtype is None
    assert INT4.grouped(32, zero="integer").zero_dtype == np.uint8
    assert INT4.grouped(32, scale="float32", zero="float").zero_dtype == np.float32
    assert weight_type("int4").scale_dtype is None


def test_types_print_in_one_line() -> None:
    wt = INT4.grouped(128, zero="integer")
    assert str(wt) == wt.name == "int4 g128 scale=float16 zero=integer"
    assert str(INT4.grouped("channel", scale="bfloat16")) == "int4 channel scale=bfloat16"
    assert str(INT4.grouped("tensor")) == "int4 tensor scale=float16"
    assert str(INT4.grouped((128, 128), "float32")) == "int4 g128x128 scale=float32"
    assert str(INT4.grouped((None, 64))) == "int4 g*x64 scale=float16"
    assert str(weight_type("int4")) == "int4"
    nvfp4 = types["nvfp4"]
    assert nvfp4.name == "nvfp4"
    assert str(nvfp4) == "nvfp4 (fp4_e2m1 g16 scale=fp8_e4m3fn second=float32)"


def test_a_label_is_no_part_of_the_value() -> None:
    assert types["mxfp4"] == types["fp4_e2m1"].grouped(32, scale="e8m0")
    assert INT4.grouped(32) != INT4.grouped(64)
    assert pickle.loads(pickle.dumps(types["nvfp4"])) == types["nvfp4"]
    assert pickle.loads(pickle.dumps(types["nvfp4"])).name == "nvfp4"


def test_bits_per_weight_share_out_the_metadata() -> None:
    assert INT4.grouped(128).bits_per_weight(16, 256) == 4 + 16 / 128
    assert INT4.grouped(128, zero="integer").bits_per_weight(16, 256) == 4 + 20 / 128
    assert INT4.grouped(128, zero="float").bits_per_weight(16, 256) == 4 + 32 / 128
    assert types["nvfp4"].bits_per_weight(2, 16) == 4 + 8 / 16 + 32 / 32
    assert weight_type("nf4").bits_per_weight(3, 5) == 4


@pytest.mark.parametrize(
    "arguments, what",
    [
        ({"group": 0}, "at least one of the columns, found 0"),
        ({"group": -1}, "at least one of the columns, found -1"),
        ({"group": 128.0}, "at least one of the columns, found 128.0"),
        ({"group": True}, "at least one of the columns, found True"),
        ({"group": None}, "unknown granularity None"),
        ({"group": (0, 8)}, "at least one of the rows, found 0"),
        ({"group": (8,)}, "unknown granularity"),
        ({"group": "row"}, "unknown granularity 'row'"),
        ({"group": 32, "scale": "float64"}, "unknown scale type 'float64'"),
        ({"group": 32, "zero": "int"}, "unknown zero convention 'int'"),
        ({"group": 32, "scale": "e8m0", "zero": "float"}, "e8m0 is too coarse for it"),
        (
            {"group": 32, "scale": "fp8_e4m3fn", "zero": "rescaled"},
            "fp8_e4m3fn is too coarse for it",
        ),
        ({"group": 32, "second": "float16"}, "second-level scale is float32"),
        ({"group": 32, "second": "float32"}, "widens fp8_e4m3fn scales, found float16"),
        ({"group": 32, "scale": None}, "without a scale has no groups"),
        ({"group": "tensor", "scale": None, "zero": "integer"}, "without a scale has no groups"),
        ({"group": "tensor", "scale": None, "second": "float32"}, "without a scale has no groups"),
    ],
)
def test_combinations_without_a_meaning_are_refused(arguments, what) -> None:
    with pytest.raises(TypeDeclarationError, match=what) as caught:
        INT4.grouped(**arguments)
    assert caught.value.hint


def test_a_float_zero_has_to_reach_the_values_of_the_element() -> None:
    with pytest.raises(TypeDeclarationError, match="has to hold values of e8m0, and float16 ends"):
        types["e8m0"].grouped(32, zero="float")
    assert types["e8m0"].grouped(32, scale="float32", zero="float")


def test_groups_are_pairs() -> None:
    for group in (32, [1, 32], (1, 2, 3)):
        with pytest.raises(TypeDeclarationError, match="a group is"):
            GroupedType(INT4, group)
