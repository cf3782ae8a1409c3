"""``ladder compile`` and ``ladder run``."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import ladder
from ladder.cli.app import run
from ladder.cli.kernels import Problem

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tvm") is None, reason="the compile extra is not installed"
)
REQUEST = ("-n", "48", "-k", "256", "--weight", "int4", "--group", "128")


@pytest.fixture(autouse=True)
def _private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run(("compile", *REQUEST, "-m", "2", "--bias", "--output", str(tmp_path / "k"))) == 0
    assert f"written to {tmp_path / 'k'}" in capsys.readouterr().out
    return tmp_path / "k"


def test_what_compile_wrote_can_be_loaded(folder: Path) -> None:
    kernel = ladder.load(folder)
    assert (kernel.plan.op.n, kernel.plan.op.k, kernel.plan.op.m) == (48, 256, 2)


def test_compile_as_json_and_as_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(("compile", *REQUEST, "-m", "2", "--json")) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["folder"] is None
    assert 'extern "C"' in record["source"]
    if record["toolchain"] != "none":
        assert all(size > 0 for size in record["kernels"][0]["cubins"].values())
    assert run(("compile", *REQUEST, "-m", "2", "--source")) == 0
    assert capsys.readouterr().out == record["source"] + "\n"


@pytest.mark.parametrize("on", ["numpy", "emulator"])
def test_run_prints_the_error_against_float64(
    folder: Path, on: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(("run", str(folder), "-m", "2", "--on", on, "--json")) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["m"], record["on"]) == (2, on)
    assert 0 < record["error"] < 1e-3


@pytest.mark.parametrize("on", ["numpy", "emulator"])
def test_an_epilogue_by_its_steps(
    tmp_path: Path, on: str, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = ("--epilogue", "gelu_gate, residual")
    assert run(("compile", *REQUEST, "-m", "2", *steps, "--output", str(tmp_path / "k"))) == 0
    assert ladder.load(tmp_path / "k").plan.op.out_n == 24
    capsys.readouterr()
    assert run(("run", str(tmp_path / "k"), "-m", "2", "--on", on, "--json")) == 0
    record = json.loads(capsys.readouterr().out)
    assert "gelu(gate)*up, residual" in record["operator"]
    assert 0 < record["error"] < 1e-3
    assert run(("plan", *REQUEST, "--epilogue", "mish")) == 1
    assert "not a tuple of names of steps" in capsys.readouterr().err


def test_run_chooses_where_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(("run", str(folder), "-m", "2")) == 0
    assert "m = 2 on " in capsys.readouterr().out


def test_the_error_is_an_error(folder: Path) -> None:
    """A result that is wrong by a tenth has an error of a tenth."""
    problem = Problem.random(ladder.load(folder), 2, seed=3)
    assert problem.error(problem.exact) == 0
    assert problem.error(1.1 * problem.exact) == pytest.approx(0.1)
    assert np.isnan(problem.error(np.full_like(problem.exact, np.nan)))


def test_rows_that_the_kernel_does_not_take_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(("run", str(folder), "-m", "3")) == 1
    assert "the kernel is for m = 2, not 3" in capsys.readouterr().err


def test_a_folder_that_is_no_artifact_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(("run", str(tmp_path / "nothing"))) == 1
    assert capsys.readouterr().err.startswith("ArtifactError: ")
