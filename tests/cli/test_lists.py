"""``ladder types`` and ``ladder devices``."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from ladder.cli.app import run
from ladder.registry import devices, types

EXAMPLE = Path(__file__).parents[2] / "examples" / "new_device.py"


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(arguments) == 0
    return capsys.readouterr().out


def test_types_lists_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "types")
    words = set(text.replace(",", " ").split())
    assert set(types) <= words
    assert set(types.aliases) <= words


def test_types_as_json_says_what_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(output(capsys, "types", "--json"))
    elements = {record["name"]: record for record in listed["elements"]}
    assert elements["int4"]["min"] == -8
    assert elements["fp8_e5m2"]["max"] == float(ml_dtypes.finfo(ml_dtypes.float8_e5m2).max)
    assert elements["int8"]["bfloat16"] == "exact"
    assert elements["nf4"]["float16"].startswith("rounds")
    assert elements["e8m0"]["float16"] == "may overflow"
    assert {record["name"] for record in listed["grouped"]} >= {"mxfp8", "mxfp6", "mxfp4", "nvfp4"}


def test_one_type_shows_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(output(capsys, "types", "fp6_e3m2", "--json"))
    codes = np.arange(64, dtype=np.uint8).view(ml_dtypes.float6_e3m2fn)
    assert record["values"] == codes.astype(np.float64).tolist()
    text = output(capsys, "types", "fp6_e3m2")
    assert text.splitlines()[-1].split() == ["63", "111111", "-28"]


def test_one_type_may_hold_nan_and_infinity(capsys: pytest.CaptureFixture[str]) -> None:
    values = json.loads(output(capsys, "types", "float8_e5m2", "--json"))["values"]
    assert values[0x7C:0x80] == ["inf", "nan", "nan", "nan"]


def test_devices_lists_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(output(capsys, "devices", "--json"))
    assert [record["name"] for record in listed] == list(devices)
    lines = output(capsys, "devices").splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(devices)


def test_one_device_shows_levels_instructions_and_pipes(capsys: pytest.CaptureFixture[str]) -> None:
    h200 = devices["h200"]
    record = json.loads(output(capsys, "devices", "h200", "--json"))
    assert [level["name"] for level in record["levels"]] == [level.name for level in h200.levels]
    assert record["pipes"] == dict(h200.pipes)
    assert record["features"] == sorted(h200.features)
    text = output(capsys, "devices", "h200")
    assert all(instruction.name in text for instruction in h200.instruction_set)


def test_a_device_file_is_shown_like_a_shipped_one(capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(output(capsys, "devices", str(EXAMPLE), "--json"))
    assert record["name"] == "rtx_a6000"


@pytest.mark.parametrize(
    "arguments,kind",
    [
        (("types", "int44"), "TypeDeclarationError"),
        (("devices", "h2000"), "DeviceError"),
        (("devices", "nowhere.py"), "DeviceError"),
    ],
)
def test_an_unknown_name_ends_with_1_and_a_hint(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], kind: str
) -> None:
    assert run(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"{kind}: ")
    assert "hint: " in captured.err
    assert run([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["error"] == kind
