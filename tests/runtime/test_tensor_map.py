"""Tensor maps: what the driver is asked for, where the map lies, and which arrays a map cannot describe."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ladder.codegen.kernel import Parameter
from ladder.errors import LaunchError
from ladder.runtime.argument_block import MAP_ALIGN, MAP_BYTES, ArgumentLayout, TensorMap
from ladder.runtime.arguments import Operands, check_call
from ladder.runtime.launcher import Launcher
from ladder.runtime.tensor_map import encode_tensor_map
from ladder.runtime.variant import Variant

#: the signature of a specialised kernel, the map between buffers and scalars
PARAMETERS = (
    Parameter("w_ptr", "buffer", "uint32", "weight"),
    Parameter("s_ptr", "buffer", "float16", "scales"),
    Parameter("x_map", "tensor map", "float16", "x_map", (32, 64)),
    Parameter("y_ptr", "buffer", "float32", "y"),
    Parameter("m", "scalar", "int32", "m"),
    Parameter("ys", "scalar", "int64", "y_stride_m"),
    Parameter("pieces", "scalar", "int32", "y_pieces"),
)
VALUES = {
    "weight": 2**40 + 16,
    "scales": 2**41 + 32,
    "y": 2**42 + 48,
    "m": 7,
    "y_stride_m": 2**33,
    "y_pieces": 1,
}


class Encoder:
    """Stands in for cuTensorMapEncodeTiled: keeps what it was given, and writes a pattern where the map goes."""

    def __init__(self, status=0):
        self.status, self.calls = status, []

    def __call__(self, where, dtype, rank, pointer, extents, strides, box, steps, *modes):
        self.calls.append(
            {
                "where": where.value,
                "dtype": dtype.value,
                "rank": rank.value,
                "pointer": pointer.value,
                "extents": list(extents),
                "strides": list(strides),
                "box": list(box),
                "steps": list(steps),
                "modes": [mode.value for mode in modes],
                "widths": [ctypes.sizeof(extents), ctypes.sizeof(strides), ctypes.sizeof(box)],
            }
        )
        ctypes.memset(where.value, 0xA5, MAP_BYTES)
        return self.status


def test_the_driver_is_asked_for_boxes_of_swizzled_rows_innermost_first():
    encoder = Encoder()
    made = encode_tensor_map(encoder, 0x7000, (7, 1024), 2112, (32, 64))
    (call,) = encoder.calls
    assert call["where"] == made.address
    assert (call["dtype"], call["rank"], call["pointer"]) == (1, 2, 0x7000)  # UINT16
    assert call["extents"] == [1024, 7]
    assert call["strides"] == [2112]  # bytes, of all dimensions but the innermost
    assert call["box"] == [64, 32]
    assert call["steps"] == [1, 1]
    assert call["modes"] == [
        0,
        3,
        3,
        0,
    ]  # no interleave, 128-byte swizzle, 256-byte promotion, zeros outside
    assert call["widths"] == [16, 8, 8]  # 64-bit extents and strides, 32-bit boxes


def test_rows_of_128_bytes_tell_the_size_of_an_element():
    encoder = Encoder()
    encode_tensor_map(encoder, 0x7000, (7, 1024), 1024, (32, 128))
    assert encoder.calls[0]["dtype"] == 0  # UINT8
    assert encoder.calls[0]["box"] == [128, 32]


def test_what_the_driver_refuses_says_what_it_was_asked_for():
    with pytest.raises(LaunchError, match="refuses a tensor map with error 1") as caught:
        encode_tensor_map(Encoder(1), 0x7008, (7, 1024), 2050, (32, 64))
    assert "7 x 1024 elements at 0x7008, rows 2050 B apart, boxes (32, 64)" in caught.value.at
    assert "multiples of 16" in caught.value.hint


def test_a_map_lies_where_the_driver_wants_it():
    maps = [TensorMap() for _ in range(32)]
    assert all(made.address % MAP_ALIGN == 0 for made in maps)
    places = sorted(made.address for made in maps)
    assert all(b - a >= MAP_BYTES for a, b in pairwise(places))


def test_the_map_is_passed_in_its_place_and_the_others_in_theirs():
    layout = ArgumentLayout(PARAMETERS)
    assert layout.tensor_map == PARAMETERS[2]
    made = encode_tensor_map(Encoder(), 0x7000, (7, 1024), 2048, (32, 64))
    arguments = layout.fill(VALUES, made)
    pointers = (ctypes.c_void_p * len(PARAMETERS)).from_address(arguments.address)
    assert pointers[2] == made.address
    assert bytes((ctypes.c_uint8 * MAP_BYTES).from_address(pointers[2])) == b"\xa5" * MAP_BYTES
    kinds = {"int32": ctypes.c_int32, "int64": ctypes.c_int64}
    for place, parameter in enumerate(PARAMETERS):
        if parameter.kind != "tensor map":
            kind = ctypes.c_uint64 if parameter.kind == "buffer" else kinds[parameter.dtype]
            assert kind.from_address(pointers[place]).value == VALUES[parameter.role]


def test_a_map_outlives_the_name_that_it_was_made_under():
    layout = ArgumentLayout(PARAMETERS)
    arguments = layout.fill(VALUES, encode_tensor_map(Encoder(), 0x7000, (7, 64), 128, (32, 64)))
    others = [TensorMap() for _ in range(64)]  # would take its memory
    for other in others:
        ctypes.memset(other.address, 0, MAP_BYTES)
    pointers = (ctypes.c_void_p * len(PARAMETERS)).from_address(arguments.address)
    assert bytes((ctypes.c_uint8 * MAP_BYTES).from_address(pointers[2])) == b"\xa5" * MAP_BYTES


def test_kernels_without_a_map_have_none():
    layout = ArgumentLayout([p for p in PARAMETERS if p.kind != "tensor map"])
    assert layout.tensor_map is None
    layout.fill(VALUES)


# -- which x a map describes ------------------------------------------------------------------------------------


@pytest.fixture
def kernel(fakes, driver):
    """A fake kernel that reads x through a map, and its variant; K is 16."""
    made = fakes.kernel(driver, [fakes.Plan(access="tensor", m_range=(0, None))])
    (variant,) = made.variants
    lowered = replace(variant.lowered, parameters=PARAMETERS)
    return made, Variant(variant.plan, lowered, variant.cubins)


def checked(kernel, weights, x, out=None):
    made, variant = kernel
    packed = made.pack(weights)
    return check_call((variant,), packed.key, Operands(x, packed, None, out))


def rows(fakes, m, stride, offset=0):
    """float16 [m, 16] whose rows are ``stride`` elements apart, ``offset`` elements past a multiple of 64 bytes."""
    memory = fakes.aligned(np.zeros(offset + m * stride + 64, np.float16))
    memory[...] = np.arange(len(memory)) % 7
    return np.lib.stride_tricks.as_strided(memory[offset:], (m, 16), (2 * stride, 2))


class Mapped:
    """A driver that records the maps it is asked for."""

    def __init__(self):
        self.asked = []

    def tensor_map(self, pointer, extents, stride, box):
        self.asked.append((pointer, extents, stride, box))
        return TensorMap()


@pytest.mark.parametrize("m, stride", [(1, 16), (5, 16), (5, 24), (5, 1024)])
def test_a_map_describes_x_where_it_lies(kernel, fakes, weights, m, stride):
    x = rows(fakes, m, stride)
    call = checked(kernel, weights, x)
    assert call.x.pointer == x.ctypes.data  # no copy
    driver = Mapped()
    arguments = Launcher([kernel[1]], driver).arguments(call)
    bytes_apart = 2 * (stride if m > 1 else 16)
    box = (8, 64)  # of 32 rows, the tiles of 8 that there are
    assert driver.asked == [(x.ctypes.data, (m, 16), bytes_apart, box)]
    assert arguments.address


def test_one_row_has_any_stride(kernel, fakes, weights):
    """The stride of a single row means nothing, and may be what no map takes."""
    x = rows(fakes, 1, 17)
    call = checked(kernel, weights, x)
    driver = Mapped()
    Launcher([kernel[1]], driver).arguments(call)
    assert driver.asked[0][1:3] == ((1, 16), 32)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda fakes: rows(fakes, 3, 17), "row stride 17, no multiple of 8"),
        (lambda fakes: rows(fakes, 3, 20), "row stride 20, no multiple of 8"),
        (lambda fakes: rows(fakes, 3, 16, offset=1), "no multiple of 16 bytes"),
        (lambda fakes: rows(fakes, 3, 16, offset=4), "no multiple of 16 bytes"),
        (lambda fakes: rows(fakes, 3, 16)[::-1], "row stride -16, negative"),
        (lambda fakes: rows(fakes, 16, 16).T[:3, :16], "inner stride 16, not 1"),
    ],
)
def test_what_no_map_describes_is_copied_and_said(kernel, fakes, weights, make, words):
    x = make(fakes)
    assert words in kernel[1].refuses(*views(x))
    with pytest.warns(RuntimeWarning, match=words.split(",")[0]):
        call = checked(kernel, weights, x)
    assert call.x.pointer != x.ctypes.data
    assert call.x.pointer % 16 == 0


def views(x):
    from ladder.runtime.arrays import rows as rows_of
    from ladder.runtime.arrays import view

    found = view(x)
    return found, rows_of(found)


# -- how y may be written ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stride, offset, pieces",
    [(8, 0, 1), (16, 0, 1), (8, 4, 1), (9, 0, 0), (12, 0, 0), (8, 1, 0), (8, 2, 0), (16, 8, 1)],
)
def test_pieces_of_16_bytes_only_where_every_row_starts_on_one(
    kernel, fakes, weights, stride, offset, pieces
):
    """y is float32 [m, 8] here: 4 elements are 16 bytes, and rows are asked for multiples of 8 of them."""
    memory = fakes.aligned(np.zeros(offset + 3 * stride + 16, np.float32))
    out = np.lib.stride_tricks.as_strided(memory[offset:], (3, 8), (4 * stride, 4))
    call = checked(kernel, weights, rows(fakes, 3, 16), out)
    assert call.values["y_pieces"] == pieces
    assert call.values["y_stride_m"] == stride
