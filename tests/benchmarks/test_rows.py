"""Rows have the keys that readers rely on, whatever happened, and the file is JSON with a row a line."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.bench import file_name
from benchmarks.grid import Case
from benchmarks.rows import KEYS, Machine, Measured, failed, passes, read, row, write

MACHINE = Machine("NVIDIA H200", "580.1", "nvrtc 13.0.88", "abc", "python -m x", "2026-01-01")
CASE = Case("int4", 8192, 8192, 1, "float16")

#: as the issue asks for them, in its order
PROMISED = (
    *("device", "driver", "toolkit", "date", "commit", "command", "n", "k", "m", "weight"),
    *("activation", "group_size", "launch", "us", "error", "peers"),
)


def test_a_run_is_named_after_device_date_and_commit():
    machine = replace(MACHINE, date="2026-11-29T18:00:00+00:00", commit="0c1793e83b21+")
    assert file_name(machine, ("base",)) == "h200-base-2026-11-29-0c1793e83b21.json"
    name = file_name(machine, ("decode", "prefill", "decode"))
    assert name == "h200-decode-prefill-2026-11-29-0c1793e83b21.json"


def measured(us: float = 10.0, error: float = 2e-4, **peers: float) -> Measured:
    return Measured(us, error, {"cublas_fp16": 39.0, **peers}, "skinny", 64)


def test_a_row_has_the_promised_keys_first():
    found = row(MACHINE, CASE, measured(humming=16.5))
    assert tuple(found)[: len(PROMISED)] == PROMISED
    assert tuple(found) == KEYS
    assert found["peers"] == {"cublas_fp16": 39.0, "humming": 16.5}
    assert (found["n"], found["k"], found["m"], found["group_size"]) == (8192, 8192, 1, 128)
    assert found["bar"] == 1e-3
    assert found["type"] == "int4 g128 scale=float16 zero=integer"


def test_a_row_says_what_the_bytes_of_its_weight_allow():
    made = replace(measured(), read_us=9.9, predicted_us=11.25, ceilings={"BW dram": 8.1234})
    found = row(MACHINE, CASE, made)
    # 8192 x 8192 / 2 B of codes, 64 groups a row with a scale and a zero of 2 B each, at 4.65 TB/s
    assert found["bound_us"] == pytest.approx((8192 * 8192 / 2 + 8192 * 64 * 4) / 4.65e6, abs=1e-3)
    assert found["share"] == pytest.approx(found["bound_us"] / 10.0, abs=1e-4)
    assert (found["read_us"], found["predicted_us"]) == (9.9, 11.25)
    assert found["ceilings"] == {"BW dram": 8.123}
    assert (found["suite"], found["any_m"]) == ("base", False)


def test_a_peer_that_is_missing_is_null_and_further_ones_come_last():
    assert row(MACHINE, CASE, measured())["peers"]["humming"] is None
    found = row(MACHINE, CASE, measured(cublas_bf16=38.0))
    assert list(found["peers"]) == ["cublas_fp16", "humming", "cublas_bf16"]


def test_a_failed_row_has_the_same_keys_and_its_reason():
    found = failed(MACHINE, CASE, "LaunchError: no\n  device")
    assert tuple(found) == (*KEYS, "failure")
    assert found["failure"] == "LaunchError: no device"
    assert found["us"] is found["error"] is found["share"] is None
    assert found["bound_us"] > 0
    assert not passes(found)


@pytest.mark.parametrize("error,kept", [(9.9e-4, True), (1.1e-3, False)])
def test_a_row_passes_within_its_bar(error, kept):
    assert passes(row(MACHINE, CASE, measured(error=error))) is kept


def test_the_file_is_an_array_with_a_row_a_line(tmp_path):
    rows = [row(MACHINE, CASE, measured()), failed(MACHINE, CASE, "why")]
    file = tmp_path / "new" / "h200.json"
    write(file, rows)
    write(file, rows)
    assert json.loads(file.read_text()) == rows
    assert len(file.read_text().splitlines()) == len(rows) + 2
    assert [path.name for path in file.parent.iterdir()] == ["h200.json"]


def test_a_number_that_json_does_not_have_is_not_written(tmp_path):
    broken = row(MACHINE, CASE, measured()) | {"us": float("nan")}
    with pytest.raises(ValueError, match="JSON"):
        write(tmp_path / "h200.json", [broken])
    assert not list(tmp_path.iterdir())


def test_a_file_comes_back_and_one_of_an_older_version_is_named(tmp_path):
    rows = [row(MACHINE, CASE, measured()), failed(MACHINE, CASE, "why")]
    file = tmp_path / "h200.json"
    write(file, rows)
    assert read(file) == rows
    del rows[1]["suite"]
    write(file, rows)
    with pytest.raises(ValueError, match="row 1 has no suite: measure again"):
        read(file)
