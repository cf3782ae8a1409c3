"""``ladder experiment``: axes by options, rows to files and back, what is refused."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from ladder.cli.app import run
from ladder.experiments import gpu, read
from ladder.experiments.measured import Measure
from ladder.runtime.tuning.measure import Measured

SMALL = ("experiment", "--shapes", "64x256", "--weights", "int4:64", "--ms", "1,4")


def test_a_sweep_of_ones_own_prints_every_point(capsys) -> None:
    assert run((*SMALL, "--placements", "register,shared", "--devices", "h200,a100")) == 0
    header, *lines, last = capsys.readouterr().out.splitlines()
    assert header.split()[:6] == ["device", "n", "k", "m", "weight", "placement"]
    assert len(lines) == 8
    assert last == "8 points, 0 refused, 0 measured"


def test_every_option_reaches_its_axis(capsys) -> None:
    words = ("experiment", "-s", "64x256", "-w", "int4", "-g", "64,channel", "-m", "1")
    more = ("--zero", "integer", "--compute", "bfloat16", "--sources", "global,source")
    last = ("-a", "bfloat16,int8", "-p", "register", "--fix", "family=ring", "--fix", "depth=3")
    assert run((*words, *more, *last, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 2 * 3
    assert {row["fixed"] for row in found} == {"family=ring, depth=3"}
    first = found[0]
    assert "zero=integer" in first["weight"]
    assert first["activation"] == "bfloat16"
    assert "ring" in first["plan"]
    assert "depth 3" in first["plan"]


def test_rows_go_to_a_file_and_back(tmp_path, capsys) -> None:
    file = tmp_path / "rows.csv"
    assert run((*SMALL, "--out", str(file))) == 0
    first = capsys.readouterr().out
    assert len(read(file)) == 8
    assert run(("experiment", "--rows", str(file))) == 0
    assert capsys.readouterr().out == first
    pytest.importorskip("matplotlib")
    assert run(("experiment", "--rows", str(file), "--figure", str(tmp_path / "rows.svg"))) == 0
    assert (tmp_path / "rows.svg").exists()


def test_a_study_takes_other_axes_and_prints_its_table(capsys) -> None:
    words = ("experiment", "placement", "--ms", "1", "--shapes", "256x256", "--table")
    assert run(words) == 0
    out = capsys.readouterr().out
    assert "| M | offline | global | shared | register |" in out
    assert out.count("| 1 |") == 2


def test_points_are_measured_where_that_is_asked_for(monkeypatch, capsys) -> None:
    @contextmanager
    def measuring(device, ordinal):
        assert (device.name, ordinal) == ("h200", 1)
        yield Measure(lambda candidate: Measured(candidate.estimate_us, 1e-4), device=device)

    monkeypatch.setattr(gpu, "gpu_measure", measuring)
    assert run((*SMALL, "--placements", "register,shared", "--measure", "--gpu", "1")) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "4 points, 0 refused, 4 measured; Kendall tau of model and measurement 1.000"


@pytest.mark.parametrize(
    "words, what",
    [
        (("experiment",), "axes are missing: --shapes, --weights, --ms"),
        (("experiment", "speed"), "no experiment is called 'speed'"),
        ((*SMALL, "--fix", "family"), "a decision is spelled name=value"),
        ((*SMALL, "--fix", "colour=red"), "a plan has no decision colour"),
        ((*SMALL, "--placements", "local"), "placements is"),
        ((*SMALL, "--out", "rows.txt"), ".csv or .parquet"),
        (("experiment", "--rows", "none.csv"), "rows cannot be read"),
        ((*SMALL, "--rows", "none.csv"), "rows cannot be read"),
    ],
)
def test_what_makes_no_sense_is_refused(words, what, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) == 1
    assert what in capsys.readouterr().err


def test_rows_that_are_read_keep_their_axes(tmp_path, capsys) -> None:
    file = tmp_path / "rows.csv"
    assert run((*SMALL, "--out", str(file))) == 0
    assert run((*SMALL, "--rows", str(file))) == 1
    assert "rows that are read have their axes" in capsys.readouterr().err
