"""``torch.export`` programs and modules as graphs. The only module of the importers that imports torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ladder.checks import Expected, accept, is_integer, several, shown
from ladder.errors import LadderError, ModelImportError, ShapeError
from ladder.graph.draft import Draft
from ladder.graph.extent import Extent, symbol
from ladder.graph.graph import Graph
from ladder.graph.importers.torch_call import Call, Ref
from ladder.graph.importers.torch_operators import CONVERTERS
from ladder.graph.importers.unknown import Unknown, first_line, is_foreign, refuse
from ladder.graph.operators import Foreign
from ladder.graph.recognise import recognise
from ladder.graph.rewrite import canonical
from ladder.graph.tensor import Array, TensorType

INSTALL = "pip install 'ladder[torch]'"

#: for each input: axis -> name of a dynamic extent
Dynamic = Sequence[Mapping[int, str]]

INPUTS: Expected[tuple[Any, ...]] = several(
    Expected("a tensor", lambda _: True, lambda value: value), "a tuple of tensors"
)

#: calls that make no value that a graph needs
_WITHOUT_VALUE = ("aten._assert", "aten.sym_constrain", "_guards")


def from_torch(
    model: Any,
    example_inputs: Sequence[Any] | None = None,
    *,
    dynamic: Dynamic | None = None,
    unknown: str = "refuse",
) -> Graph:
    """A graph of a module, or of what ``torch.export.export`` made of one.

    Args:
        model: an ExportedProgram, or an ``nn.Module``, which is exported in eval mode.
        example_inputs: tensors to export a module with.
        dynamic: of each example input, its dynamic axes by name: ``({0: "batch", 1: "sequence"},)``. Axes of one name
            have one size, and stay symbolic in the graph.
        unknown: ``"refuse"`` to list operators that the graph does not know in one error, ``"foreign"`` to keep each as
            a node that the caller's framework runs.

    Raises:
        ModelImportError: torch is missing, the module cannot be exported, or it holds unknown operators.
    """
    foreign = is_foreign(unknown, "from_torch")
    program = exported(model, example_inputs, dynamic)
    names = _symbol_names(program, dynamic)
    graph = _Program(program, names, foreign=foreign).graph()
    return canonical(recognise(canonical(graph)))


def exported(
    model: Any, example_inputs: Sequence[Any] | None = None, dynamic: Dynamic | None = None
) -> Any:
    """An ExportedProgram of a module; a program as it is.

    Raises:
        ModelImportError: as :func:`from_torch`.
    """
    torch = torch_module()
    if isinstance(model, torch.export.ExportedProgram):
        return model
    if not isinstance(model, torch.nn.Module) or example_inputs is None:
        raise ModelImportError(
            f"a {type(model).__name__} was given"
            + ("" if example_inputs is not None else " without example inputs"),
            at="from_torch",
            hint="give an ExportedProgram, or a module with example inputs",
        )
    examples = accept(
        example_inputs, INPUTS, "example_inputs", at="from_torch", error=ModelImportError
    )
    given = [tensor_of(torch, one) for one in examples]
    if dynamic is not None:
        _check_dynamic(dynamic, [tensor.ndim for tensor in given])
    dims: dict[str, Any] = {}
    tensors = _widened(given, dynamic)
    shapes = None
    if dynamic is not None:
        shapes = tuple(
            {axis: dims.setdefault(name, torch.export.Dim(name)) for axis, name in axes.items()}
            for axes in dynamic
        )
    training = [(part, part.training) for part in model.modules()]
    try:
        with torch.no_grad():
            return torch.export.export(model.eval(), tensors, dynamic_shapes=shapes)
    except Exception as error:  # dynamo raises by classes of its own
        raise ModelImportError(
            f"torch.export refuses the module: {first_line(error)}",
            at=type(model).__name__,
            hint="torch.export.export(module, inputs) shows the whole reason",
        ) from error
    finally:  # the caller's module is left as it was
        for part, was in training:
            part.training = was


def _check_dynamic(dynamic: Any, ranks: Sequence[int]) -> None:
    """Refuse what names no axes of the example inputs.

    Raises:
        ModelImportError: it is no sequence of a mapping from axis to name for each input.
    """
    is_one_each = isinstance(dynamic, (list, tuple)) and len(dynamic) == len(ranks)
    if not is_one_each or not all(
        isinstance(axes, Mapping)
        and all(is_integer(axis) and 0 <= axis < rank for axis in axes)
        and all(isinstance(name, str) and name.isidentifier() for name in axes.values())
        for axes, rank in zip(dynamic, ranks, strict=True)
    ):
        raise ModelImportError(
            f"dynamic is {shown(dynamic)}, not the names of axes of inputs with {list(ranks)} axes",
            at="from_torch",
            hint='of each input a mapping from axis to name: ({0: "batch"}, {})',
        )


def _widened(tensors: Sequence[Any], dynamic: Dynamic | None) -> tuple[Any, ...]:
    """Examples whose dynamic axes have two elements or more: torch takes 0 and 1 for constants. Their values do not matter."""
    found = []
    for tensor, axes in zip(tensors, dynamic or [{}] * len(tensors), strict=False):
        for axis in axes:
            if tensor.ndim > axis and tensor.shape[axis] < 2:
                shape = [2 if i == axis else extent for i, extent in enumerate(tensor.shape)]
                tensor = tensor.new_zeros(shape)  # where the module lies, too
        found.append(tensor)
    return tuple(found) + tuple(tensors[len(found) :])


def torch_module() -> Any:
    """torch itself.

    Raises:
        ModelImportError: it is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise ModelImportError("torch is not installed", at="from_torch", hint=INSTALL) from error
    return torch


def _symbol_names(program: Any, dynamic: Dynamic | None) -> dict[str, str]:
    """torch's symbol -> the caller's name, or d0, d1, ... in the order of the inputs."""
    names: dict[str, str] = {}
    user = set(program.graph_signature.user_inputs)
    shapes = [
        node.meta["val"].shape
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in user and hasattr(node.meta["val"], "shape")
    ]
    for shape, axes in zip(shapes, dynamic or [{}] * len(shapes), strict=False):
        for axis, name in axes.items():
            if not isinstance(shape[axis], int):
                names.setdefault(str(shape[axis]), name)
    for shape in shapes:
        for extent in shape:
            if not isinstance(extent, int) and str(extent).isidentifier():
                names.setdefault(str(extent), f"d{len(names)}")
    return names


class _Program:
    """The walk through one program."""

    def __init__(self, program: Any, symbols: Mapping[str, str], *, foreign: bool) -> None:
        self.program = program
        self.symbols = symbols
        self.foreign = foreign
        self.draft = Draft()
        self.values: dict[str, Any] = {}  # torch's name -> Ref, list of Refs, or an extent
        self.unknown: list[Unknown] = []

    def graph(self) -> Graph:
        """All of it."""
        signature = self.program.graph_signature
        if written := list(signature.buffers_to_mutate.values()):
            raise ModelImportError(
                f"the module writes to {', '.join(written)}",
                at="buffers",
                hint="return the new value instead: a graph has no state",
            )
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node)
            elif node.op == "call_function":
                self._call(node)
        refuse(self.unknown, "torch.export program")
        for name in signature.user_outputs:
            found = self.values.get(name)
            if not isinstance(found, Ref):
                raise ModelImportError(
                    f"output {name} is no tensor", at="outputs", hint="return tensors only"
                )
            self.draft.outputs.append(found.name)
        return self.draft.graph()

    def _placeholder(self, node: Any) -> None:
        signature = self.program.graph_signature
        name = node.name
        for table in (signature.inputs_to_parameters, signature.inputs_to_buffers):
            if name in table:
                target = table[name]
                tensor = self.program.state_dict.get(target, self.program.constants.get(target))
                self.values[name] = Ref(self.draft.constant(target, array_of(tensor)))
                return
        lifted = signature.inputs_to_lifted_tensor_constants
        if name in lifted:
            array = array_of(self.program.constants[lifted[name]])
            self.values[name] = Ref(self.draft.constant(lifted[name], array))
            return
        value = node.meta["val"]
        if not hasattr(value, "shape"):
            raise ModelImportError(
                f"input {name} is {value!r}", at="inputs", hint="inputs are tensors"
            )
        self.values[name] = Ref(self.draft.input(name, self._type(value)))

    def _call(self, node: Any) -> None:
        target = str(node.target)
        value = node.meta.get("val")
        if any(target.startswith(word) for word in _WITHOUT_VALUE) or value is None:
            return
        if target.endswith("getitem>") or "getitem" in target:
            source, place = node.args
            pieces = self.values[source.name]
            self.values[node.name] = pieces[place] if isinstance(pieces, list) else pieces
            return
        try:
            if not hasattr(value, "shape") and not isinstance(value, (list, tuple)):
                self.values[node.name] = self._extent(value)
                return
            self.values[node.name] = self._converted(node, target, value)
        except LadderError as error:
            self.unknown.append(Unknown(target, _place(node), error.what))
            self._stand_in(node, target, value)

    def _converted(self, node: Any, target: str, value: Any) -> Any:
        results = [
            self._type(one) for one in (value if isinstance(value, (list, tuple)) else [value])
        ]
        converter = CONVERTERS.get(target)
        if converter is None:
            in_place = target.split(".")[1].endswith("_") and not target.endswith("__")
            if in_place or not self.foreign:
                why = "it writes to its argument, and a graph has no state" if in_place else ""
                self.unknown.append(Unknown(target, _place(node), why))
            return self._stand_in(node, target, value)
        call = Call(
            self.draft,
            _name(node),
            [self._argument(one) for one in node.args],
            {name: self._argument(one) for name, one in node.kwargs.items()},
            results,
            node.name,
        )
        made = converter(call)
        names = made if isinstance(made, list) else [made]
        for name, wanted in zip(names, results, strict=False):
            if self.draft.type(name).shape != wanted.shape:
                raise ShapeError(
                    f"{self.draft.type(name)} where torch has {wanted}",
                    at=node.name,
                    hint="report it",
                )
        return [Ref(name) for name in made] if isinstance(made, list) else Ref(made)

    def _stand_in(self, node: Any, target: str, value: Any) -> Any:
        """A foreign node in the place of what is unknown, so that the walk can go on."""
        inputs = [
            self.values[one.name].name
            for one in node.all_input_nodes
            if isinstance(self.values.get(one.name), Ref)
        ]
        many = isinstance(value, (list, tuple))
        refs = []
        for place, one in enumerate(value if many else [value]):
            result = self._type(one)
            op = Foreign(f"{target}[{place}]" if many else target, result, _words(node))
            refs.append(Ref(self.draft.add(op, inputs, _name(node), node.name)))
        self.values[node.name] = refs if many else refs[0]
        return self.values[node.name]

    def _argument(self, given: Any) -> Any:
        if hasattr(given, "op") and hasattr(given, "name"):  # a node of torch.fx
            return self.values[given.name]
        if isinstance(given, (list, tuple)):
            return [self._argument(one) for one in given]
        if type(given).__module__ == "torch":
            return str(given).removeprefix("torch.")
        return given

    def _type(self, tensor: Any) -> TensorType:
        shape = tuple(self._extent(extent) for extent in tensor.shape)
        return TensorType(shape, _dtype(tensor.dtype))

    def _extent(self, given: Any) -> Any:
        """An extent of torch: an int, or the polynomial that its expression spells."""
        if isinstance(given, (bool, int, float)):
            return given
        return self._polynomial(given.node.expr)

    def _polynomial(self, expression: Any) -> Extent:
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            return symbol(self.symbols.get(str(expression), str(expression)))
        parts = [self._polynomial(part) for part in expression.args]
        if expression.is_Add or expression.is_Mul:
            result = parts[0]
            for part in parts[1:]:
                result = result + part if expression.is_Add else result * part
            return result
        if expression.is_Pow and isinstance(parts[1], int) and parts[1] > 0:
            result = parts[0]
            for _ in range(parts[1] - 1):
                result = result * parts[0]
            return result
        raise ShapeError(
            f"the extent {expression} is no sum of products",
            at="shape",
            hint="make the axis that it comes from static",
        )


def _dtype(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    return {"float8_e4m3fn": "fp8_e4m3fn", "float8_e5m2": "fp8_e5m2"}.get(name, name)


def array_of(tensor: Any) -> Array:
    """A tensor of torch as NumPy sees it; no copy where it lies contiguous on the CPU."""
    torch = torch_module()
    given = tensor.detach().cpu().contiguous()
    bits = {
        torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
        torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
        torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
    }
    if given.dtype in bits:
        as_bits, dtype = bits[given.dtype]
        return np.asarray(given.view(as_bits).numpy()).view(dtype)
    return np.asarray(given.numpy())


def _scope(node: Any) -> tuple[str, str]:
    """Path and class of the innermost module that a node comes from."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    for path, kind in reversed(stack):
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        if "_empty_nn_module_stack" not in path:
            return path.removeprefix("L['self'].").removeprefix("L__self___"), name
    return "", ""


def _name(node: Any) -> str:
    """A leaf module's path for what it computes, else the path of the module and torch's name."""
    path, kind = _scope(node)
    if path and kind.startswith("torch.nn.modules"):
        return path
    return f"{path}.{node.name}" if path else str(node.name)


def _place(node: Any) -> str:
    lines = [
        line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip()
    ]
    path, _ = _scope(node)
    where = f"{path}.{node.name}" if path else node.name
    return f"{where} ({lines[-1]})" if lines else where


def _words(node: Any) -> tuple[tuple[str, str], ...]:
    return (("args", str(node.args)), *((name, str(v)) for name, v in node.kwargs.items()))


def tensor_of(torch: Any, given: Any) -> Any:
    """An array as torch's; NumPy has no bfloat16 of its own."""
    if isinstance(given, np.ndarray) and given.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(given.astype(np.float32)).to(torch.bfloat16)
    return torch.as_tensor(given)
