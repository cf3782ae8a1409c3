from __future__ import annotations

from typing import Any

import pytest

from ladder.errors import ScheduleError
from ladder.registry import devices, types
from ladder.scheduler.hint import device_hint
from ladder.ttile import Granule, Tile
from ladder.ttype import TType

#: fits bfloat16's range but not float16's
WIDE = TType("wide", bits=2, values=[0, 1, 2.0**20, -1])


def test_the_paper_s_hint_for_a100() -> None:
    """Section 3.3: granularity 16 bytes, shape [4, 8], so 128 bytes of innermost axis, for every layer."""
    hint = device_hint(types["nf4"], "float16", devices["a100"])
    assert hint.instruction.type_of("weight") == "float16"
    assert (hint.granularity, hint.shape, hint.line_bytes) == (16, (4, 8), 128)
    assert str(hint.tile) == "16B[4, 8]"
    granules = {layer.layer: layer.granules.shape for layer in hint.layers}
    assert granules == {
        "core weight": (16, 2),
        "core activation": (8, 2),
        "register": (16, 2),
        "shared": (8,),
        "l2": (2,),
        "dram": (2,),
    }


@pytest.mark.parametrize(
    "weight,activation,chosen",
    [
        ("int4", "float16", "mma.m16n8k16.float16"),
        ("int4", "bfloat16", "mma.m16n8k16.bfloat16"),
        ("int4", "int8", "mma.m16n8k32.int8"),
        ("bipolar1", "int8", "mma.m16n8k32.int8"),
        ("nf4", "bfloat16", "mma.m16n8k16.bfloat16"),
        ("fp8_e5m2", "float16", "mma.m16n8k16.float16"),
    ],
)
def test_the_other_operand_decides_between_types_that_are_equally_near(
    weight: str, activation: str, chosen: str
) -> None:
    hint = device_hint(types[weight], activation, devices["a100"])
    assert hint.instruction.name == chosen


def test_an_eight_bit_core_is_nearer_where_both_operands_fit_it() -> None:
    """On Ada an e4m3 product is nearer to a 4-bit float than a float16 one."""
    hint = device_hint(types["fp4_e2m1"], "fp8_e4m3fn", devices["rtx4090"])
    assert hint.instruction.name == "mma.m16n8k32.fp8_e4m3fn"
    assert not hint.rounds
    reasons = {r.name: r.reason for r in hint.rejected}
    assert reasons["float16 x float16"] == "12 bits away, not 4"
    assert reasons["bfloat16 x bfloat16"] == "12 bits away, not 4"
    assert reasons["fp8_e5m2 x fp8_e5m2"] == "fp8_e4m3fn activations are rounded in fp8_e5m2"


def test_exact_types_go_before_near_ones() -> None:
    """int8 activations fit 8 and 16 bits; a half needs 16."""
    halves = TType("halves", bits=2, values=[0, 0.5, 1, -0.5])
    hint = device_hint(halves, "int8", devices["a100"])
    assert hint.instruction.name == "mma.m16n8k16.float16"
    assert not hint.rounds
    reasons = {r.name: r.reason for r in hint.rejected}
    assert reasons["int8 x int8"] == "rounds the weight, another type holds it"
    assert (
        reasons["bfloat16 x bfloat16"]
        == "as near as float16 x float16, which the device lists first"
    )


def test_rounding_is_taken_where_nothing_is_exact_and_is_said() -> None:
    hint = device_hint(types["nf4"], "float16", devices["a100"])
    assert hint.rounds
    assert str(hint).splitlines()[0].endswith("nf4 x float16, rounded")


def test_overflow_is_never_taken() -> None:
    assert (
        device_hint(WIDE, "bfloat16", devices["a100"]).instruction.name == "mma.m16n8k16.bfloat16"
    )
    with pytest.raises(ScheduleError) as caught:
        device_hint(WIDE, "float16", devices["a100"])
    assert str(caught.value) == (
        "no instruction takes wide weights with float16 activations\n"
        "  at: device a100\n"
        "  hint: float16 x float16: wide may overflow in float16; "
        "bfloat16 x bfloat16: float16 activations are rounded in bfloat16; "
        "int8 x int8: float16 activations may overflow in int8; "
        "int4 x int4: float16 activations may overflow in int4; "
        "int4 x uint4: float16 activations may overflow in uint4; "
        "uint4 x int4: float16 activations may overflow in int4; "
        "uint4 x uint4: float16 activations may overflow in uint4"
    )


def test_a_device_without_products_says_so() -> None:
    empty = devices["a100"].with_(instruction_set=())
    with pytest.raises(ScheduleError, match="no instruction takes") as caught:
        device_hint("float16", "float16", empty)
    assert caught.value.hint == "the device lists no compute instruction"


def test_the_lcm_follows_the_device() -> None:
    """A shared memory that moves 256 bytes at once widens the line, granules of 32 bytes the granularity."""
    a100 = devices["a100"]

    def with_shared(tile: Tile) -> Any:
        levels = tuple(
            level
            if level.name != "shared"
            else type(level)(level.name, level.nbytes, level.bytes_per_second, tile)
            for level in a100.levels
        )
        return device_hint("float16", "float16", a100.with_(levels=levels))

    wide = with_shared(Tile((64,), Granule(4)))
    assert (wide.granularity, wide.shape) == (16, (2, 16))
    coarse = with_shared(Tile((4,), Granule(32)))
    assert (coarse.granularity, coarse.shape) == (32, (4, 4))
