"""Kernels travel as zip files and come back as they were, without what only the emulator reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ladder
from benchmarks import build as builder
from benchmarks import read_kernel, store
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
    return build([CASE], "h200", folder)[CASE.name]


def test_a_kernel_comes_back(folder, built):
    assert built["registers"] > 0
    assert built["spill_bytes"] == 0
    assert built["artifact"] == CASE.artifact
    assert built["bytes"] == (folder / f"{CASE.artifact}.zip").stat().st_size
    kernel = store.load(folder, CASE.artifact)
    assert kernel.plan == CASE.plan("h200")
    assert kernel.variants[0].lowered.listing is None
    assert kernel.variants[0].cubins["sm_90a"].code[:4] == b"\x7fELF"


def test_a_kernel_is_loaded_without_tvm(folder, built):
    code = (
        "import sys; sys.modules['tvm'] = None; from pathlib import Path; from benchmarks import store;"
        f"print(store.load(Path({str(folder)!r}), {CASE.artifact!r}).plan.launch)"
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
    wrong = Case("int4", 64, 256, 1, "float32")
    found = build([CASE, wrong], "h200", folder)
    assert set(found[wrong.name]) == {"failure"}
    assert "float32" in found[wrong.name]["failure"]
    assert found[CASE.name]["artifact"] == CASE.artifact


def test_cases_of_one_operator_for_any_m_share_an_artifact_and_have_their_own_registers(folder):
    cases = [Case("int4", 64, 256, m, "float16", any_m=True) for m in (1, 300)]
    found = build([cases[0], CASE, cases[1]], "h200", folder)
    few, many = (found[case.name] for case in cases)
    assert few["artifact"] == many["artifact"] == "int4-64x256-any-m-float16-plain"
    assert few["bytes"] > many["bytes"] == 0
    plans = store.load(folder, few["artifact"]).plan
    assert plans == cases[0].plan("h200")
    assert few["shared_bytes"] == plans.plan_for(1).shared_bytes
    assert many["shared_bytes"] == plans.plan_for(300).shared_bytes


def test_a_text_that_differs_in_its_name_alone_is_compiled_once_and_launched_by_its_own_plan(
    monkeypatch,
):
    compiled = []
    compile_plan = ladder.compile
    monkeypatch.setattr(
        ladder, "compile", lambda *a, **b: compiled.append(a) or compile_plan(*a, **b)
    )
    monkeypatch.setattr(builder, "_MADE", {})
    first, second = (
        builder.artifact_of(Case("int4", 8192, 8192, m, "float16").plan("h200"))
        for m in (2048, 4096)
    )
    assert len(compiled) == 1
    (one,), (other,) = first.parts, second.parts
    assert one.lowered.source == other.lowered.source
    assert one.cubins == other.cubins
    assert other.plan["value"]["op"]["m"] == 4096
    assert (one.plan["value"]["op"]["m"], one.plan != other.plan) == (2048, True)


def test_the_index_knows_what_was_not_built():
    index = store.Index("abc", "nvrtc", "x", {"a": {"artifact": "a"}, "b": {"failure": "why"}})
    assert index.built("a")
    assert not index.built("b")
    assert (index.failure("b"), index.failure("c")) == ("why", "not built")


def test_the_floor_is_compiled_beside_the_kernels(folder):
    read_kernel.save(folder, "sm_90a")
    code = (folder / read_kernel.FILE).read_bytes()
    assert all(reader.name.encode() in code for reader in read_kernel.READERS)


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
