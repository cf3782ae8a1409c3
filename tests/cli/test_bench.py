"""``ladder bench``: its rows, and its refusal where there is no GPU."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import ladder
from ladder.cli.app import run
from ladder.cli.bench import COLUMNS, predicted_us, row
from ladder.runtime.timing import Timing


def planned(m: int | None) -> object:
    weight = ladder.types["int4"].grouped(128, scale="float16")
    op = ladder.matmul(m=m, n=512, k=1024, activation="float16", weight=weight, out="float32")
    return ladder.schedule(op, device="h200")


def test_a_row_counts_bytes_and_operations() -> None:
    found = row(planned(4), 4, Timing(2.0, 1.5, 3.0, 8, 20), weight_bytes=1_000_000, error=1e-4)
    assert set(found) == set(COLUMNS)
    assert (found["us"], found["least_us"], found["most_us"]) == (2.0, 1.5, 3.0)
    # 1e6 B of weights, 4 x 1024 activations of 2 B, 4 x 512 outputs of 4 B in 2 us
    assert found["gb_per_s"] == pytest.approx((1_000_000 + 8192 + 8192) / 2e-6 / 1e9)
    assert found["tera_ops"] == pytest.approx(2 * 4 * 512 * 1024 / 2e-6 / 1e12)


def test_a_plan_set_is_asked_for_the_rows_at_hand() -> None:
    plans = planned(None)
    assert predicted_us(plans, 1) == predicted_us(plans.plan_for(1), 1)
    assert predicted_us(plans, 4096) > predicted_us(plans, 1) > 0


@pytest.mark.skipif(
    importlib.util.find_spec("tvm") is None, reason="the compile extra is not installed"
)
@pytest.mark.parametrize("m", [("-m", "1"), ("-m", "1", "-m", "16")])
def test_bench_times_or_says_that_there_is_no_gpu(
    m: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))
    folder = str(tmp_path / "kernel")
    assert run(("compile", "-n", "64", "-k", "256", "--output", folder)) == 0
    capsys.readouterr()
    code = run(("bench", folder, *m, "--json"))
    captured = capsys.readouterr()
    if code:
        assert code == 1
        assert json.loads(captured.err)["error"] == "LaunchError"
        return
    rows = json.loads(captured.out)["rows"]
    assert [str(found["m"]) for found in rows] == list(m[1::2])
    assert all(found["us"] > 0 and found["error"] < 1e-3 for found in rows)


def checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout whose benchmarks write down how they were called, on a machine that seems to have torch."""
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "__init__.py").touch()
    text = "import typer\ndef main(**given):\n    print(given)\n    raise typer.Exit(1)\n"
    (folder / "benchmarks" / "bench.py").write_text(text)
    (folder / "torch.py").touch()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    for name in ("benchmarks", "benchmarks.bench"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_suites_are_run_by_the_benchmarks_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout(tmp_path, monkeypatch)
    code = run(("bench", "--suite", "decode", "--suite", "sweep", "--artifacts", "made"))
    for name in ("benchmarks", "benchmarks.bench"):
        sys.modules.pop(name, None)
    assert code == 1  # that of the benchmarks
    wanted = {"suites": ["decode", "sweep"], "artifacts": Path("made")}
    assert capsys.readouterr().out == f"{wanted}\n"


def test_suites_outside_a_checkout_are_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(("bench", "--suite", "decode")) == 1
    assert "run it in the root of a checkout" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments,reason",
    [
        ((), "give the folder of a kernel, or --suite NAME"),
        (("folder", "--suite", "decode"), "give the folder of a kernel, or --suite NAME"),
        (("--suite", "decode", "-m", "4"), "a suite takes no -m"),
        (("--suite", "decode", "--json"), "a suite takes no --json"),
        (("folder", "--artifacts", "made"), "a folder takes no --artifacts"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    arguments: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(("bench", *arguments)) == 2
    assert reason in " ".join(capsys.readouterr().err.split())
