"""``ladder tune``: what it asks for, lists, builds, measures and prints; the GPU is a fake."""

from __future__ import annotations

import importlib
import io
import json
import sys
from pathlib import Path

import pytest

import ladder
from ladder.cli import tune_watch
from ladder.cli.app import run
from ladder.cli.tune import spelled_weight
from ladder.errors import TuningError, TypeDeclarationError
from ladder.runtime.tuning import gpu
from ladder.runtime.tuning.database import read_table

SMALL = ("tune", "--shapes", "64x256", "--weights", "int4:128:zeros", "--count", "3")
FAKES = str(Path(__file__).parents[1] / "runtime" / "tuning")


@pytest.fixture
def fakes():
    if FAKES not in sys.path:
        sys.path.insert(0, FAKES)
    return importlib.import_module("fakes")


@pytest.fixture
def machine(fakes, tmp_path, monkeypatch):
    """A GPU that is a fake, and folders of this test; returns what sets the fake's ways."""
    monkeypatch.setenv("LADDER_TUNED_DIR", str(tmp_path / "tuned"))
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(gpu, "this_machine", lambda *_: fakes.MACHINE)
    ways: dict[int, str] = {}
    monkeypatch.setattr(
        gpu, "gpu_measurer", lambda *_: fakes.fake(tmp_path / "log", dict(ways), 0.0)
    )
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "index.json").write_text('{"toolkit": "t", "build": "b"}')
    for m in (1, 16):
        for candidate in fakes.problem(m).candidates(3):
            (tmp_path / "kernels" / f"{candidate.digest}.zip").touch()
    return ways


def measure(tmp_path: Path, *more: str) -> int:
    return run((*SMALL, "--ms", "1,16", "--kernels", str(tmp_path / "kernels"), *more))


def test_a_run_prints_writes_and_is_used(machine, fakes, tmp_path, capsys):
    out, report = tmp_path / "h200.json", tmp_path / "a" / "report.json"
    assert measure(tmp_path, "--out", str(out), "--report", str(report)) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("1/2 matmul(")
    assert "2/2 " in captured.err
    header, first, second, last = captured.out.splitlines()
    assert header.split() == [
        "n",
        "k",
        "m",
        "weight",
        "untuned_us",
        "best_us",
        "gap",
        "failed",
        "best",
    ]
    assert "64  256   1" in first
    assert "64  256  16" in second
    assert last.startswith("untuned plans: median +")
    document = json.loads(report.read_text())
    assert document["gpu"] == "Fake GPU"
    assert document["summary"]["problems"] == document["summary"]["compared"] == 2
    assert [len(row["candidates"]) for row in document["rows"]] == [3, 3]
    entries = read_table(out)
    assert {entry.m for entry in entries} == {1, 16}
    problem = fakes.problem(16)
    best = min(problem.candidates(3), key=fakes.seeded_us)
    assert ladder.schedule(problem.op, "h200", tuned=ladder.tuned()) == best.plan
    arguments = ("plan", "-n", "64", "-k", "256", "-m", "16", "--group", "128", "--zero", "integer")
    assert run((*arguments, "--tuned", "--json")) == 0
    assert ladder.Plan.from_json(capsys.readouterr().out) == best.plan
    assert run((*arguments, "--json")) == 0
    assert ladder.Plan.from_json(capsys.readouterr().out) == problem.candidates(1)[0].plan


def test_json_is_one_document_and_a_second_run_measures_nothing(machine, fakes, tmp_path, capsys):
    assert measure(tmp_path, "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert measure(tmp_path, "--json") == 0
    second = json.loads(capsys.readouterr().out)
    assert first["rows"] == second["rows"]
    assert len(fakes.said(tmp_path / "log", "start")) == 6
    assert measure(tmp_path, "--json", "--again") == 0
    assert len(fakes.said(tmp_path / "log", "start")) == 12


def test_a_table_keeps_what_other_runs_put_there(machine, tmp_path):
    out = tmp_path / "h200.json"
    kernels = ("--kernels", str(tmp_path / "kernels"), "--out", str(out))
    assert run((*SMALL, "--ms", "1", *kernels)) == 0
    assert run((*SMALL, "--ms", "16", *kernels)) == 0
    assert {entry.m for entry in read_table(out)} == {1, 16}


def test_failed_candidates_are_counted_and_a_problem_that_is_given_up_ends_with_1(
    machine, tmp_path, capsys
):
    machine[1] = "crash"
    assert measure(tmp_path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["summary"]["failed_candidates"] == 2
    assert found["rows"][0]["candidates"][1]["failure"] == "the process died: SIGSEGV"
    machine[0] = "memory"
    out = tmp_path / "h200.json"
    assert measure(tmp_path, "--json", "--again", "--out", str(out)) == 1
    found = json.loads(capsys.readouterr().out)
    assert "OUT_OF_MEMORY" in found["rows"][0]["skipped"]
    assert read_table(out) == ()  # what was not measured to the end is not shipped


def test_without_a_gpu_nothing_is_compiled(tmp_path, monkeypatch, capsys):
    def none():
        raise ladder.errors.LaunchError("no driver", at="here", hint="get one")

    monkeypatch.setenv("LADDER_TUNED_DIR", str(tmp_path / "tuned"))
    monkeypatch.setattr(gpu, "cuda_driver", none)
    assert run((*SMALL, "--json")) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.err)["error"] == "LaunchError"
    assert captured.out == ""
    assert not (tmp_path / "tuned").exists()


def test_a_dry_run_lists_what_would_be_measured(fakes, capsys):
    assert run((*SMALL, "--ms", "1,16", "--dry-run", "--json")) == 0
    rows = json.loads(capsys.readouterr().out)
    wanted = [c for m in (1, 16) for c in fakes.problem(m).candidates(3)]
    assert [(row["rank"], row["plan"]) for row in rows] == [(c.rank, c.plan.brief) for c in wanted]
    assert (
        run((*SMALL, "--ms", "1", "--dry-run", "--launch", "pdl", "--activation", "bfloat16")) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all("pdl launch" in line and "bfloat16[1, 64]" in line for line in lines[1:])


def test_build_fills_a_folder(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tvm")
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))
    arguments = ("tune", "-s", "64x256", "-w", "int4:128:zeros", "-m", "1", "--count", "2")
    folder = tmp_path / "kernels"
    assert run((*arguments, "--build", str(folder), "--jobs", "1")) == 0
    built = list(folder.glob("*.zip"))
    captured = capsys.readouterr()
    size = sum(file.stat().st_size for file in built) / 1e6
    assert captured.out == f"2 of 2 kernels in {folder}, {size:.1f} MB\n"
    assert captured.err.splitlines()[1].startswith("2/2 M 1 of matmul(")
    assert len(built) == 2
    assert (folder / "index.json").exists()


@pytest.mark.parametrize(
    "text, name",
    [
        ("int4:128:integer", "int4 g128 scale=float16 zero=integer"),
        ("int4:128:zeros", "int4 g128 scale=float16 zero=integer"),
        ("int4:channel::bfloat16", "int4 channel scale=bfloat16"),
        ("mxfp4", "mxfp4 (fp4_e2m1 g32 scale=e8m0)"),
        ("int8", "int8"),
        ("nf4:64", "nf4 g64 scale=float16"),
    ],
)
def test_weights_are_spelled(text, name):
    assert str(spelled_weight(text)) == name


@pytest.mark.parametrize("text", ["int4:128:yes", "int4:128:zeros:float16:more"])
def test_a_weight_that_is_spelled_wrongly_is_refused(text):
    with pytest.raises(TuningError, match="a weight is spelled"):
        spelled_weight(text)


def test_an_unknown_element_is_refused():
    with pytest.raises(TypeDeclarationError, match="unknown type"):
        spelled_weight("int44:128")


@pytest.mark.parametrize(
    "arguments, code",
    [
        (("tune",), 2),
        (("tune", "-s", "64x256"), 2),
        ((*SMALL, "--count", "0"), 2),
        ((*SMALL, "--ms", ""), 1),
        ((*SMALL, "--ms", "0"), 1),
        (("tune", "-s", ",", "-w", "int8"), 1),
        (("tune", "-s", "64x256", "-w", ","), 1),
        ((*SMALL, "--ms", "one"), 1),
        (("tune", "-s", "gpt", "-w", "int8"), 1),
        (("tune", "-s", "64x256", "-w", "int8", "-d", "tpu"), 1),
    ],
)
def test_a_wrong_command_line(arguments, code):
    assert run((*arguments, "--dry-run")) == code


def test_a_terminal_gets_a_bar(machine, tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.setattr(tune_watch.sys, "stderr", stream)
    assert measure(tmp_path, "--json") == 0
    text = stream.getvalue()
    assert "6/6" in text
    assert "64x256 m16" in text
    assert "untuned" in text
