"""Compile times of models: what is written of two processes, and which exit code says that a bar was missed."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from typer.testing import CliRunner

from benchmarks import model_compile


@pytest.mark.parametrize("cached_s, code", [(0.2, 0), (0.95, 1)])
def test_rows_say_what_was_cold_and_what_cached(tmp_path, monkeypatch, cached_s, code):
    folders = []

    def run(model, rule, cache):
        folders.append((model, rule, cache))
        known = folders.count(folders[-1]) > 1
        return model_compile.Times(0.1, cached_s if known else 50.0, 65)

    monkeypatch.setattr(model_compile, "run", run)
    out = tmp_path / "times.json"
    app = model_compile.typer.Typer()
    app.command()(model_compile.main)
    done = CliRunner().invoke(app, [str(out), "--model", "llama-2-7b", "--model", "mlp"])
    assert done.exit_code == code, done.output
    rows = json.loads(out.read_text())
    assert [(row["model"], row["cache"]) for row in rows] == [
        ("llama-2-7b", "cold"),
        ("llama-2-7b", "cached"),
        ("mlp", "cold"),
        ("mlp", "cached"),
    ]
    assert all(row["kernels"] == 65 and row["commit"] for row in rows)
    assert len({cache for _, _, cache in folders}) == 2
