"""What a model on torch is called with: what is passed on, what is copied into a recorded call, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ladder.errors import GraphError, LaunchError, ShapeError  # noqa: E402
from ladder.graph.draft import Draft  # noqa: E402
from ladder.graph.extent import symbol  # noqa: E402
from ladder.graph.operators import Gather, Linear  # noqa: E402
from ladder.graph.tensor import TensorType  # noqa: E402
from ladder.model.model import compile_graph  # noqa: E402
from ladder.torch.bound import Captured  # noqa: E402
from ladder.torch.inputs import check_inputs  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def graph():
    draft = Draft()
    x = draft.input("x", TensorType((symbol("rows"), 8), "float16"))
    i = draft.input("i", TensorType((symbol("rows"),), "int64"))
    w = draft.constant("w", np.ones((4, 8), np.float16))
    draft.outputs = [draft.add(Linear(), (draft.add(Gather(), (x, i), "g"), w), "y")]
    return draft.graph()


def given(rows=3):
    return torch.ones(rows, 8).half(), torch.zeros(rows, dtype=torch.int64)


def test_inputs_come_by_name_with_the_sizes_of_symbols(graph):
    x, i = given(5)
    assert check_inputs(graph, (x, i), CPU) == ({"x": x, "i": i}, {"rows": 5})


@pytest.mark.parametrize(
    "wrong, error, what",
    [
        (lambda x, i: (), GraphError, "0 inputs were given"),
        (lambda x, i: (x, i, i), GraphError, "3 inputs were given"),
        (lambda x, i: (3, i), LaunchError, "3 is no tensor of torch"),
        (lambda x, i: (None, i), LaunchError, "None is no tensor of torch"),
        (lambda x, i: (x.numpy(), i), LaunchError, r"float16\[3, 8\] is no tensor of torch"),
        (lambda x, i: (x, i.tolist()), LaunchError, r"a list \[0, 0, 0\] is no tensor"),
        (lambda x, i: (x.to_sparse(), i), LaunchError, "the tensor is torch.sparse_coo"),
        (lambda x, i: (x.float(), i), LaunchError, "the tensor is torch.float32 on cpu"),
        (lambda x, i: (x, i.int()), LaunchError, "the tensor is torch.int32 on cpu"),
        (lambda x, i: (x.to("meta"), i), LaunchError, "the tensor is torch.float16 on meta"),
        (lambda x, i: (x[0], i), ShapeError, r"the array is \[8\], expected \[rows, 8\]"),
        (lambda x, i: (x[:, :7], i), ShapeError, r"the array is \[3, 7\]"),
        (lambda x, i: (x[:2], i), ShapeError, r"the array is \[3\], expected \[rows\]"),
    ],
)
@pytest.mark.parametrize("entry", ["__call__", "bind", "verify"])
def test_inputs_that_do_not_fit_are_refused_by_every_entry(graph, entry, wrong, error, what):
    executor = compile_graph(graph).on("cpu")
    with pytest.raises(error, match=what):
        getattr(executor, entry)(*wrong(*given()))


class Replayed:
    """A CUDA graph that adds one to what it holds."""

    def __init__(self, held):
        self.held = held

    def replay(self):
        for one in self.held:
            one.add_(1)


@pytest.fixture
def captured():
    made = Captured.__new__(Captured)
    made.inputs = tuple(one.clone() for one in given())
    made.outputs = made.inputs[0]
    made._graph = Replayed(made.inputs)
    return made


def test_a_replay_runs_on_copies_of_its_inputs(captured):
    x, i = given()
    assert captured(2 * x, i) is captured.outputs
    assert torch.equal(captured.outputs, 2 * x + 1)
    assert torch.equal(x, given()[0])


@pytest.mark.parametrize(
    "wrong, error, what",
    [
        (lambda x, i: (x,), GraphError, "1 inputs were given, 2 were captured"),
        (lambda x, i: (x, i, i), GraphError, "3 inputs were given, 2 were captured"),
        (lambda x, i: (x[:1], i), LaunchError, r"torch.float16\[1, 8\], torch.float16\[3, 8\] was"),
        (lambda x, i: (x[0], i), LaunchError, r"the tensor is torch.float16\[8\]"),
        (lambda x, i: (x.float(), i), LaunchError, r"the tensor is torch.float32\[3, 8\]"),
        (lambda x, i: (x, 0), LaunchError, "0 is no tensor of torch"),
    ],
)
def test_a_replay_takes_what_was_captured_and_nothing_that_would_spread_to_it(
    captured, wrong, error, what
):
    x, i = given()
    before = [one.clone() for one in captured.inputs]
    with pytest.raises(error, match=what):
        captured(*wrong(5 * x, i))
    assert all(torch.equal(a, b) for a, b in zip(captured.inputs, before, strict=True))


ENTRIES = {
    "model": lambda model, executor: model,
    "model by plans": lambda model, executor: lambda *inputs: model(*inputs, mode="plan"),
    "executor": lambda model, executor: executor,
    "bind": lambda model, executor: executor.bind,
    "verify": lambda model, executor: executor.verify,
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_entry_cuts_a_gradient_off_in_silence(graph, entry):
    model = compile_graph(graph)
    call = ENTRIES[entry](model, model.on("cpu"))
    x, i = given()
    asking = x.clone().requires_grad_()
    for wrong in (asking, 2 * asking):
        with pytest.raises(LaunchError, match="the tensor requires a gradient") as caught:
            call(wrong, i)
        assert "input" in caught.value.at
        assert "torch.no_grad()" in caught.value.hint
    call(asking.detach(), i)
    for without in (torch.no_grad(), torch.inference_mode()):
        with without:
            call(asking, i)


def test_a_bound_call_looks_again(graph):
    x, i = given()
    step = compile_graph(graph).on("cpu").bind(x, i)
    step()
    x.requires_grad_()
    with pytest.raises(LaunchError, match="the tensor requires a gradient"):
        step()


def test_a_replay_does_not_record_a_copy(captured):
    x, i = given()
    with pytest.raises(LaunchError, match="the tensor requires a gradient"):
        captured(x.requires_grad_(), i)
    assert not captured.inputs[0].requires_grad
