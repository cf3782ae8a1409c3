"""``ladder experiment``: axes by options, rows to files and back, what is refused."""

from __future__ import annotations

import json
from contextlib import contextmanager, nullcontext
from functools import partial

import pytest

from ladder.cli.app import run
from ladder.experiments import gpu, read
from ladder.experiments.measured import Measure
from ladder.runtime.tuning import kernels
from ladder.runtime.tuning.kernels import entry
from ladder.runtime.tuning.measure import Measured
from ladder.runtime.tuning.worker import Failed

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
    def measuring(device, ordinal, folder, jobs):
        assert (device.name, ordinal, folder, jobs) == ("h200", 1, None, 3)
        yield Measure(lambda candidate: Measured(candidate.estimate_us, 1e-4), device=device)

    monkeypatch.setattr(gpu, "gpu_measure", measuring)
    # large enough for the places to differ: the memory's latency is all that a small one takes
    points = ("experiment", "-s", "4096x4096", "-w", "int4:64", "-m", "1,4")
    options = ("--measure", "--gpu", "1", "--jobs", "3")
    assert run((*points, "--placements", "register,shared", *options)) == 0
    captured = capsys.readouterr()
    *_, before = captured.err.splitlines()
    assert before.startswith("4/4 h200 4096x4096 m4 int4 g64 scale=float16 shared: ")
    last = captured.out.splitlines()[-1]
    assert last == "4 points, 0 refused, 4 measured; Kendall tau of model and measurement 1.000"


ONE = ("experiment", "-s", "64x256", "-w", "int4:64", "-m", "1")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where kernels are built; ``compile_plan`` is a stand-in that refuses what decodes in shared memory."""

    def compiled(settings, folder):
        return partial(Compiled, folder)

    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    monkeypatch.setattr(kernels, "check_compiler", lambda settings: None)
    monkeypatch.setattr(kernels, "toolchain_version", lambda settings: "nvrtc 1")
    monkeypatch.setattr(kernels, "into_folder", compiled)
    monkeypatch.setattr(kernels, "Ahead", Inline)
    return tmp_path / "kernels"


class Compiled:
    """A compiler that writes a megabyte for each plan."""

    def __init__(self, folder) -> None:
        self.folder = folder

    def __call__(self, wanted) -> Failed | None:
        if getattr(wanted.plan, "convert", "") == "shared":
            return Failed("ToolchainError: refused")
        entry(self.folder, wanted).write_bytes(bytes(10**6))
        return None


class Inline:
    """Compiles in this process, when a kernel is announced."""

    def __init__(self, make, jobs: int) -> None:
        self.work, self.found = make(), {}

    def announce(self, wanted) -> None:
        for one in wanted:
            assert one.digest not in self.found
            self.found[one.digest] = self.work(one)

    def missing(self, wanted) -> Failed | None:
        return self.found[wanted.digest]

    def close(self) -> None: ...


def test_build_fills_a_folder_and_rows_find_their_kernels(folder, monkeypatch, capsys) -> None:
    assert run((*ONE, "--build", str(folder))) == 1  # one does not compile
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == f"3 of 4 kernels in {folder}, 3.0 MB"
    assert len(captured.err.splitlines()) == 4
    assert captured.err.count("ToolchainError: refused") == 1
    assert len(list(folder.glob("*.zip"))) == 3

    @contextmanager
    def measuring(device, ordinal, given, jobs):
        assert given == folder
        decode = {"dequantize": lambda kernel: Measured(kernel.cost.us, 1e-4)}
        product = lambda candidate: Measured(candidate.estimate_us, 1e-4)  # noqa: E731
        yield Measure(product, decode, device, kernels.Brought(given))

    monkeypatch.setattr(gpu, "gpu_measure", measuring)
    assert run((*ONE, "--measure", "--kernels", str(folder))) == 0
    *_, note, last = capsys.readouterr().out.splitlines()
    assert note == "1 of 4 points: matmul not measured: ToolchainError: refused"
    assert last.startswith("4 points, 0 refused, 3 measured")


def test_a_plan_that_was_not_built_is_said(folder, monkeypatch, capsys) -> None:
    assert run((*ONE, "-p", "register", "--build", str(folder))) == 0
    measure = Measure(lambda _: Measured(1.0, 1e-4), kernels=kernels.Brought(folder))
    monkeypatch.setattr(gpu, "gpu_measure", lambda *_: nullcontext(measure))
    more = ("-p", "register,shared", "--fix", "family=ring", "--measure", "--kernels", str(folder))
    capsys.readouterr()
    assert run((*ONE, *more)) == 0
    *_, note, last = capsys.readouterr().out.splitlines()
    assert note == f"2 of 2 points: matmul not measured: its kernel is not in {folder}"
    assert last.startswith("2 points, 0 refused, 0 measured")


def test_a_folder_of_another_source_is_refused(folder, capsys) -> None:
    folder.mkdir()
    (folder / kernels.INDEX).write_text('{"toolkit": "nvrtc 1", "build": "old nvrtc 1"}')
    assert run((*ONE, "--build", str(folder))) == 1
    assert "kernels of another build" in capsys.readouterr().err
    assert not list(folder.glob("*.zip"))


@pytest.mark.parametrize(
    "words, what",
    [
        (("--build", "f", "--measure"), "makes no rows for --measure"),
        (("--build", "f", "--out", "rows.csv", "--table"), "makes no rows for --out, --table"),
        (("--build", "f", "--rows", "rows.csv"), "makes no rows for --rows"),
        (("--kernels", "f"), "kernels are brought along to be measured"),
        (("--build", "f", "--kernels", "f"), "kernels are brought along to be measured"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words, what, capsys) -> None:
    assert run((*ONE, *words)) == 1
    assert what in capsys.readouterr().err


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
