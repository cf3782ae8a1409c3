"""What a model that was built has beside its graph: compiled kernels, and weights that are packed for them.

A folder holds ``kernels/N`` (artifacts), ``weights/N`` (a file for each packed array) and ``built.json``, which says what each is
for. Packed arrays are mapped when they are loaded, and read once, on their way to a GPU.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ladder.errors import GraphError
from ladder.files import load_array, save_array
from ladder.graph.graph import Graph
from ladder.parallel import each
from ladder.runtime.arrays import numpy_dtype
from ladder.runtime.build import compile_plan
from ladder.runtime.layer import Layer, quantisation_plan, weight_of
from ladder.runtime.load import load as load_kernel
from ladder.runtime.packed import Packed
from ladder.torch.tasks import Quantisation, tasks_of
from ladder.ttype import Quantized

FORMAT = "ladder.built/1"
RECORD, KERNELS, WEIGHTS = "built.json", "kernels", "weights"


@dataclass(frozen=True, eq=False)
class Built:
    """Kernels by their plans, and packed weights by the names of their constants.

    It is where an executor takes both from, see :class:`ladder.torch.places.Builder`.
    """

    kernels: Mapping[Any, Any]
    weights: Mapping[str, Packed]
    _there: dict[tuple[str, str], Packed] = field(default_factory=dict, repr=False)

    def kernel(self, plan: Any) -> Any:
        """The kernel of a plan."""
        return self.kernels[plan]

    def packed(self, name: str, kernel: Any, weight: Quantized, device: Any) -> Packed:  # noqa: ARG002
        """A packed weight on a device of torch."""
        if device.type == "cpu":
            return self.weights[name]
        key = (name, str(device))
        if key not in self._there:
            self._there[key] = self.weights[name].to(device)
        return self._there[key]

    def save(self, folder: Path) -> None:
        """Write the folder's files; those of an older model there are replaced.

        Raises:
            OSError: a file cannot be written.
        """
        for part in (KERNELS, WEIGHTS):
            shutil.rmtree(folder / part, ignore_errors=True)
        for number, kernel in enumerate(self.kernels.values()):
            kernel.save(folder / KERNELS / str(number))
        record: dict[str, Any] = {"format": FORMAT, "kernels": len(self.kernels), "weights": []}
        for number, (name, packed) in enumerate(self.weights.items()):
            target = folder / WEIGHTS / str(number)
            target.mkdir(parents=True)
            for part, array in packed.numpy().items():
                save_array(target, part, array)
            owner = next(
                n
                for n, kernel in enumerate(self.kernels.values())
                if getattr(kernel, "packing", None) == packed.packing
            )
            record["weights"].append({"name": name, "kernel": owner})
        (folder / RECORD).write_text(json.dumps(record), encoding="utf-8")


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
    nodes = {graph.node(layer.node).inputs[1]: layer for layer in planned}

    def packed(name: str) -> Packed:
        layer = nodes[name]
        found: Packed = kernels[layer.plan].pack(weight_of(graph, graph.node(layer.node)))
        return found

    return Built(kernels, dict(zip(nodes, each(packed, list(nodes)), strict=True)))


def load(folder: Path) -> Built | None:
    """Read what :meth:`Built.save` wrote; None where a model was saved before it was built.

    Raises:
        GraphError: a file is missing, damaged, or of another version.
    """
    if not (folder / RECORD).is_file():
        return None
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise GraphError(
                f"the folder holds format {record['format']!r}, expected {FORMAT!r}",
                at=folder,
                hint="build the model again and save it",
            )
        kernels = [load_kernel(folder / KERNELS / str(n)) for n in range(record["kernels"])]
        weights = {
            one["name"]: _packed(folder / WEIGHTS / str(number), kernels[one["kernel"]].packing)
            for number, one in enumerate(record["weights"])
        }
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise GraphError(
            f"kernels or packed weights cannot be read: {error}",
            at=folder,
            hint="build the model again and save it",
        ) from error
    return Built({kernel.plan: kernel for kernel in kernels}, weights)


def _packed(folder: Path, packing: Any) -> Packed:
    arrays = {
        name: load_array(folder, name).view(numpy_dtype(dtype))
        for name, (_, dtype) in packing.shapes().items()
    }
    return Packed(packing, arrays)
