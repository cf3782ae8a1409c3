"""A device from a user's own file: what it may not do, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.errors import DeviceError
from ladder.ttile import load_device

FILE = """
from ladder.ttile import CostConstants, Device, Granule, MemoryLevel, Tile, isa

DEVICE = Device(
    name="mine",
    title="Mine",
    arch="sm_80",
    capability=(8, 0),
    sms=4,
    clock_hz=1e9,
    levels=(MemoryLevel("dram", 2**30, 1e11, Tile((32,), Granule(1))),),
    instruction_set=(isa.mma("float16", tera_ops=1),),
    pipes=(("alu", 64),),
    features=isa.AMPERE,
    cost=CostConstants(launch_us=1, ramp_us=1, pdl_ramp_us=1, dram_latency_us=1),
    shared_bytes_per_block=48 * 1024,
    shared_bytes_per_sm=64 * 1024,
    warps_per_sm=32,
    blocks_per_sm=16,
)
"""


def test_a_user_s_own_file(tmp_path: Path) -> None:
    path = tmp_path / "my_device.py"
    path.write_text(FILE, encoding="utf-8")
    mine = load_device(path)
    assert (mine.name, mine.sms) == ("mine", 4)
    assert load_device(str(path)) == mine


@pytest.mark.parametrize(
    "text,message",
    [
        (None, "no device file"),
        ("x = 1", "DEVICE is missing"),
        ("DEVICE = 3", "DEVICE is 3"),
        ("DEVICE = (", "SyntaxError"),
        ("import no_such_package_anywhere", "ModuleNotFoundError"),
        (FILE.replace("sms=4", "sms=0"), "DeviceError: sms is 0, not an integer in 1"),
    ],
    ids=["no file", "nothing", "other type", "syntax", "import", "contradiction"],
)
def test_a_file_that_is_no_device_says_why(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "my_device.py"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(DeviceError, match=message):
        load_device(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "my_device.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(DeviceError, match="is no Python file"):
        load_device(path)


def test_a_file_that_ends_the_program_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "my_device.py"
    path.write_text("import sys\n\nsys.exit('no GPU')\n", encoding="utf-8")
    with pytest.raises(DeviceError) as caught:
        load_device(path)
    assert caught.value.what == "SystemExit: the file ended the program with 'no GPU'"
    assert caught.value.at == f"{path}, line 3"
    assert caught.value.hint == "a device file only defines DEVICE"


@pytest.mark.parametrize(
    "text,line",
    [("x = 1\nDEVICE = (\n", 2), ("x = 1\n\ny = 1 / 0\n", 3), ("def f():\n    g()\n\nf()\n", 2)],
    ids=["syntax", "top", "inside"],
)
def test_an_error_in_a_file_names_its_line(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "my_device.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DeviceError) as caught:
        load_device(path)
    assert caught.value.at == f"{path}, line {line}"
    assert "correct the file" in caught.value.hint


def test_the_hint_of_a_device_that_contradicts_itself_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "my_device.py"
    path.write_text(FILE.replace("isa.AMPERE", "frozenset()"), encoding="utf-8")
    with pytest.raises(
        DeviceError, match=r"DeviceError: instruction mma.* needs mma.f16"
    ) as caught:
        load_device(path)
    assert "add the feature to the device" in caught.value.hint


@pytest.mark.parametrize("path", [None, 3, "", "a\0b", "x" * 5000, ["my.py"]])
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(DeviceError) as caught:
        load_device(path)  # type: ignore[arg-type]
    assert caught.value.at == "load_device"
    assert caught.value.hint
