"""Kernels are compiled ahead in processes of their own, or brought along in a folder."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

import ladder
from ladder.errors import LoweringError, ToolchainError, TuningError
from ladder.runtime.tuning import kernels as module
from ladder.runtime.tuning.kernels import (
    Ahead,
    Brought,
    build_of,
    check_compiler,
    entry,
    into_cache,
    into_folder,
    load_kernel,
    on_disk,
    read_index,
    write_failure,
    write_index,
)
from ladder.runtime.tuning.problem import plan_digest
from ladder.runtime.tuning.worker import Failed, TransientError
from ladder.settings import Settings


def test_each_kernel_is_compiled_once_and_failures_are_values(fakes, tmp_path):
    candidates = fakes.problem().candidates(4)
    ahead = Ahead(fakes.compiler(tmp_path / "log", {1: "raise", 2: "hang"}), 2, limit_s=1.5)
    ahead.announce(candidates)
    ahead.announce(candidates)
    found = [ahead.missing(candidate) for candidate in candidates]
    ahead.close()
    assert found[0] is found[3] is None
    assert found[1].reason == "compiling: ValueError: this one is refused"
    assert found[2].reason == "compiling: not done after 1.5 s"
    assert len(fakes.said(tmp_path / "log", "start")) == 4


def test_a_compiler_that_dies_is_asked_once_more(fakes, tmp_path):
    (candidate,) = fakes.problem().candidates(1)
    ahead = Ahead(fakes.compiler(tmp_path / "log", {0: "crash"}), 1)
    found = ahead.missing(candidate)
    ahead.close()
    assert found.reason == "compiling: the process died: SIGSEGV"
    assert len(fakes.said(tmp_path / "log", "start")) == 2


def test_closing_ends_what_is_being_compiled(fakes, tmp_path):
    ahead = Ahead(fakes.compiler(tmp_path / "log", dict.fromkeys(range(4), "hang")), 1)
    ahead.announce(fakes.problem().candidates(4))
    deadline = time.monotonic() + 30
    while not fakes.said(tmp_path / "log", "start") and time.monotonic() < deadline:
        time.sleep(0.02)
    begun = time.monotonic()
    ahead.close()
    ahead._pool.shutdown(wait=True)
    assert time.monotonic() - begun < 10
    assert len(fakes.said(tmp_path / "log", "start")) == 1


def test_a_folder_travels_without_what_only_people_read(fakes, tmp_path):
    pytest.importorskip("tvm")
    settings = Settings.read()
    settings = replace(settings, cache_dir=str(tmp_path / "cache"))
    first, second = fakes.problem().candidates(2)
    folder = tmp_path / "kernels"
    write_index(folder, settings)
    build = into_folder(settings, folder)()
    assert build(first) == entry(folder, first).stat().st_size < 60_000
    assert build(first) == entry(folder, first).stat().st_size  # it is there already
    brought = Brought(folder)
    brought.announce([first, second])
    assert brought.missing(first) is None
    assert brought.missing(second) == Failed(f"its kernel is not in {folder}", lasting=False)
    kernel = load_kernel(first, folder, Settings(cache_dir="off"))
    assert kernel.plan is first.plan
    assert kernel.variants[0].cubins["sm_90a"].code
    assert kernel.variants[0].lowered.source == ""
    entry(folder, first).rename(entry(folder, second))
    for candidate in (first, second):  # missing, and that of another plan
        with pytest.raises(TransientError):
            load_kernel(candidate, folder, settings)
    entry(folder, second).write_bytes(b"0" * 100)
    with pytest.raises(TransientError, match="damaged"):
        load_kernel(second, folder, settings)
    assert read_index(folder) == build_of(settings)


def test_what_does_not_compile_is_noted_in_the_folder(fakes, tmp_path):
    first, second, third = fakes.problem().candidates(3)
    write_failure(tmp_path, first, Failed("compiling: ToolchainError: refused"))
    write_failure(tmp_path, second, Failed("compiling: memory", lasting=False))
    brought = Brought(tmp_path)
    assert brought.missing(first) == Failed("compiling: ToolchainError: refused")
    missing = Failed(f"its kernel is not in {tmp_path}", lasting=False)
    assert brought.missing(second) == brought.missing(third) == missing
    entry(tmp_path, first).touch()  # a later build compiled it
    assert brought.missing(first) is None


def test_kernels_beside_matmuls_stand_in_a_folder_too(tmp_path):
    pytest.importorskip("tvm")
    settings = replace(Settings.read(), cache_dir=str(tmp_path / "cache"))
    weight = ladder.types["int4"].grouped(64)
    ops = (ladder.quantize_activations(4, 256), ladder.dequantize(64, 256, weight=weight))
    build = into_folder(settings, tmp_path)()
    for op in ops:
        plan = ladder.schedule(op, "h200")
        wanted = SimpleNamespace(plan=plan, digest=plan_digest(plan))
        assert build(wanted) > 0
        kernel = load_kernel(wanted, tmp_path, Settings(cache_dir="off"))
        assert type(kernel) is type(ladder.compile(plan))
        assert kernel.plan == plan
        assert kernel.variants[0].cubins["sm_90a"].code


def test_without_a_folder_the_cache_is_asked(fakes, tmp_path):
    pytest.importorskip("tvm")
    settings = replace(Settings.read(), cache_dir=str(tmp_path / "cache"))
    (candidate,) = fakes.problem().candidates(1)
    assert into_cache(settings)()(candidate) == 0
    assert len(list((tmp_path / "cache").rglob("*.zip"))) == 1
    assert load_kernel(candidate, None, settings).plan == candidate.plan
    assert len(list((tmp_path / "cache").rglob("*.zip"))) == 1


def test_a_folder_is_of_one_build(tmp_path):
    settings = Settings.read()
    with pytest.raises(TuningError, match="holds no kernels"):
        read_index(tmp_path)
    write_index(tmp_path, settings)
    write_index(tmp_path, settings)
    text = (tmp_path / module.INDEX).read_text().replace('"build": "', '"build": "old')
    (tmp_path / module.INDEX).write_text(text)
    with pytest.raises(TuningError, match="another build"):
        write_index(tmp_path, settings)


def test_without_a_compiler_nothing_begins(monkeypatch):
    def none(settings):
        raise ToolchainError("no compiler")

    settings = Settings()
    monkeypatch.setattr(module.Toolchain, "choose", none)
    with pytest.raises(ToolchainError):
        check_compiler(settings)
    monkeypatch.setattr(module.Toolchain, "choose", lambda settings: None)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LoweringError, match="TVM is not installed"):
        check_compiler(settings)


def test_where_the_cache_is_off_one_is_made_for_the_run():
    with on_disk(Settings(cache_dir="off")) as settings:
        from pathlib import Path

        folder = Path(settings.cache_dir)
        assert folder.is_dir()
    assert not folder.exists()
    with on_disk(Settings(cache_dir="/x")) as settings:
        assert settings.cache_dir == "/x"
