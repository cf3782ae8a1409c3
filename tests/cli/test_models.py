"""``ladder graph`` and ``ladder verify``."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from ladder.cli.app import run
from ladder.graph.graph import Graph

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

MODELS = Path(__file__).parents[2] / "examples" / "models"


def load(name):
    spec = importlib.util.spec_from_file_location(f"cli_{name}", MODELS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    mlp, onnx_files = load("mlp"), load("onnx_files")
    module = mlp.mlp(16, 32, 8)
    onnx.save(onnx_files.mlp(onnx_files.weights_of(module)), folder / "mlp.onnx")
    program = torch.export.export(module, (torch.zeros(3, 16),))
    torch.export.save(program, folder / "mlp.pt2")
    (folder / "rules.toml").write_text('[[rule]]\nweight = "int4"\ngroup = 16\n')
    return folder


@pytest.mark.parametrize("name", ["mlp.onnx", "mlp.pt2"])
def test_a_model_is_printed_explained_drawn_and_saved(files, name, tmp_path, capsys):
    picture, folder = tmp_path / "graph.svg", tmp_path / "saved"
    rules = ["--rules", str(files / "rules.toml")]
    command = [
        "graph",
        str(files / name),
        *rules,
        "--explain",
        "--svg",
        str(picture),
        "--save",
        str(folder),
    ]
    assert run(command) == 0
    out = capsys.readouterr().out
    assert "int4 g16" in out
    assert "layouts on h200: 0 conversions" in out
    assert "gelu in the epilogue" in out
    assert picture.read_text().startswith("<svg")
    assert len(Graph.load(folder).nodes) == 3
    assert run(["graph", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "ladder.graph/3"


@pytest.mark.parametrize("name", ["mlp.onnx", "mlp.pt2"])
def test_a_model_is_verified(files, name, capsys):
    assert run(["verify", str(files / name)]) == 0
    assert "layers, outputs at cosine 1.0000000: right" in capsys.readouterr().out
    assert run(["verify", str(files / name), "--rules", "nf4", "--no-fuse", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    assert all(row["error"] <= row["bound"] for row in report["layers"])


def test_sizes_of_symbols_may_be_said(files, capsys):
    assert run(["verify", str(files / "mlp.onnx"), "--size", "tokens=5"]) == 0
    assert run(["graph", str(files / "mlp.onnx"), "--size", "tokens=5"]) == 0
    capsys.readouterr()
    assert run(["verify", str(files / "mlp.onnx"), "--size", "tokens"]) == 1
    assert "name=number" in capsys.readouterr().err


def test_a_layer_that_is_wrong_is_exit_code_1(files, capsys, monkeypatch):
    from ladder.graph import bounds

    monkeypatch.setattr(bounds, "FUNCTION_ROUNDINGS", 0)
    monkeypatch.setattr(bounds, "SUMS", 0.0)
    assert run(["verify", str(files / "mlp.onnx"), "--no-fuse"]) == 1
    assert "BEYOND ITS BOUND" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command, text",
    [
        (["graph", "nothing"], "is no model"),
        (["graph", "none.onnx"], "cannot be read"),
        (["graph", "none.pt2"], "cannot be read"),
        (["verify", "none.onnx"], "cannot be read"),
    ],
)
def test_what_is_no_model(command, text, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert run(command) == 1
    error = capsys.readouterr().err
    assert text in error
    assert "hint" in error


def test_a_saved_graph_has_nothing_to_be_compared_with(files, tmp_path, capsys):
    assert run(["graph", str(files / "mlp.onnx"), "--save", str(tmp_path / "g")]) == 0
    assert run(["verify", str(tmp_path / "g")]) == 1
    assert "no model to be compared with" in capsys.readouterr().err
