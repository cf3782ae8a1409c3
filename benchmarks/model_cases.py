"""The models that are checked and timed whole: their graphs at full size, and the kernels that those take.

Kernels are compiled where TVM is and no GPU, and travel: :func:`build` writes them to a folder, :class:`Shelf` reads it. A
graph at full size is not needed for that; the layers of a small one have the same operators but for N and K.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ladder
from benchmarks import store
from benchmarks.grid import DEVICE
from ladder.graph.constant import Constant
from ladder.model.model import Model
from ladder.runtime.layer import Layer, low_bit, matmul_of
from ladder.torch.places import Compiler
from ladder.torch.tasks import Quantisation, tasks_of
from ladder.ttype import Quantized

if TYPE_CHECKING:
    from ladder.graph.graph import Graph
    from ladder.graph.matmul import MatMul

EXAMPLES = Path(__file__).parents[1] / "examples" / "models"

#: tokens of a prompt that is checked, and behind which one token is decoded
CHECKED_TOKENS = 256

RULES: Mapping[str, ladder.Rule] = MappingProxyType(
    {
        "int4-g128": ladder.Rule(weight="int4", group=128, zero="integer"),
        "nf4-g64": ladder.Rule(weight="nf4", group=64),
        "fp8": ladder.Rule(weight="fp8_e4m3fn", group="channel"),
        "int8-int8": ladder.Rule(weight="int8", group="channel", activation="int8"),
    }
)


@cache
def example(name: str) -> Any:
    """A module of examples/models."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Phase:
    """How a model is called.

    Attributes:
        kind: "decode" (one token behind a cache), "prompt", or "rows".
        batch: sequences, images, or rows.
        tokens: of the prompt or the cache, or of an image; 1 for rows.
    """

    kind: str
    batch: int
    tokens: int

    @property
    def m(self) -> int:
        """Rows of the layers' activations."""
        return self.batch if self.kind in ("decode", "rows") else self.batch * self.tokens

    def __str__(self) -> str:
        words = {"decode": f"context {self.tokens}", "rows": ""}
        return f"{self.kind} batch {self.batch} {words.get(self.kind, f'{self.tokens} tokens')}".strip()


DECODE, PROMPT = Phase("decode", 1, CHECKED_TOKENS), Phase("prompt", 1, CHECKED_TOKENS)


@dataclass(frozen=True)
class Case:
    """A model.

    Attributes:
        name: of :data:`CASES`.
        module: from ``small`` and a device to the PyTorch module in float16.
        inputs: from ``small``, a phase and a device to the inputs and their dynamic axes.
        shapes: (N, K) of its layers after fusion, in order.
        phases: those that are checked.
    """

    name: str
    module: Callable[[bool, str], Any]
    inputs: Callable[[bool, Phase, str], tuple[tuple[Any, ...], Any]]
    shapes: tuple[tuple[int, int], ...]
    phases: tuple[Phase, ...]


def decoder_shapes(config: Any) -> tuple[tuple[int, int], ...]:
    """(N, K) of a decoder layer's linear layers after fusion: q with k and v, the output, gate with up, down."""
    wide = (config.heads + 2 * config.groups) * config.head
    hidden, inner = config.hidden, config.inner
    return (
        (wide, hidden),
        (hidden, config.heads * config.head),
        (2 * inner, hidden),
        (hidden, inner),
    )


def _llama(name: str) -> Case:
    from torch import float16

    llama = example("llama")
    full = llama.CONFIGS[name]

    def config(small: bool) -> Any:
        return full.scaled(full.hidden // 256) if small else full

    def inputs(small: bool, phase: Phase, device: str) -> tuple[tuple[Any, ...], Any]:
        make = llama.next_token if phase.kind == "decode" else llama.prompt
        found, dynamic = make(config(small), phase.batch, phase.tokens, float16)
        return tuple(one.to(device) for one in found), dynamic

    return Case(
        name,
        lambda small, device: llama.layer(config(small), float16, device=device),
        inputs,
        decoder_shapes(full),
        (DECODE, PROMPT),
    )


def _vit() -> Case:
    import torch

    vit = example("vit")
    width, inner = vit.WIDTH, vit.INNER

    def inputs(small: bool, phase: Phase, device: str) -> tuple[tuple[Any, ...], Any]:  # noqa: ARG001
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(phase.batch, phase.tokens, width, generator=generator)
        return (x.half().to(device),), ({0: "batch"},)

    return Case(
        "vit-base",
        lambda small, device: vit.layer().half().to(device),  # noqa: ARG005
        inputs,
        ((3 * width, width), (width, width), (inner, width), (width, inner)),
        (Phase("images", 1, vit.TOKENS), Phase("images", 4, vit.TOKENS)),
    )


def _mlp() -> Case:
    import torch

    mlp = example("mlp")

    def inputs(small: bool, phase: Phase, device: str) -> tuple[tuple[Any, ...], Any]:  # noqa: ARG001
        x = torch.randn(phase.batch, 512, generator=torch.Generator().manual_seed(1))
        return (x.half().to(device),), ({0: "rows"},)

    return Case(
        "mlp",
        lambda small, device: mlp.mlp().half().to(device),  # noqa: ARG005
        inputs,
        ((2048, 512), (2048, 2048), (256, 2048)),
        (Phase("rows", 1, 1), Phase("rows", CHECKED_TOKENS, 1)),
    )


@cache
def cases() -> Mapping[str, Case]:
    """All models by name, the largest first."""
    llamas = ("llama-2-70b", "llama-3-8b", "llama-2-7b")
    found = [*(_llama(name) for name in llamas), _vit(), _mlp()]
    return MappingProxyType({case.name: case for case in found})


# -- graphs and kernels ------------------------------------------------------------------------------


def imported(case: Case, phase: Phase, module: Any, device: str, *, small: bool = False) -> Graph:
    """The graph of a model in a phase, before types are assigned; two tokens are traced, whatever the phase has."""
    batch = 2 if phase.kind in ("decode", "images") else phase.batch
    traced = replace(phase, batch=batch if phase.kind != "rows" else 3)
    inputs, dynamic = case.inputs(small, traced, device)
    return ladder.from_torch(module, inputs, dynamic=dynamic)


def operators(case: Case, phase: Phase, rule: str) -> list[tuple[MatMul, str]]:
    """The matmuls of a model's layers at full size, from its graph in small, and what the rows of each are quantised from.

    That is the type of the numbers before, "" where rows are not quantised.
    """
    graph = imported(case, phase, case.module(True, "cpu"), "cpu", small=True)
    low = graph.assign(RULES[rule]).fuse()
    nodes = low_bit(low)
    ops = {node.name: matmul_of(low, node) for node in nodes}
    tasks = [task for task in tasks_of(low, ops) if isinstance(task, Quantisation)]
    sources = {task.name: task.source.dtype for task in tasks}
    return [
        (replace(ops[node.name], n=n, k=k), sources.get(node.inputs[0], ""))
        for node, (n, k) in zip(nodes, case.shapes, strict=True)
    ]


def key(op: Any, m: int | None = None, launch: str = "plain") -> str:
    """Name of the artifact of an operator's kernel for m rows."""
    return hashlib.sha256(f"{op}|{m}|{launch}|{DEVICE}".encode()).hexdigest()[:16]


def plans(
    case: Case, phase: Phase, rule: str, launch: str
) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Name of the artifact, operator in words and plan of all kernels that a phase takes."""
    activation = RULES[rule].activation
    for op, source in operators(case, phase, rule):
        yield (
            key(op, phase.m, launch),
            f"{op} m={phase.m} {launch}",
            lambda op=op: ladder.schedule(op, DEVICE).plan_for(phase.m).with_(launch=launch),
        )
        if source:
            rows = ladder.quantize_activations(None, op.k, source=source, target=activation)
            yield key(rows), str(rows), lambda rows=rows: ladder.schedule(rows, DEVICE)


def build(out: Path, wanted: Sequence[tuple[str, Phase, str, str]]) -> store.Index:
    """Compile the kernels of (model, phase, rule, launch) and write them; a failure is part of the index."""
    from ladder.codegen.toolchain import toolchain_version

    index = store.Index(store.commit(), toolchain_version(), store.command())
    for model, phase, rule, launch in wanted:
        for name, words, plan in plans(cases()[model], phase, rule, launch):
            if name in index.kernels:
                continue
            start = time.perf_counter()
            record: dict[str, Any] = {"artifact": name, "for": words}
            try:
                record["bytes"] = store.save(ladder.compile(plan()).artifact(), out, name)
            except ladder.LadderError as error:
                record = {"failure": str(error), "for": words}
            record["seconds"] = round(time.perf_counter() - start, 2)
            index.kernels[name] = record
        index.save(out)
    return index


@dataclass(eq=False)
class Shelf(Compiler):
    """Kernels of a folder that :func:`build` wrote; both phases of a model read the same packed weights.

    Attributes:
        folder: its path.
        index: what it holds.
    """

    folder: Path
    index: store.Index
    _loaded: dict[str, Any] = field(default_factory=dict)
    _by_plan: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def load(self, name: str) -> Any:
        """A kernel by the name of its artifact.

        Raises:
            LookupError: it was not built.
        """
        if name not in self._loaded:
            if not self.index.built(name):
                raise LookupError(f"{name}: {self.index.failure(name)}")
            kernel = self._loaded[name] = store.load(self.folder, name)
            self._by_plan[kernel.plan] = kernel
        return self._loaded[name]

    def kernel(self, plan: Any) -> Any:
        """See :class:`~ladder.torch.places.Builder`."""
        if plan not in self._by_plan:
            self.load(key(plan.op))
        return self._by_plan[plan]

    def forget(self) -> None:
        """Let packed weights go."""
        self._packed.clear()


def compiled(graph: Graph, m: int, launch: str, shelf: Shelf) -> Model:
    """The model of a graph, its plans those of the shelf's kernels for m rows."""
    layers = [
        Layer(node.name, shelf.load(key(matmul_of(graph, node), m, launch)).plan)
        for node in low_bit(graph)
    ]
    return Model(graph, tuple(layers))


def typed(graph: Graph, rule: str, known: dict[str, Quantized]) -> Graph:
    """The graph with the types of a rule, fused; weights that another graph of the model has quantised are taken over."""
    constants = tuple(
        Constant(one.name, known[one.name], one.sources) if one.name in known else one
        for one in graph.constants
    )
    assigned = graph.with_(constants=constants).assign(RULES[rule])
    suffix = {one.sources[0]: one.value for one in assigned.constants if one.sources}
    known.update({name: value for name, value in suffix.items() if isinstance(value, Quantized)})
    return assigned.fuse()
