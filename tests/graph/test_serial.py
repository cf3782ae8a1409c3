"""Graphs as text and folders, and as pictures."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from ladder.errors import ArtifactError, GraphError
from ladder.files import save_document
from ladder.graph.draft import Draft
from ladder.graph.extent import symbol
from ladder.graph.graph import Graph
from ladder.graph.operators import Attention, Linear, Reshape
from ladder.graph.rules import Rule
from ladder.graph.serial import ARRAYS, GRAPH, decode, encode
from ladder.graph.tensor import TensorType
from ladder.registry import types
from ladder.ttype import TType, quantize

RNG = np.random.default_rng(0)


def full():
    """A graph with every kind of constant, and an own number format."""
    draft = Draft()
    x = draft.input("x", TensorType((symbol("b"), 16), "bfloat16"))
    own = TType("own", 3, values=[-1, -0.5, -0.2, 0, 0.15, 0.35, 0.6, None])
    for place, wt in enumerate(
        (types["int4"].grouped(8, zero="integer"), types["uint4"].grouped(8, zero="float"), types["nvfp4"],
         types["mxfp4"], own.grouped(8, scale="bfloat16"))
    ):  # fmt: skip
        w = draft.constant(f"w{place}", quantize(RNG.normal(size=(16, 16)), wt))
        x = draft.add(Linear(), (x, w), f"y{place}")
    plain = draft.constant("plain", RNG.normal(size=(4, 16)).astype(ml_dtypes.bfloat16))
    draft.outputs = [draft.add(Linear(), (x, plain), "out")]
    return draft.graph()


def test_a_folder_gives_the_graph_back_bit_by_bit(tmp_path):
    graph = full().fuse().propagate("h200")
    graph.save(tmp_path / "model")
    again = Graph.load(tmp_path / "model")
    assert again == graph
    assert again.layouts == graph.layouts
    assert again.decisions == graph.decisions
    assert again.to_json() == graph.to_json()
    x = RNG.normal(size=(3, 16))
    np.testing.assert_array_equal(again.run(x), graph.run(x))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_that_are_not_quantised_come_back(dtype, tmp_path):
    draft = Draft()
    x = draft.input("x", TensorType((3, 16), dtype))
    w = draft.constant("w", quantize(RNG.normal(size=(8, 16)), dtype))
    draft.outputs = [draft.add(Linear(), (x, w), "y")]
    graph = draft.graph()
    graph.save(tmp_path)
    assert (tmp_path / GRAPH).stat().st_size < 2000, "65,536 values follow from the name"
    assert Graph.load(tmp_path) == graph


def test_a_llama_layer_survives(llama, tmp_path):
    import ladder

    config = llama.CONFIGS["llama-3-8b"].scaled(64)
    inputs, dynamic = llama.next_token(config, 2, 3)
    graph = ladder.from_torch(llama.layer(config), inputs, dynamic=dynamic)
    low = graph.assign(Rule(weight="nf4", group=64)).fuse().propagate()
    low.save(tmp_path)
    again = Graph.load(tmp_path)
    assert again == low
    assert again.constants[-1].sources == low.constants[-1].sources


@pytest.mark.parametrize(
    "op",
    [Attention(True, 0.3), Reshape((symbol("a") * 2 + 1, 3)), Linear(), TensorType((2,), "int8")],
)
def test_operators_as_json(op):
    assert decode(json.loads(json.dumps(encode(op)))) == op


@pytest.mark.parametrize(
    "damage, match",
    [
        (lambda f: (f / GRAPH).unlink(), "cannot be read"),
        (lambda f: (f / GRAPH).write_text("{"), "cannot be read"),
        (lambda f: _edit(f, lambda d: d.pop("digests")), "cannot be read"),
        (lambda f: (f / ARRAYS / "0.codes.npy").unlink(), "cannot be read"),
        (lambda f: _edit(f, lambda d: d["nodes"][0]["op"].update({"$": "Nothing"})), "unknown tag"),
        (lambda f: _edit(f, lambda d: d["nodes"][0].pop("inputs")), "cannot be read"),
        (lambda f: _edit(f, lambda d: d["constants"].pop()), "cannot be read|no value"),
        (lambda f: _edit(f, lambda d: _values(d).__setitem__(0, -1)), "cannot be read"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path, damage, match):
    full().save(tmp_path)
    damage(tmp_path)
    with pytest.raises(GraphError, match=match):
        Graph.load(tmp_path)


@pytest.mark.parametrize(
    "damage, match",
    [
        (lambda f: (f / GRAPH).write_text('{"format": "ladder.graph/0"}'), "holds format"),
        (lambda f: _edit(f, lambda d: d["outputs"].append("x"), sealed=False), "not as it was"),
        (lambda f: (f / ARRAYS / "0.codes.npy").write_bytes(b""), r"0\.codes\.npy has sha256"),
        (lambda f: _flip(f / ARRAYS / "0.codes.npy"), r"0\.codes\.npy has sha256"),
        (lambda f: _flip(f / ARRAYS / "5.value.npy"), r"5\.value\.npy has sha256"),
    ],
)
def test_what_is_not_as_it_was_written_is_refused(tmp_path, damage, match):
    full().save(tmp_path)
    damage(tmp_path)
    with pytest.raises(ArtifactError, match=match):
        Graph.load(tmp_path)


def _flip(file: Path):
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def _values(document):
    return document["constants"][0]["weight"]["element"]["values"]


def _edit(folder: Path, change, *, sealed=True):
    document = json.loads((folder / GRAPH).read_text())
    change(document)
    if sealed:
        save_document(folder / GRAPH, document)
    else:
        (folder / GRAPH).write_text(json.dumps(document))


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    full().save(tmp_path)
    (tmp_path / "plans.json").write_text("")  # a model's, which its graph alone must not replace
    with pytest.raises(GraphError, match=r"no graph's: plans\.json"):
        full().save(tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphError, match="a file stands there"):
        full().save(tmp_path / "file" / "model")


@pytest.mark.parametrize("laid", [False, True])
def test_the_picture_is_xml_with_every_node_type_and_layout(vit, laid):
    torch = pytest.importorskip("torch")
    import ladder

    module, x = vit.layer(48, 96, 3), torch.randn(2, 7, 48)
    graph = ladder.from_torch(module, (x,), dynamic=({0: "batch"},))
    graph = graph.assign(Rule(weight="int4", group=16)).fuse()
    graph = graph.propagate("h200") if laid else graph
    root = ET.fromstring(graph.svg())
    texts = " ".join(text.text for text in root.iter("{http://www.w3.org/2000/svg}text"))
    boxes = [*root.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(boxes) == len(graph.nodes) + len(graph.inputs)
    assert all(node.name[:20] in texts for node in graph.nodes)
    assert "float32[batch, 7, 48]" in texts
    assert ("c0:3 a:batch" in texts) == laid


def test_conversions_are_red():
    draft = Draft()
    x = draft.input("x", TensorType((symbol("b"), 8, 4), "float16"))
    from ladder.graph.operators import Transpose

    turned = draft.add(Transpose((0, 2, 1)), (x,), "turned")
    w = draft.constant("w", RNG.normal(size=(3, 8)))
    draft.outputs = [draft.add(Linear(), (turned, w), "y")]
    graph = draft.graph()
    assert "#c00" not in graph.svg()
    assert "#c00" in graph.propagate("h200").svg()
