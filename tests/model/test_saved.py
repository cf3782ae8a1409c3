"""Models that are saved, built, pickled: what comes back is the same, and what is damaged is refused."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ladder
from ladder.errors import (
    ArtifactError,
    GraphError,
    LaunchError,
)
from ladder.files import save_document
from ladder.graph.draft import Draft
from ladder.graph.operators import (
    Activated,
    Linear,
)
from ladder.graph.tensor import TensorType
from ladder.model.model import PLANS, Model, compile_graph
from tests.model.conftest import COMPILES, RNG, X, small


def test_a_folder_gives_the_model_back(model, tmp_path):
    model.save(tmp_path)
    again = Model.load(tmp_path)
    assert again == model
    np.testing.assert_array_equal(again(X, mode="plan"), model(X, mode="plan"))
    code = (
        "import sys, numpy as np, ladder; "
        f"m = ladder.Model.load({str(tmp_path)!r}); m(np.ones((3, 64), np.float16), mode='plan'); "
        "assert not {'tvm', 'torch', 'onnx', 'cuda'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize("through", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
@pytest.mark.parametrize("built", [False, pytest.param(True, marks=COMPILES)])
@pytest.mark.filterwarnings("ignore:no CUDA compiler")
def test_a_model_that_ran_is_pickled_without_what_it_ran_on(monkeypatch, built, through):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    model = compile_graph(eight_bit()).build() if built else compile_graph(small())
    x = torch.from_numpy(X)
    wanted = model.on("cpu")(x)
    again = through(model)
    assert again == model
    assert torch.equal(again.on("cpu")(x), wanted)
    if built:
        assert again.built.weights == model.built.weights
        assert [k.source for k in again.built.kernels.values()] == [
            k.source for k in model.built.kernels.values()
        ]
    with pytest.raises(LaunchError, match="an executor stays in its process"):
        through(model.on("cpu"))


def test_saving_replaces_a_model_or_a_graph_and_nothing_else(model, tmp_path, monkeypatch):
    model.graph.save(tmp_path / "m")
    model.save(tmp_path / "m")
    (tmp_path / "m" / "thesis.tex").write_text("x")
    with pytest.raises(GraphError, match=r"no model's: thesis\.tex"):
        model.save(tmp_path / "m")
    (tmp_path / "m" / "thesis.tex").unlink()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full_disk(self, text, encoding):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(GraphError, match="No space left"):
        compile_graph(small(bias=False)).save(tmp_path / "m")
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "text, error, match",
    [
        ("{", GraphError, "the model cannot be read"),
        ("{}", ArtifactError, r"plans\.json holds format None"),
        ('{"format": "ladder.model/0", "layers": []}', ArtifactError, "holds format"),
        ('{"format": "ladder.model/2", "layers": []}', ArtifactError, "not as it was written"),
    ],
)
def test_a_damaged_folder_is_refused(model, tmp_path, text, error, match):
    model.save(tmp_path)
    (tmp_path / PLANS).write_text(text)
    with pytest.raises(error, match=match):
        Model.load(tmp_path)


def test_plans_of_other_layers_are_refused(model, tmp_path):
    model.save(tmp_path)
    document = json.loads((tmp_path / PLANS).read_text())
    y, z = document["layers"]
    for layers, match in (
        ([], "the graph has"),
        ([y], "the graph has"),
        ([{**y, "node": "x"}, z], "the graph has"),
        ([{**y, "plan": z["plan"]}, z], "the plan of y is of"),
    ):
        save_document(tmp_path / PLANS, {**document, "layers": layers})
        with pytest.raises(GraphError, match=match):
            Model.load(tmp_path)


def eight_bit():
    draft = Draft()
    x = draft.input("x", TensorType((3, 64), "float16"))
    w = draft.constant("w", RNG.normal(size=(64, 64)).astype(np.float16))
    y = draft.add(Linear((Activated("silu"),)), (x, w), "y")
    draft.outputs = [draft.add(Linear(), (y, w), "z")]
    return draft.graph().assign(ladder.Rule(weight="int8", group="channel", activation="int8"))


def one_weight_in_two_packings():
    """Activations of 16 bits read it in one, codes in another."""
    draft = Draft()
    x = draft.input("x", TensorType((3, 64), "float16"))
    w = draft.constant("w", RNG.normal(size=(64, 64)).astype(np.float16))
    y = draft.add(Linear((Activated("silu"),)), (x, w), "y")
    draft.outputs = [draft.add(Linear(), (y, w), "z")]
    plain = {"weight": "int8", "group": "channel"}
    rules = [ladder.Rule(name="z", activation="int8", **plain), ladder.Rule(**plain)]
    return draft.graph().assign(rules)


LOADED = """
import sys
sys.modules["tvm"] = sys.modules["tvm_ffi"] = None  # importing either is an error
import numpy as np, torch, ladder
model = ladder.Model.load(sys.argv[1])
x = torch.from_numpy(np.load(sys.argv[2]))
np.save(sys.argv[3], model.on("emulator")(x).numpy())
"""


@COMPILES
@pytest.mark.filterwarnings("ignore:no CUDA compiler")
@pytest.mark.parametrize("make", [small, eight_bit, one_weight_in_two_packings])
def test_a_model_that_was_built_runs_without_tvm(make, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    planned = compile_graph(make())
    model = planned.build()
    wanted = model.on("emulator")(torch.from_numpy(X)).numpy()
    np.testing.assert_array_equal(planned.on("emulator")(torch.from_numpy(X)).numpy(), wanted)
    packed = sum(one.nbytes for one in model.built.weights.values())
    assert planned.on("emulator").weight_bytes >= packed
    bar = 0.01 * np.abs(wanted).max()
    np.testing.assert_allclose(wanted, planned.graph.run(X), rtol=0, atol=bar)
    model.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    assert again == model
    assert again.built.weights == model.built.weights
    assert list(again.built.kernels) == list(model.built.kernels)
    np.save(tmp_path / "x.npy", X)
    arguments = [tmp_path / "model", tmp_path / "x.npy", tmp_path / "y.npy"]
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", LOADED, *map(str, arguments)], check=True, cwd=root)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), wanted)
    again.save(tmp_path / "model")  # over what it is mapped from
    assert Model.load(tmp_path / "model").built.weights == model.built.weights


@COMPILES
@pytest.mark.filterwarnings("ignore:no CUDA compiler")
def test_a_damaged_folder_of_a_built_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    model = compile_graph(small()).build()
    weight = Path("weights", "0", "weight.npy")

    def flip(folder):
        content = bytearray((folder / weight).read_bytes())
        content[-1] ^= 1
        (folder / weight).write_bytes(content)

    other = '{"format": "ladder.built/0"}'
    for damage, error, match in (
        (lambda f: (f / "built.json").write_text("{"), GraphError, "cannot be read"),
        (lambda f: (f / "built.json").write_text(other), ArtifactError, "holds format"),
        (lambda f: (f / weight).unlink(), GraphError, "cannot be read"),
        (flip, ArtifactError, r"weight\.npy has sha256"),
    ):
        model.save(tmp_path)
        damage(tmp_path)
        with pytest.raises(error, match=match):
            Model.load(tmp_path)
    model.save(tmp_path)
    compile_graph(small()).save(tmp_path)  # not built: what was built before is not its own
    assert Model.load(tmp_path).built is None
