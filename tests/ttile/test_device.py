from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ladder.errors import DeviceError
from ladder.ttile import CostConstants, Device, Granule, MemoryLevel, Tile, isa

LINE = Tile((32,), Granule(1))


def level(name: str) -> MemoryLevel:
    return MemoryLevel(name, 1 << 20, 1e12, LINE)


def device(**changes: Any) -> Device:
    return Device(
        name="toy",
        title="A toy",
        arch="sm_80",
        capability=(8, 0),
        sms=10,
        clock_hz=1e9,
        levels=(level("dram"), level("l2"), level("shared"), level("register")),
        instruction_set=(
            isa.mma("float16", tera_ops=1),
            isa.mma("int8", tera_ops=2),
            isa.ldmatrix(4),
        ),
        pipes=(("alu", 64), ("fma", 128)),
        features=isa.AMPERE,
        cost=CostConstants(launch_us=1, ramp_us=1, pdl_ramp_us=1, dram_latency_us=1),
        shared_bytes_per_block=163 * 1024,
        shared_bytes_per_sm=164 * 1024,
        warps_per_sm=64,
        blocks_per_sm=32,
    ).with_(**changes)


def test_queries_return_data() -> None:
    toy = device()
    assert [i.name for i in toy.instructions(kind="compute")] == [
        "mma.m16n8k16.float16",
        "mma.m16n8k32.int8",
    ]
    assert [i.name for i in toy.instructions(a="int8", w="int8")] == ["mma.m16n8k32.int8"]
    assert toy.instructions(a="int8", w="float16") == ()
    assert toy.instruction("ldmatrix.x4").kind == "load"
    assert toy.pipe("alu") == 64
    assert toy.pipe_per_second("fma") == 128 * 10 * 1e9
    assert toy.dram_bytes_per_second == 1e12
    assert toy.l2_bytes == 1 << 20
    assert toy.has("cp.async", "ldmatrix")
    assert not toy.has("cp.async", "wgmma")


def test_a_device_is_a_value() -> None:
    assert device() == device()
    assert len({device(), device(), device(sms=11)}) == 2


@pytest.mark.parametrize(
    "threads,registers,shared,blocks",
    [
        (128, 32, 0, 16),  # 64 warps of 4
        (1024, 32, 0, 2),  # warps again
        (256, 128, 0, 2),  # 65536 / (8 warps x 4096)
        (256, 129, 0, 1),  # rounded up to 4352 registers a warp, 12 warps fit
        (256, 255, 0, 1),  # 8192 registers a warp, two in each quarter
        (288, 96, 0, 2),  # 9 warps x 3072 registers: five warps fit each quarter
        (288, 104, 0, 1),  # 3328: four fit, 16 in all; quarters are not shared
        (32, 16, 0, 32),  # the limit of blocks
        (128, 32, 40 * 1024, 4),  # 4 x 41 KB = 164 KB
        (128, 32, 40 * 1024 + 1, 3),
        (128, 32, 163 * 1024, 1),
        (128, 32, 163 * 1024 + 1, 0),
        (1025, 32, 0, 0),
        (128, 256, 0, 0),
    ],
)
def test_resident_blocks(threads: int, registers: int, shared: int, blocks: int) -> None:
    """Worked out by hand with the rules of the CUDA occupancy calculator for sm_80."""
    assert (
        device().blocks_resident(threads=threads, registers=registers, shared_bytes=shared)
        == blocks
    )


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"levels": (level("l2"), level("dram"))}, "levels .* are not some of"),
        ({"levels": (level("cache"),)}, "levels .* are not some of"),
        ({"instruction_set": (isa.LDG, isa.LDG)}, r"instructions repeat: \['ld.global.16'\]"),
        ({"features": frozenset()}, "instruction mma.m16n8k16.float16 needs mma.f16"),
        ({"sms": 0}, "sms is 0, not an integer in 1"),
        ({"shared_bytes_per_sm": 1}, "a block may take 166912 B of 1 B"),
    ],
)
def test_a_device_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        device(**changes)


@pytest.mark.parametrize(
    "ask,message",
    [
        (lambda d: d.level("l3"), "no level 'l3'"),
        (lambda d: d.instruction("wgmma"), "no instruction 'wgmma'"),
        (lambda d: d.pipe("xu"), "no pipe 'xu'"),
    ],
)
def test_unknown_names_are_answered_with_the_known_ones(ask: Any, message: str) -> None:
    with pytest.raises(DeviceError, match=message) as caught:
        ask(device())
    assert "at: device toy" in str(caught.value)
    assert caught.value.hint


def test_the_whole_text_of_an_error() -> None:
    with pytest.raises(DeviceError) as caught:
        device().pipe("xu")
    assert str(caught.value) == "no pipe 'xu'\n  at: device toy\n  hint: pipes: alu, fma"


def test_a_device_prints_levels_and_instructions() -> None:
    lines = str(device()).splitlines()
    assert lines[0] == "toy: A toy, sm_80, 10 SMs at 1 GHz"
    assert lines[1] == "  dram: 1048576 B, 1 TB/s (published)"
    assert lines[-1] == "  ldmatrix.x4"


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"sms": 1.5}, "sms is 1.5, not an integer in 1"),
        ({"clock_hz": float("nan")}, "clock_hz is nan, not a finite number > 0"),
        ({"levels": "dram"}, "levels is 'dram', not a tuple of MemoryLevel"),
        ({"pipes": (("alu", 0),)}, "pipes is a tuple .*, not a tuple of"),
        ({"features": ["mma.f16"]}, "features is a list .*, not a set of texts"),
        ({"cost": None}, "cost is None, not a CostConstants"),
        ({"colour": "red"}, "a device has no field colour"),
    ],
)
def test_fields_of_another_kind_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DeviceError, match=message) as caught:
        device(**changes)
    assert caught.value.hint


def test_numbers_of_numpy_are_pythons_afterwards() -> None:
    toy = device(sms=np.int64(10), capability=[np.uint8(8), 0], features=set(isa.AMPERE))
    assert toy == device()
    assert type(toy.sms) is int
    with pytest.raises(DeviceError, match="threads is 0, not an integer >= 1"):
        toy.blocks_resident(threads=0, registers=32, shared_bytes=0)
