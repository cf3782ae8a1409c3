"""A run keeps what it measured, whatever fails: a kernel that was not built, a weight, a launch, the device, the time."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from benchmarks import bench, rows, store
from benchmarks.grid import chosen
from benchmarks.rows import Machine, Measured
from ladder.errors import LaunchError

MACHINE = Machine("NVIDIA H200", "580.1", "nvrtc 13", "abc", "python -m x", "2026-01-01")


class FakeBench:
    """Measures at once; what ``breaks`` names raises."""

    def __init__(self, breaks: str = "", *, device_too: bool = False) -> None:
        self.breaks, self.device_too = breaks, device_too
        self.broken = ""
        self.groups: list[list[str]] = []

    def weights(self, group):
        if self.breaks == group[0].weight:
            raise RuntimeError("no memory")
        return group[0].packed

    def measure(self, weights, cases):
        assert {case.packed for case in cases} == {weights}
        self.groups.append([case.name for case in cases])
        if self.breaks in self.groups[-1]:
            raise RuntimeError("launch failed")
        return {case: Measured(10.0, 2e-4, {}, "plan", 64) for case in cases}

    def note_failure(self, case):
        self.broken = case.name if self.device_too else ""


@pytest.fixture
def cases():
    return chosen([], quick=True, suites=["decode"])


@pytest.fixture
def go(cases, tmp_path):
    def run(fake: FakeBench, *, missing: str = "", seconds: float = 60.0) -> dict[str, dict]:
        kernels = {case.name: {"artifact": case.artifact, "registers": 64} for case in cases}
        if missing:
            kernels[missing] = {"failure": "ptxas died"}
        index = store.Index("abc", "nvrtc", "x", kernels)
        out = tmp_path / "h200.json"
        run = bench.Run(MACHINE, cases, out, Console(file=io.StringIO()))
        bench.run_all(run, fake, cases, index, time.monotonic() + seconds)
        written = rows.read(out)
        assert len(written) == len(cases)
        return {case.name: row for case, row in zip(cases, written, strict=True)}

    return run


def test_launches_of_one_m_are_measured_together(go):
    fake = FakeBench()
    found = go(fake)
    assert all(rows.passes(row) for row in found.values())
    assert all(len(group) == 2 for group in fake.groups)
    assert {row["suite"] for row in found.values()} == {"decode"}


def test_a_kernel_that_was_not_built_is_a_row_with_its_reason(go, cases):
    name = cases[0].name
    found = go(FakeBench(), missing=name)
    assert found[name]["failure"] == "ptxas died"
    assert sum("failure" in row for row in found.values()) == 1


def test_a_weight_that_cannot_be_made_fails_its_rows_alone(go):
    found = go(FakeBench("nvfp4"))
    assert {row["weight"] for row in found.values() if "failure" in row} == {"nvfp4"}


def test_a_launch_that_fails_fails_its_m_alone(go, cases):
    found = go(FakeBench(cases[0].name))
    failed = {row["m"] for row in found.values() if "failure" in row}
    assert failed == {cases[0].m}
    assert sum("failure" in row for row in found.values()) == 2


def test_after_a_device_failed_nothing_more_is_launched(go, cases):
    fake = FakeBench(cases[0].name, device_too=True)
    found = go(fake)
    later = [row for row in found.values() if row["weight"] != cases[0].weight]
    assert later
    assert all(f"the device failed in {cases[0].name}" in row["failure"] for row in later)


def test_no_weight_is_started_after_the_time_given(go):
    fake = FakeBench()
    found = go(fake, seconds=-1.0)
    assert not fake.groups
    assert all("--seconds" in row["failure"] for row in found.values())


def test_without_a_gpu_nothing_is_compiled(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(bench, "open_index", lambda *_: pytest.fail("compiled for nothing"))
    with pytest.raises(LaunchError, match="torch finds no GPU"):
        bench.main(suites=["base"], only=[], humming=[], without=[], artifacts=None, out=None)
