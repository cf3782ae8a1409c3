from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import ScheduleError, ShapeError
from ladder.primitives import Convert, Map, Pad, Slice
from ladder.registry import devices, types
from ladder.scheduler.transform import CONVERT_AT, schedule_transform
from ladder.ttile import Tile
from ladder.ttype import TType

WHOLE = TType("whole3", bits=3, values=[0, 1, 2, 3, -4, -3, -2, -1])


def running_example(device: str = "a100", **options: object) -> object:
    """Fig. 5: A float16[32, 63] x B nf4[32, 63], accumulated in float32, written as float16."""
    return schedule_transform(
        Tile((32, 63), "float16"),
        Tile((32, 63), types["nf4"]),
        "float16",
        devices[device],
        **options,  # type: ignore[arg-type]
    )


def test_the_trace_of_the_paper_s_running_example(golden: Callable[[str, str], None]) -> None:
    golden("transform/running_example_a100.txt", f"{running_example()}\n")


def test_the_steps_of_the_paper_s_running_example() -> None:
    """B: slice [16, 63], pad [16, 64], convert, map into lines of eight 16-byte granules, ldmatrix [16, 16]."""
    trace = running_example()
    steps = trace.weight.to_shared()  # type: ignore[attr-defined]
    assert [type(step.primitive) for step in steps] == [Slice, Pad, Convert, Map]
    shapes = [str(step.result) for step in steps]
    assert shapes == ["nf4[16, 63]", "nf4[16, 64]", "float16[16, 64]", "float16[1, 4, 4, 64]"]
    assert steps[-1].result.inner_bits == 8 * 128
    read = trace.weight.to_register()  # type: ignore[attr-defined]
    assert trace.weight.load.name == "ldmatrix.x4"  # type: ignore[attr-defined]
    assert str(read[-1].result) == "float16[16, 16]"
    store = trace.to_dram()  # type: ignore[attr-defined]
    assert (
        str(store[0])
        == "convert(float32 -> float16 at register) : float32[16, 8] -> float16[16, 8]"
    )


def test_the_map_puts_each_core_tile_into_lines_of_its_own() -> None:
    """Element (row, k) of core tile j lies in line row // 2 of tile j, at 16-element half row % 2 ... of the line."""
    route = running_example().weight  # type: ignore[attr-defined]
    *_, last = route.to_shared()
    array = np.arange(16 * 64).reshape(16, 64)
    flat = last.evaluate(array)
    for row, k in np.ndindex(16, 64):
        tile, inside = divmod(k, 16)
        line, place = divmod(row * 16 + inside, 64)
        assert flat[0, tile, line, place] == array[row, k]


def test_codes_may_stay_codes_until_the_registers() -> None:
    route = running_example(convert="register").weight  # type: ignore[attr-defined]
    assert [type(step.primitive) for step in route.to_shared()] == [Slice, Pad]
    assert [type(step.primitive) for step in route.to_register()] == [Slice, Convert]


def test_padding_holds_the_code_of_smallest_magnitude() -> None:
    """nf4's zero is code 7, not code 0."""
    pad = running_example().weight.to_shared()[1].primitive  # type: ignore[attr-defined]
    assert types["nf4"].values[pad.value] == 0


sizes = st.integers(1, 70)


@given(sizes, sizes, sizes, st.sampled_from(CONVERT_AT), st.sampled_from(["a100", "h200"]))
def test_the_schedule_computes_the_product(
    m: int, n: int, k: int, convert: str, device: str
) -> None:
    """Small whole numbers, so that float32 accumulation and the float32 output are exact in any order."""
    rng = np.random.default_rng(m * 5041 + n * 71 + k)
    x = rng.integers(-4, 5, (m, k)).astype(np.float16)
    codes = rng.integers(0, 8, (n, k)).astype(np.uint8)
    trace = schedule_transform(
        Tile((m, k), "float16"), Tile((n, k), WHOLE), "float32", devices[device], convert=convert
    )
    got = trace.run(x, codes)
    assert got.dtype == np.float32
    assert np.array_equal(got, x.astype(np.float64) @ WHOLE.values[codes].T)


def test_integer_products_accumulate_integers() -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(-128, 128, (9, 70)).astype(np.int8)
    codes = rng.integers(0, 256, (17, 70)).astype(np.uint8)
    int8 = types["int8"]
    trace = schedule_transform(
        Tile((9, 70), "int8"), Tile((17, 70), int8), "int32", devices["a100"]
    )
    assert trace.hint.instruction.name == "mma.m16n8k32.int8"
    expected = x.astype(np.int64) @ codes.view(np.int8).astype(np.int64).T
    assert np.array_equal(trace.run(x, codes), expected)


def test_larger_tiles_hold_several_core_tiles() -> None:
    trace = running_example(tiles={"weight": (32, 64), "activation": (16, 128)})
    assert str(trace.weight.in_shared()) == "float16[2, 4, 4, 64]"  # type: ignore[attr-defined]
    assert trace.weight.in_shared().granularity == 16  # type: ignore[attr-defined]
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (32, 63)).astype(np.float16)
    w = rng.integers(0, 16, (32, 63)).astype(np.uint8)
    small = running_example()
    assert np.array_equal(trace.run(x, w), small.run(x, w))  # type: ignore[attr-defined]


def test_a_grouped_weight_counts_by_its_element() -> None:
    grouped = types["nf4"].grouped(64)
    trace = schedule_transform(
        Tile((32, 63), "float16"), Tile((32, 63), grouped), "float16", devices["a100"]
    )
    assert str(trace) == str(running_example())


def test_nonsense_is_refused() -> None:
    with pytest.raises(ScheduleError, match="no placement 'offline'"):
        running_example(convert="offline")
    with pytest.raises(ShapeError, match=r"\[24, 64\] is no multiple of \[16, 16\]"):
        running_example(tiles={"weight": (24, 64)})
    with pytest.raises(ShapeError, match="do not share K"):
        schedule_transform(
            Tile((2, 3), "float16"), Tile((2, 4), "float16"), "float16", devices["a100"]
        )
    with pytest.raises(ShapeError, match=r"activation is \[1, 63\], not \[32, 63\]"):
        running_example().run(np.zeros((1, 63)), np.zeros((32, 63)))  # type: ignore[attr-defined]
