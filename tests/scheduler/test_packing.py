"""Packing is a bijection: every type, odd shapes, every convention; and it says what does not fit."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.decode.reference import decode_atom
from ladder.errors import LadderError, PackingError
from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import Packing, choose_packing
from ladder.scheduler.geometry import vector_widths
from ladder.scheduler.packing import METADATA_ROWS, PACKING_VERSION
from ladder.ttype import Quantized, TType

FEATURES = devices["h200"].features
INT4 = types["int4"]


def packing_of(weight, n, k, activation="bfloat16") -> Packing:
    return choose_packing(matmul(None, n, k, activation=activation, weight=weight), FEATURES)


@pytest.mark.parametrize("activation", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(1, 1), (17, 33), (37, 300)])
def test_every_element_comes_back(element, activation, shape, weights_of):
    if (element, activation) == ("e8m0", "float16"):
        return  # overflows, the scheduler refuses it
    packing = packing_of(element, *shape, activation)
    weights = weights_of(packing.weight, *shape, undefined=packing.program.undefined)
    arrays = packing.pack(weights)
    assert packing.unpack(arrays) == weights
    bits = arrays["weight"].size * 32
    padded = packing.stored_tiles * 16 * packing.geometry.padded_k
    assert bits == padded * packing.element.bits  # no bit is wasted


def test_every_grouped_type_comes_back(grouped, weights_of):
    packing = packing_of(grouped, 37, 300)
    weights = weights_of(packing.weight, 37, 300, undefined=packing.program.undefined)
    assert packing.unpack(packing.pack(weights)) == weights


@given(
    name=st.sampled_from(["int4", "nf4", "int8", "fp4_e2m1", "int3", "uint5", "signmag4", "int1"]),
    group=st.sampled_from(["tensor", "channel", 1, 5, 16, 32, 100, 128, 200, (3, 40), (None, 64)]),
    scale=st.sampled_from(["float16", "bfloat16", "float32"]),
    zero=st.sampled_from([None, "integer", "float", "rescaled"]),
    n=st.integers(1, 70),
    k=st.integers(1, 300),
    seed=st.integers(0, 99),
)
def test_random_shapes_and_groups_come_back(name, group, scale, zero, n, k, seed, weights_of):
    packing = packing_of(types[name].grouped(group, scale=scale, zero=zero), n, k)
    weights = weights_of(packing.weight, n, k, seed=seed, undefined=packing.program.undefined)
    arrays = packing.pack(weights)
    assert {a: (v.shape, v.dtype.name) for a, v in arrays.items()} == packing.shapes()
    assert sum(v.nbytes for v in arrays.values()) == packing.nbytes
    assert packing.unpack(arrays) == weights


def test_lane_reads_its_words_with_wide_loads():
    assert [vector_widths(words) for words in (1, 2, 3, 4, 5, 7)] == [
        (1,),
        (2,),
        (2, 1),
        (4,),
        (4, 1),
        (4, 2, 1),
    ]
    packing = packing_of("int3", 16, 64)
    order = packing.word_order
    # first all lanes' words 0 and 1 together, then all lanes' word 2
    assert order[:4].tolist() == [0, 32, 1, 33]
    assert order[64:67].tolist() == [64, 65, 66]
    assert sorted(order) == list(range(32 * packing.program.words))


def test_words_of_undoes_the_order_of_memory():
    packing = packing_of("int3", 16, 64)
    memory = packing.word_order.astype(np.uint32)
    words = packing.words_of(memory)
    assert words.tolist() == np.arange(32 * 3).reshape(3, 32).tolist()


def test_packed_words_decode_to_the_weights(weights_of):
    packing = packing_of(INT4, 20, 100, "float16")
    weights = weights_of(INT4, 20, 100)
    words = packing.words_of(packing.weight_by_tile(packing.pack(weights)["weight"]))
    values = decode_atom(packing.program, words)
    matrix = values.transpose(0, 2, 1, 3).reshape(64, -1)
    assert np.array_equal(matrix[:20, :100], weights.dequantize())
    assert not matrix[20:].any()
    assert not matrix[:, 100:].any()


def test_metadata_brings_both_rows_of_a_lane_together():
    assert METADATA_ROWS.tolist() == [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15]
    wt = INT4.grouped("channel")
    packing = packing_of(wt, 20, 64)
    scales = np.arange(1, 21, dtype=np.float16)[:, None]
    packed = packing.pack(Quantized(wt, np.zeros((20, 64)).astype(int), scales=scales))["scales"]
    assert packed.shape == (1, 1, 4, 16)
    assert packed[0, 0, 0, :4].tolist() == [1, 9, 2, 10]
    assert packed[0, 0, 1].tolist() == [17, 0, 18, 0, 19, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0]


def test_padding_of_scales_is_finite_in_every_scale_type():
    """C43: a padded scale is never NaN, so that garbage times zero stays zero."""
    for name in ("e8m0", "fp8_e4m3fn", "float16", "bfloat16", "float32"):
        wt = types["fp4_e2m1"].grouped(32, scale=name)
        packing = packing_of(wt, 17, 33)
        weights = Quantized(wt, np.ones((17, 33), int), scales=np.ones((17, 2)))
        assert np.isfinite(packing.pack(weights)["scales"].astype(np.float32)).all()


def test_integer_zeros_are_stored_as_numbers():
    wt = INT4.grouped(64, zero="integer")
    packing = packing_of(wt, 16, 64)
    weights = Quantized(
        wt, np.zeros((16, 64), int), scales=np.ones((16, 1)), zeros=np.full((16, 1), 15)
    )
    zeros = packing.pack(weights)["zeros"]
    assert zeros.dtype == np.float16
    assert (zeros[:, :, 0] == -1).all()  # rows that only fill the band stay 0
    assert not zeros[:, :, 1:].any()


def test_zeros_that_float16_rounds_take_float32():
    fine = TType("fine", 2, values=[0, 1, 2, 2**-20 + 1])
    assert packing_of(fine.grouped(64, zero="integer"), 16, 64).zero_dtype == np.float32


def test_zero_codes_of_the_same_number_are_refused():
    twin = TType("twin", 2, values=[0, 1, 1, 2])
    wt = twin.grouped(64, zero="integer")
    packing = Packing(wt, 16, 64, packing_of("uint2", 16, 64).program)
    weights = Quantized(
        wt, np.zeros((16, 64), int), scales=np.ones((16, 1)), zeros=np.full((16, 1), 2)
    )
    with pytest.raises(PackingError) as caught:
        packing.pack(weights)
    assert caught.value.what.startswith("zero code 2 means the same number as code 1")


def test_negative_zero_as_zero_point_comes_back():
    wt = types["signmag4"].grouped(64, zero="integer")
    negative = next(
        c for c in range(16) if np.signbit(wt.element.values[c]) and not wt.element.values[c]
    )
    packing = packing_of(wt, 16, 64)
    zeros = np.full((16, 1), negative)
    weights = Quantized(wt, np.zeros((16, 64), int), scales=np.ones((16, 1)), zeros=zeros)
    assert packing.unpack(packing.pack(weights)) == weights


def test_codes_that_the_decode_cannot_carry_are_refused():
    packing = packing_of(INT4, 16, 64)
    strict = replace(packing, program=replace(packing.program, undefined=(7,)))
    codes = np.zeros((16, 64), int)
    codes[3, 5] = 7
    with pytest.raises(PackingError) as caught:
        strict.pack(Quantized(INT4, codes))
    assert caught.value.what == "code 7 (7.0) occurs 1 times, first at [3, 5]"
    assert strict.pad_code == 0


@pytest.mark.parametrize(
    "weights, text",
    [
        (Quantized(INT4, np.zeros((16, 65), int)), "weights are [16, 65], the packing is for"),
        (Quantized(types["uint4"], np.zeros((16, 64), int)), "weights are uint4, the packing is"),
    ],
)
def test_other_weights_are_refused(weights, text):
    with pytest.raises(PackingError) as caught:
        packing_of(INT4, 16, 64).pack(weights)
    assert caught.value.what.startswith(text)


def test_arrays_of_another_shape_or_dtype_are_refused():
    packing = packing_of(INT4.grouped(64), 16, 64)
    weights = Quantized(packing.weight, np.zeros((16, 64), int), scales=np.ones((16, 1)))
    arrays = packing.pack(weights)
    for change, text in (
        ({"scales": None}, "packed scales is missing"),
        ({"weight": arrays["weight"][..., :5]}, "packed weight is uint32[1, 1, 4, 2, 5]"),
        ({"scales": arrays["scales"].astype(np.float32)}, "packed scales is float32"),
    ):
        kept = {name: v for name, v in {**arrays, **change}.items() if v is not None}
        with pytest.raises(PackingError) as caught:
            packing.unpack(kept)
        assert caught.value.what.startswith(text)


def test_packings_print_compare_and_carry_a_version():
    one = packing_of("mxfp4", 37, 300)
    assert one == packing_of("mxfp4", 37, 300)
    assert one != packing_of("mxfp4", 37, 301)
    assert one.version == PACKING_VERSION == 4
    lines = str(one).splitlines()
    assert lines[0].startswith("packing v4 of mxfp4")
    assert "10 groups of 32 padded to 32" in lines[2]
    assert any("float8_e8m0fnu[1, 12, 4, 16]" in line for line in lines)
    assert ml_dtypes.float8_e8m0fnu.__name__ in str(one)


def test_bytes_follow_the_bits_of_the_type():
    assert packing_of(INT4, 8192, 8192).nbytes == 8192 * 8192 // 2
    assert packing_of("int8", 8192, 8192).nbytes == 8192 * 8192
    assert not issubclass(PackingError, AssertionError)
    assert issubclass(PackingError, LadderError)
