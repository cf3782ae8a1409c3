"""Running a ``torch.export`` program by torch, to compare a graph with it; and reading one from a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ladder.errors import ModelImportError
from ladder.graph.importers.torch_export import array_of, first_line, tensor_of, torch_module
from ladder.graph.tensor import Array


def traced(program: Any, inputs: Sequence[Any]) -> tuple[dict[str, Array], list[Array]]:
    """All values of a program by torch's names, and its outputs; run by torch in the program's own types.

    Raises:
        ModelImportError: torch is missing.
    """
    torch = torch_module()
    values: dict[str, Array] = {}
    signature = program.graph_signature
    lifted = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    waiting = list(inputs)
    arguments = []
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        if node.name in lifted:
            target = lifted[node.name]
            arguments.append(program.state_dict.get(target, program.constants.get(target)))
        else:
            arguments.append(tensor_of(torch, waiting.pop(0)))

    class Recorder(torch.fx.Interpreter):  # type: ignore[misc,name-defined]  # torch carries no types here
        def run_node(self, n: Any) -> Any:
            result = super().run_node(n)
            if isinstance(result, torch.Tensor):
                values[n.name] = array_of(result)
            return result

    with torch.no_grad():
        results = Recorder(program.graph_module).run(*arguments)
    return values, [array_of(one) for one in results]


def read_program(path: Any) -> Any:
    """An ExportedProgram that ``torch.export.save`` wrote.

    Raises:
        ModelImportError: torch is missing, or the file is none.
    """
    torch = torch_module()
    try:
        return torch.export.load(path)
    except Exception as error:  # torch raises classes of its own for what a file may lack
        raise ModelImportError(
            f"the program cannot be read: {first_line(error)}",
            at=path,
            hint="give a file that torch.export.save wrote",
        ) from error
