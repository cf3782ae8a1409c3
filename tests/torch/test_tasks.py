"""Graphs as kernel calls and islands."""

from __future__ import annotations

import numpy as np

import ladder
from ladder.graph.draft import Draft
from ladder.graph.operators import (
    Activated,
    AddResidual,
    Biased,
    Coded,
    Linear,
    QuantizedRows,
    QuantizeTokens,
    RMSNorm,
    Scaled,
    Slice,
)
from ladder.graph.tensor import TensorType
from ladder.runtime.layer import low_bit, matmul_of
from ladder.torch.tasks import Island, Product, Quantisation, last_uses, last_views, tasks_of
from ladder.ttype import quantize

RNG = np.random.default_rng(0)


def weight(draft, name, n=64, k=64, element="int4"):
    wt = ladder.types[element].grouped(32)
    return draft.constant(name, quantize(RNG.normal(size=(n, k)), wt))


def layers():
    """norm, a layer whose kernel leaves some steps, another that reads it and adds x, and a slice of that."""
    draft = Draft()
    x = draft.input("x", TensorType((3, 64), "float16"))
    b = draft.constant("b", RNG.normal(size=64).astype(np.float16))
    normed = draft.add(RMSNorm(), (x,), "norm")
    steps = (Biased(), Activated("silu"), Scaled(0.5), AddResidual())
    y = draft.add(Linear(steps), (normed, weight(draft, "w"), b, x), "y")
    z = draft.add(Linear((AddResidual(),)), (y, weight(draft, "v"), x), "z")
    draft.outputs = [draft.add(Slice(1, 0, 8), (z,), "part"), y]
    return draft.graph()


def kernels(graph):
    return {node.name: matmul_of(graph, node) for node in low_bit(graph)}


def test_kernels_stand_between_islands_and_leave_them_the_rest_of_the_epilogue():
    graph = layers()
    tasks = tasks_of(graph, kernels(graph))
    assert [type(task) for task in tasks] == [Island, Product, Island, Product, Island]
    first, y, rest, z, last = tasks
    assert [step.name for step in first.steps] == ["norm"]
    assert (y.name, y.x, y.bias, y.reads) == ("y/0", "norm", "b", ("norm", "b"))
    assert [(step.name, step.reads) for step in rest.steps] == [
        ("y/1", ("y/0",)),
        ("y", ("y/1", "x")),
    ]
    assert (rest.reads, rest.writes) == (("y/0", "x"), ("y",))
    assert y.residual is None
    assert (z.name, z.x, z.bias, z.residual) == ("z", "y", None, "x")
    assert (z.reads, z.type) == (("y", "x"), TensorType((3, 64), "float16"))
    assert (last.reads, last.writes) == (("z",), ("part",))
    assert last_uses(tasks, graph.outputs) == {"x": 3, "norm": 1, "b": 1, "y/0": 2, "z": 4}


def test_a_layer_without_a_kernel_is_a_step_like_any_other():
    graph = layers()
    known = kernels(graph)
    del known["y"]
    tasks = tasks_of(graph, known)
    assert [type(task) for task in tasks] == [Island, Product, Island]
    assert [step.name for step in tasks[0].steps] == ["norm", "y/0", "y/1", "y/2", "y/3", "y"]
    assert tasks[0].steps[1].reads == ("norm", "w")


def test_rows_are_quantised_by_a_call_of_their_own():
    draft = Draft()
    x = draft.input("x", TensorType((3, 64), "float16"))
    rows = draft.add(QuantizeTokens("int8"), (x,), "rows")
    steps = (Activated("silu"), Scaled(0.5), QuantizedRows("int8"))
    y = draft.add(Linear(steps), (rows, weight(draft, "w")), "y")
    draft.outputs = [draft.add(Linear(), (y, weight(draft, "v")), "z")]
    graph = draft.graph()
    tasks = tasks_of(graph, kernels(graph))
    assert [(type(task), getattr(task, "name", None)) for task in tasks] == [
        (Quantisation, "rows"),
        (Product, "y/0"),
        (Island, None),
        (Quantisation, "y"),
        (Product, "z"),
    ]
    assert (tasks[3].x, tasks[3].source.dtype, tasks[3].target) == ("y/1", "float16", "int8")


def test_rows_of_a_known_scale_are_what_the_product_stores():
    draft = Draft()
    x = draft.input("x", TensorType((3, 64), "float16"))
    rows = draft.add(QuantizeTokens("int8", 0.5), (x,), "rows")
    step = Coded("int8", 0.25)
    y = draft.add(Linear((Activated("silu"), step)), (rows, weight(draft, "w")), "y")
    apart = Linear((Scaled(0.5), step))  # kernels do no factor, and so no codes behind one
    draft.outputs = [draft.add(apart, (y, weight(draft, "v")), "z")]
    graph = draft.graph()
    tasks = tasks_of(graph, kernels(graph))
    assert [type(task) for task in tasks] == [Quantisation, Product, Product, Island, Quantisation]
    assert (tasks[0].coded, tasks[1].type.dtype) == (Coded("int8", 0.5), "int8/token")
    assert (tasks[2].type.dtype, tasks[4].x, tasks[4].coded) == ("float16", "z/1", step)


def test_what_is_read_through_a_view_lives_as_long_as_the_view():
    graph = layers().with_(outputs=("part",))
    tasks = tasks_of(graph, kernels(graph))
    ends = last_views(tasks, last_uses(tasks, graph.outputs))
    assert ends["z"] == len(tasks)  # the slice that the caller gets may be a view of it
    assert ends["y/0"] == 3  # y may be a view of the sums, and the product behind reads y
