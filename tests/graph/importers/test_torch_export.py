"""``torch.export`` programs: operator by operator beside torch itself, names, symbols, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.errors import GraphError, ModelImportError, ShapeError
from ladder.graph.extent import symbol
from ladder.graph.graph import Graph
from ladder.graph.operators import Attention, Linear, RMSNorm, Rotary
from ladder.graph.verify import verify

torch = pytest.importorskip("torch")
from ladder.graph.importers.torch_export import exported, from_torch  # noqa: E402
from ladder.model.model import compile_graph  # noqa: E402

F = torch.nn.functional


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


def _x(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


OPERATORS = {
    "arithmetic": lambda x: (2 * x + x / 3 - 1) ** 2,
    "alpha": lambda x: torch.sub(x, x * x, alpha=0.5),
    "functions": lambda x: x.exp().sqrt() + x.abs().log() + x.sin() * x.cos() + torch.erf(x),
    "activations": lambda x: F.silu(x) + F.gelu(x) + F.gelu(x, approximate="tanh") + F.relu(x),
    "clamp": lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0),
    "maximum": lambda x: torch.maximum(x, x * 2) + torch.minimum(x, -x),
    "where": lambda x: torch.where(x > 0, x, -x) + x.masked_fill(x < 0.3, -5.0),
    "logic": lambda x: torch.where((x > -1) & (x <= 1) | (x >= 2), x, torch.zeros_like(x)),
    "softmax": lambda x: x.softmax(-1) + torch.softmax(x, 1),
    "norms": lambda x: F.layer_norm(x, (6,)) + F.rms_norm(x, (6,)),
    "reductions": lambda x: x.mean(-1, keepdim=True) + x.sum((1, 2))[:, None, None] + x.amax(1, True),
    "reshapes": lambda x: x.flatten(1).unflatten(1, (4, 6)).unsqueeze(0).squeeze(0).view(-1, 3, 2),
    "transposes": lambda x: x.transpose(0, 2).permute(1, 0, 2).contiguous(),
    "pieces": lambda x: sum(x.chunk(2, -1)) + sum(x.split([1, 1, 1, 3], -1)[:3]),
    "slices": lambda x: x[..., 1:5:2] + x[:, -1:, :2] + x[:, 0, None, 2:4],
    "joins": lambda x: torch.cat([x, x[:, :1]], 1) * 2 + 0 * torch.stack([x[:, 0]] * 5, 1),
    "unbind": lambda x: x.unbind(1)[2] - x.select(1, 0),
    "expand": lambda x: x[:, :1].expand(-1, 4, -1) + x,
    "gather": lambda x: x[:, torch.tensor([3, 0])] + x.index_select(1, torch.tensor([1, 1])),
    "casts": lambda x: x.to(torch.float32).double() + (x > 0).to(torch.float64),
    "filled": lambda x: x + torch.ones(6) + torch.full((4, 1), 2.0) + torch.arange(6) + torch.arange(1, 7),
    "products": lambda x: (x @ x.transpose(1, 2)).matmul(x) + torch.bmm(x, torch.eye(6, dtype=x.dtype).expand(2, 6, 6)),
    "triangles": lambda x: x.tril() + x.triu(1) * 2 + torch.ones(4, 6).tril(-1),
    "repeated": lambda x: x.repeat_interleave(3, dim=1)[:, :4] + x.repeat_interleave(2, 0)[:2],
    "negations": lambda x: torch.where(torch.logical_not(x > 0) | ~(x != 2 * x), 1 - x, x),
    "addmm": lambda x: torch.addmm(x[0], x[1] @ x[0].t(), x[0]) + x[1].mm(torch.eye(6, dtype=x.dtype)),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "masked attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], attn_mask=x[0, :, :4] > 0),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_each_operator_means_what_torch_computes(name):
    module, x = Function(OPERATORS[name]), _x(2, 4, 6)
    graph = from_torch(module, (x,))
    got, want = graph.run(x), module(x).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
    assert got.shape == want.shape


def test_symbols_keep_the_callers_names_and_serve_every_size():
    class Joined(torch.nn.Module):
        def forward(self, x, y):
            return torch.cat([x, y], 1).reshape(-1, 6) @ torch.ones(6, 2).double()

    module = Joined()
    dynamic = ({0: "batch", 1: "old"}, {0: "batch", 1: "new"})
    graph = from_torch(module, (_x(2, 3, 6), _x(2, 5, 6)), dynamic=dynamic)
    batch, old, new = map(symbol, ("batch", "old", "new"))
    assert graph.types[graph.outputs[0]].shape == (batch * old + batch * new, 2)
    for b, o, n in ((2, 3, 5), (1, 1, 1), (4, 7, 2)):
        x, y = _x(b, o, 6), _x(b, n, 6)
        np.testing.assert_allclose(graph.run(x, y), module(x, y).numpy(), atol=1e-9)


def test_a_program_without_names_gets_names_in_order():
    dim = torch.export.Dim("anything")
    program = torch.export.export(
        Function(lambda x: x * 2), (_x(3, 4),), dynamic_shapes=(({0: dim},),)
    )
    assert str(from_torch(program).inputs[0].type) == "float64[d0, 4]"


def test_layers_are_called_as_their_modules_and_keep_their_weights():
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    graph = from_torch(module, (torch.zeros(3, 4),))
    assert [node.name for node in graph.of(Linear)] == ["0", "2"]
    np.testing.assert_array_equal(graph.constant("2.weight").value, module[2].weight.detach())
    assert graph.constant("0.weight").value.base is not None, "weights are not copied"


def test_bfloat16_weights_keep_their_bits():
    module = torch.nn.Linear(4, 8).to(torch.bfloat16)
    graph = from_torch(module, (torch.zeros(3, 4, dtype=torch.bfloat16),))
    constant = graph.constant("weight")
    assert constant.type.dtype == "bfloat16"
    np.testing.assert_array_equal(
        constant.values(), module.weight.detach().to(torch.float64).numpy()
    )


@pytest.mark.parametrize(
    "take, first",
    [
        (lambda x, i: F.embedding(i, x), 0),
        (lambda x, i: x.index_select(0, i), 0),
        (lambda x, i: x[i], -4),
    ],
)
def test_indices_go_from_where_they_go_in_torch(take, first):
    x, good, bad = _x(4, 3), torch.tensor([first, 3]), torch.tensor([first - 1, 0])
    graph = from_torch(Function(take), (x, good))
    np.testing.assert_array_equal(graph.run(x, good), take(x, good).numpy())
    with pytest.raises(IndexError):
        take(x, bad)
    with pytest.raises(GraphError, match=f"index {first - 1} into an axis of 4"):
        graph.run(x, bad)


def test_unknown_operators_are_listed_at_once_with_their_places():
    module = Function(lambda x: x.cumsum(-1).sort()[0].cumsum(0))
    with pytest.raises(ModelImportError) as caught:
        from_torch(module, (_x(2, 3),))
    text = caught.value.what
    assert text.startswith("3 operators of the model are not known")
    assert "aten.cumsum.default: " in text
    assert "aten.sort.default: " in text
    assert "cumsum_1" in text
    assert "foreign" in caught.value.hint


def test_unknown_operators_may_stay_the_frameworks():
    module = Function(lambda x: (x * 2).cumsum(-1) + 1)
    graph = from_torch(module, (_x(2, 3),), unknown="foreign")
    assert [node.op.target for node in graph.foreign] == ["aten.cumsum.default"]
    got = graph.run(_x(2, 3), foreign={"aten.cumsum.default": lambda a: np.cumsum(a, -1)})
    np.testing.assert_allclose(got, module(_x(2, 3)).numpy())


def test_neighbours_that_stay_the_frameworks_are_one_partition():
    module = Function(lambda x: ((x * 2).cumsum(-1).sort()[0] + 1).cumprod(0))
    graph = from_torch(module, (_x(2, 3),), unknown="foreign")
    assert [len(part) for part in graph.partitions] == [2, 1]
    assert graph.partitions[0][0] == "cumsum"
    assert "are left to the caller's framework" in graph.explain()


def test_arguments_that_no_converter_takes_are_told_with_the_reason():
    module = Function(lambda x: x[torch.tensor([0, 1]), torch.tensor([1, 2])])
    with pytest.raises(ModelImportError, match="indexing by several tensors"):
        from_torch(module, (_x(2, 3),))


def test_the_callers_module_is_left_in_its_mode():
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    module[0].eval()
    graph = from_torch(module, (torch.zeros(2, 4),))
    assert [part.training for part in module.modules()] == [True, False, True]
    assert [node.op.kind for node in graph.nodes] == ["linear"], "exported in eval mode"


def test_a_module_with_state_is_refused():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            return x + self.count

    with pytest.raises(ModelImportError, match="writes to its argument"):
        from_torch(Counter(), (torch.zeros(1),))


def test_what_is_no_model():
    with pytest.raises(ModelImportError, match="a str was given without example inputs"):
        from_torch("model")
    with pytest.raises(ModelImportError, match=r"torch\.export refuses"):
        from_torch(Function(lambda x: x if x.sum() > 0 else -x), (_x(2, 3),))


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3-8b", "llama-2-70b"])
@pytest.mark.parametrize("cached", [False, True])
def test_llama_layers_are_recognised_and_right(llama, name, cached):
    config = llama.CONFIGS[name].scaled(64)
    inputs, dynamic = llama.next_token(config, 2, 5) if cached else llama.prompt(config, 2, 4)
    module = llama.layer(config)
    program = exported(module, inputs, dynamic)
    graph = from_torch(program)
    assert isinstance(graph, Graph)
    assert [len(graph.of(kind)) for kind in (Linear, RMSNorm, Rotary, Attention)] == [7, 2, 2, 1]
    report = verify(graph, program, inputs)
    assert report.ok, str(report)
    assert len(report.rows) >= 24
    assert report.cosine > 1 - 1e-9
    x, *others = inputs
    got = graph.run(x, *others)
    want = module(*inputs)
    if cached:
        assert [a.shape for a in got] == [tuple(a.shape) for a in want]
        got, want = got[0], want[0]
    np.testing.assert_allclose(got, want.detach().numpy(), atol=1e-5)


def test_a_llama_layer_of_one_export_serves_other_sizes(llama):
    config = llama.CONFIGS["llama-3-8b"].scaled(64)
    module = llama.layer(config).double()
    inputs, dynamic = llama.prompt(config, 2, 4, torch.float64)
    graph = from_torch(module, inputs, dynamic=dynamic)
    other, _ = llama.prompt(config, 1, 7, torch.float64, seed=5)
    np.testing.assert_allclose(
        graph.run(*other), module(*other).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_a_vit_layer_is_right(vit):
    module = vit.layer(48, 96, 3)
    x = torch.randn(2, 7, 48)
    report = verify(from_torch(module, (x,), dynamic=({0: "batch"},)), module, (x,))
    assert report.ok, str(report)
    assert report.cosine > 1 - 1e-9


def test_fake_tensors_of_export_carry_zero_and_one_rows():
    """C65: the export of a linear layer with dynamic rows serves 0 and 1 of them, and inputs that are not contiguous."""
    module = torch.nn.Linear(6, 3).double()
    graph = from_torch(module, (_x(4, 6),), dynamic=({0: "rows"},))
    for rows in (0, 1, 5):
        x = _x(6, rows).t()
        assert not x.is_contiguous() or rows < 2
        got = graph.run(x)
        assert got.shape == (rows, 3)
        np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    "given, match",
    [
        ({"dynamic": "rows"}, "dynamic is 'rows'"),
        ({"dynamic": ({2: "rows"},)}, "axes of inputs with"),
        ({"dynamic": ({0: "a row"},)}, "axes of inputs with"),
        ({"dynamic": ({0: "a"}, {0: "b"})}, "axes of inputs with"),
        ({"example_inputs": torch.ones(4, 6)}, "not a tuple of tensors"),
        ({"unknown": "keep"}, "unknown is 'keep', not one of refuse, foreign"),
    ],
)
def test_arguments_of_another_kind_are_refused_before_anything_is_exported(given, match):
    with pytest.raises(ModelImportError, match=match):
        from_torch(torch.nn.Linear(6, 3), **{"example_inputs": (torch.ones(4, 6),), **given})


def test_inputs_that_do_not_fit_the_program_are_refused():
    program = exported(torch.nn.Linear(6, 3), (torch.ones(4, 6),))
    graph = from_torch(program)
    for inputs, error, match in (
        ((), GraphError, "0 inputs were given"),
        ((torch.ones(4, 6), torch.ones(4, 6)), GraphError, "2 inputs were given"),
        ((torch.ones(4, 5),), ShapeError, r"the array is \[4, 5\], expected \[4, 6\]"),
    ):
        with pytest.raises(error, match=match):
            verify(graph, program, inputs)


def test_a_dynamic_axis_of_one_is_widened_where_the_example_lies() -> None:
    module = torch.nn.Linear(8, 4).to("meta")
    program = exported(module, (torch.zeros(1, 8, device="meta"),), ({0: "tokens"},))
    (x,) = (n for n in program.graph.nodes if n.name in program.graph_signature.user_inputs)
    assert x.meta["val"].device.type == "meta"
    assert not isinstance(x.meta["val"].shape[0], int)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "bfloat16"])
def test_an_input_of_a_type_that_numpy_lacks_keeps_its_fractions(dtype):
    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x.to(torch.float16) * 2

    x = torch.tensor([0.5, -1.5, 3.5, 0.0625]).to(getattr(torch, dtype))
    model = compile_graph(from_torch(Doubled(), (x,)))
    assert model(x).tolist() == [1.0, -3.0, 7.0, 0.125]
    assert model(x.float().numpy()).tolist() == [1.0, -3.0, 7.0, 0.125]
