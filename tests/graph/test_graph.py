"""The graph as a value: checks, look-ups, printing, equality; and drafts, which make it."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from ladder.errors import GraphError, ShapeError, TypeDeclarationError
from ladder.graph.draft import Draft
from ladder.graph.extent import symbol
from ladder.graph.graph import Graph, Input, Node
from ladder.graph.interpret import trace
from ladder.graph.operators import Binary, Foreign, Linear, Reshape, Unary
from ladder.graph.tensor import TensorType
from ladder.registry import types
from ladder.ttype import quantize

B = symbol("batch")
X = TensorType((B, 4), "float32")
W = np.arange(12, dtype=np.float32).reshape(3, 4)


def small() -> Draft:
    draft = Draft()
    x = draft.input("x", X)
    w = draft.constant("w", W)
    y = draft.add(Linear(), (x, w), "y", origin="y_of_model")
    z = draft.add(Unary("silu"), (y,), "z")
    draft.add(Unary("exp"), (x,), "unused")
    draft.outputs = [z]
    return draft


def test_a_draft_orders_infers_and_drops_what_nobody_reads():
    draft = small()
    draft.nodes = dict(reversed(draft.nodes.items()))
    graph = draft.graph()
    assert [node.name for node in graph.nodes] == ["y", "z"]
    assert graph.node("y").type == TensorType((B, 3), "float32")
    assert graph.node("y").origin == "y_of_model"


def test_equal_graphs_are_equal_whatever_led_there():
    one, other = small().graph(), small().graph()
    assert one == other
    assert hash(one) == hash(other)
    draft = small()
    draft.decide("rewrite", "y", "nothing")
    assert draft.graph() == one
    assert one.with_(outputs=("y",)) != one
    changed = small()
    changed.constants["w"] = changed.constants["w"].__class__("w", W + 1)
    assert changed.graph() != one


def test_printed():
    assert str(small().graph()) == (
        "x  float32[batch, 4]  input\n"
        "w  float32[3, 4]      constant\n"
        "y  float32[batch, 3]  linear of x, w\n"
        "z  float32[batch, 3]  silu of y\n"
        "returns z\n"
        "2 nodes (1 linear, 1 unary), 0.000 MB of constants"
    )


def test_networkx_sees_it_and_cannot_change_it():
    network = small().graph().network
    assert list(nx.topological_sort(network))[-1] == "z"
    assert network.edges["w", "y", 0]["operand"] == 1
    with pytest.raises(nx.NetworkXError, match=r"[Ff]rozen"):
        network.add_node("other")


def test_users_and_kinds():
    graph = small().graph()
    assert [(n.name, i) for n, i in graph.users["x"]] == [("y", 0)]
    assert graph.of(Linear) == (graph.node("y"),)
    assert graph.find("x") is None
    assert graph.constant("x") is None
    with pytest.raises(GraphError, match="no node is called 'q'"):
        graph.node("q")


@pytest.mark.parametrize(
    "change, text",
    [
        ({"outputs": ("nobody",)}, "no value is called 'nobody'"),
        ({"inputs": (Input("x", X), Input("x", X))}, "two values are called 'x'"),
        ({"inputs": ()}, "y reads 'x', which no value before it is called"),
        ({"nodes": (Node("z", Linear(), ("x",), X),)}, "z has 1 inputs"),
        ({"nodes": (Node("z", Linear(), ("x", "w"), X),)}, "z is said to be"),
    ],
)
def test_a_graph_that_contradicts_itself_is_refused(change, text):
    base = small().graph()
    with pytest.raises(GraphError, match=text) as caught:
        base.with_(**change)
    assert caught.value.at
    assert caught.value.hint


def test_an_operator_that_does_not_fit_names_the_node():
    draft = small()
    with pytest.raises(ShapeError) as caught:
        draft.add(Reshape((5,)), ("x",), "flat")
    assert caught.value.at == "flat = reshape(shape=[5]) of x"


def test_a_circle_is_refused():
    draft = small()
    draft.nodes["y"] = Node("y", Binary("add"), ("z", "z"), draft.type("y"))
    with pytest.raises(GraphError, match="circle"):
        draft.graph()


def test_constants_are_kept_once_and_read_only():
    draft = Draft()
    assert draft.constant("w", W) == draft.constant("w", W.copy()) == "w"
    assert draft.constant("w", W + 1) == "w_2"
    with pytest.raises(ValueError, match="read-only"):
        draft.constants["w"].value[0] = 0
    with pytest.raises(TypeDeclarationError, match="complex"):
        _ = Graph((), (), (), ()) and draft.constant("c", np.ones(2, complex)) and draft.type("c")


def test_run_binds_symbols_and_returns_float64():
    graph = small().graph()
    x = np.array([[1, 0, 0, 1], [0, 1, 0, 0.5]], np.float32)
    y = x @ W.T
    got = graph.run(x)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, y / (1 + np.exp(-y)), rtol=1e-7)
    values = trace(graph, [x])
    assert set(values) == {"x", "w", "y", "z"}
    assert trace(graph, [x], keep=["y"]).keys() == {"y"}
    assert graph.run(np.zeros((0, 4), np.float32)).shape == (0, 3)


def test_inputs_that_do_not_fit():
    graph = small().graph()
    with pytest.raises(GraphError, match="2 inputs were given") as caught:
        graph.run(1, 2)
    assert "x: float32[batch, 4]" in caught.value.hint
    with pytest.raises(ShapeError, match=r"the array is \[2, 5\]"):
        graph.run(np.ones((2, 5)))


def test_quantised_constants_mean_what_they_dequantise_to():
    q = quantize(W, types["int4"].grouped(2))
    draft = Draft()
    x, w = draft.input("x", X), draft.constant("w", q)
    draft.outputs = [draft.add(Linear(), (x, w), "y")]
    graph = draft.graph()
    data = np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_array_equal(graph.run(data), data @ q.dequantize().T)
    assert graph.types["w"].weight == q.type
    op = graph.node("y").op.matmul(TensorType((B, 4), "float16"), graph.types["w"])
    assert (op.m, op.n, op.k, op.weight) == (None, 3, 4, q.type)


def test_the_callers_framework_runs_what_is_foreign():
    draft = Draft()
    x = draft.input("x", X)
    draft.outputs = [draft.add(Foreign("cumsum", X), (x,), "y")]
    graph = draft.graph()
    data = np.ones((2, 4))
    done = graph.run(data, foreign={"cumsum": lambda a: np.cumsum(a, -1)})
    assert done[0].tolist() == [1, 2, 3, 4]
    assert [node.name for node in graph.foreign] == ["y"]
    with pytest.raises(GraphError, match="caller's framework"):
        graph.run(data)


def test_a_layer_of_llama_as_it_reads(llama, golden):
    """The graph of LLaMA-3-8B, scaled down, in 4 bits: what it prints, and what was decided."""
    import ladder

    config = llama.CONFIGS["llama-3-8b"].scaled(32)
    inputs, dynamic = llama.prompt(config, 2, 4)
    plain = ladder.from_torch(llama.layer(config), inputs, dynamic=dynamic)
    low = plain.assign(llama.RULES["int4"]).fuse().propagate("h200")
    golden("graphs/llama_int4.txt", f"{plain}\n\n{low}\n\n{low.explain()}\n")
