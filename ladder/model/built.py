"""What a model that was built has beside its graph: compiled kernels, and weights that are packed for them.

A folder holds ``kernels/N`` (artifacts), ``weights/N`` (a file for each packed array) and ``built.json``, which says what each is
for, and its digest. Packed arrays are compared with that when they are loaded, and mapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ladder.errors import GraphError
from ladder.files import load_array, load_document, save_array, save_document, write_files
from ladder.graph.graph import Graph
from ladder.parallel import each
from ladder.runtime.arrays import numpy_dtype
from ladder.runtime.build import compile_plan
from ladder.runtime.layer import Layer, quantisation_plan, weight_of
from ladder.runtime.load import load as load_kernel
from ladder.runtime.packed import Packed
from ladder.scheduler.packing import Packing
from ladder.torch.tasks import Quantisation, tasks_of
from ladder.ttype import Quantized

FORMAT = "ladder.built/2"
RECORD, KERNELS, WEIGHTS = "built.json", "kernels", "weights"


@dataclass(frozen=True, eq=False)
class Built:
    """Kernels by their plans, and packed weights by the names of their constants and their packings.

    Layers that share a constant may read it in several packings, beside activations of several types. It is where an executor takes both from, see :class:`ladder.torch.places.Builder`.
    """

    kernels: Mapping[Any, Any]
    weights: Mapping[tuple[str, Packing], Packed]
    _there: dict[tuple[str, Packing, str], Packed] = field(default_factory=dict, repr=False)

    def kernel(self, plan: Any) -> Any:
        """The kernel of a plan."""
        return self.kernels[plan]

    def packed(self, name: str, kernel: Any, weight: Quantized, device: Any) -> Packed:  # noqa: ARG002
        """A weight, packed for a kernel, on a device of torch."""
        there = self.weights[name, kernel.packing]
        if device.type == "cpu":
            return there
        key = (name, kernel.packing, str(device))
        if key not in self._there:
            self._there[key] = there.to(device)
        return self._there[key]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the copies on devices."""
        return (Built, (dict(self.kernels), dict(self.weights)))

    def write(self, folder: Path) -> None:
        """Write kernels, packed weights and what they are for into a folder that has none.

        Raises:
            OSError: a file cannot be written.
        """
        for number, kernel in enumerate(self.kernels.values()):
            write_files(folder / KERNELS / str(number), kernel.artifact().files())
        record: dict[str, Any] = {"format": FORMAT, "kernels": len(self.kernels), "weights": []}
        for number, ((name, _), packed) in enumerate(self.weights.items()):
            target = folder / WEIGHTS / str(number)
            target.mkdir(parents=True)
            arrays = packed.numpy().items()
            digests = {part: save_array(target, part, array) for part, array in arrays}
            one = {"name": name, "kernel": self._owner(packed), "digests": digests}
            record["weights"].append(one)
        save_document(folder / RECORD, record)

    def _owner(self, packed: Packed) -> int:
        """The number of a kernel that reads a weight."""
        packings = [getattr(kernel, "packing", None) for kernel in self.kernels.values()]
        return packings.index(packed.packing)


def build(graph: Graph, layers: Iterable[Layer], device: Any) -> Built:
    """Compile the kernels of a graph's layers and quantisations, and pack its weights, on the CPU.

    Raises:
        LoweringError: TVM is missing and the cache lacks a kernel.
        ToolchainError: the compiler refused a kernel.
    """
    planned = [layer for layer in layers if layer.plan is not None]
    matmuls = {layer.node: layer.plan.op for layer in planned if layer.plan is not None}
    wanted: list[Any] = [layer.plan for layer in planned]
    for task in tasks_of(graph, matmuls):
        if isinstance(task, Quantisation) and task.coded is None:
            k = task.source.shape[-1]
            assert isinstance(k, int)
            wanted.append(quantisation_plan(k, task.source.dtype, task.target, device))
    kernels = {plan: compile_plan(plan) for plan in dict.fromkeys(wanted) if plan is not None}
    readers = {
        (graph.node(layer.node).inputs[1], layer.plan.packing): layer
        for layer in planned
        if layer.plan is not None
    }

    def packed(layer: Layer) -> Packed:
        found: Packed = kernels[layer.plan].pack(weight_of(graph, graph.node(layer.node)))
        return found

    return Built(kernels, dict(zip(readers, each(packed, list(readers.values())), strict=True)))


def load(folder: Path) -> Built | None:
    """Read what :meth:`Built.write` wrote; None where a model was saved before it was built.

    Raises:
        GraphError: a file is missing, or cannot be read.
        ArtifactError: one is of another version, or is not as it was written.
    """
    if not (folder / RECORD).is_file():
        return None
    try:
        record = load_document(folder / RECORD, FORMAT)
        kernels = [load_kernel(folder / KERNELS / str(n)) for n in range(record["kernels"])]

        def packed(numbered: tuple[int, Mapping[str, Any]]) -> Packed:
            number, one = numbered
            packing = kernels[one["kernel"]].packing
            return _packed(folder / WEIGHTS / str(number), packing, one["digests"])

        keys = [(one["name"], kernels[one["kernel"]].packing) for one in record["weights"]]
        weights = dict(zip(keys, each(packed, list(enumerate(record["weights"]))), strict=True))
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise GraphError(
            f"kernels or packed weights cannot be read: {error}",
            at=folder,
            hint="build the model again and save it",
        ) from error
    return Built({kernel.plan: kernel for kernel in kernels}, weights)


def _packed(folder: Path, packing: Any, digests: Mapping[str, str]) -> Packed:
    arrays = {
        name: load_array(folder, name, digests[name]).view(numpy_dtype(dtype))
        for name, (_, dtype) in packing.shapes().items()
    }
    return Packed(packing, arrays)
