"""Kernels travel as zip files and come back as they were, without what only the emulator reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import store
from benchmarks.build import build
from benchmarks.grid import Case

pytest.importorskip("tvm")
ROOT = Path(__file__).parents[2]
CASE = Case("int4", 64, 256, 1, "float16")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def built(folder) -> dict:
    return build(CASE, "h200", folder)


def test_a_kernel_comes_back(folder, built):
    assert built["registers"] > 0
    assert built["spill_bytes"] == 0
    assert built["bytes"] == (folder / f"{CASE.name}.zip").stat().st_size
    kernel = store.load(folder, CASE.name)
    assert kernel.plan == CASE.plan("h200")
    assert kernel.variants[0].lowered.listing is None
    assert kernel.variants[0].cubins["sm_90a"].code[:4] == b"\x7fELF"


def test_a_kernel_is_loaded_without_tvm(folder, built):
    code = (
        "import sys; sys.modules['tvm'] = None; from pathlib import Path; from benchmarks import store;"
        f"print(store.load(Path({str(folder)!r}), {CASE.name!r}).plan.launch)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "plain\n", done.stderr


def test_a_failure_is_an_answer(folder):
    found = build(Case("int4", 64, 256, 1, "float32"), "h200", folder)
    assert set(found) == {"failure"}
    assert "float32" in found["failure"]


def test_the_index_comes_back(tmp_path):
    index = store.Index("abc+", "nvrtc", "python -m benchmarks.build", {"x": {"registers": 40}})
    index.save(tmp_path)
    assert store.Index.load(tmp_path) == index


def test_the_commit_is_that_of_the_tree_or_unknown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert store.commit() == "unknown"
    monkeypatch.setenv("PATH", "")
    assert store.commit() == "unknown"
