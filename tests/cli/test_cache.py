"""``ladder cache``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ladder
from ladder.cli.app import run
from ladder.runtime.cache import Cache, CacheKey
from tests.runtime.test_cache import artifact

KEY = CacheKey("{}", "sm_90a", "nvrtc 13.0.88", ("-O3",), "13.0", "0.1.0", "abc", "0.27")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, tuple[int, int]]:
    assert run(["cache", "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)["entries"]
    return {record["kind"]: (record["entries"], record["bytes"]) for record in found}


def test_what_is_kept_is_counted_and_removed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(capsys) == {"kernels": (0, 0), "choices": (0, 0)}
    weight = ladder.types["int4"].grouped(128, scale="float16")
    ladder.schedule(ladder.matmul(1, 256, 512, activation="float16", weight=weight))
    Cache.default().put(KEY, artifact())
    sizes = {path.suffix: path.stat().st_size for path in folder.rglob("*.*") if path.is_file()}
    kept = {"kernels": (1, sizes[".zip"]), "choices": (1, sizes[".json"])}
    assert listed(capsys) == kept
    assert listed(capsys, "--clear") == kept  # what was there
    assert listed(capsys) == {"kernels": (0, 0), "choices": (0, 0)}


def test_words_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Cache.default().put(KEY, artifact())
    assert run(["cache", "--clear"]) == 0
    text = capsys.readouterr().out
    assert "kernels" in text
    assert str(folder) in text.replace("\n", "")
    assert "1 entries removed" in text


def test_off_has_no_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    assert listed(capsys, "--clear") == {"kernels": (0, 0), "choices": (0, 0)}
