"""ONNX models as graphs. The only module of the importers that imports onnx."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ladder.checks import PATH, accept
from ladder.errors import LadderError, ModelImportError
from ladder.graph.draft import Draft
from ladder.graph.extent import Extent, symbol
from ladder.graph.graph import Graph
from ladder.graph.importers.onnx_call import Call, Values
from ladder.graph.importers.onnx_operators import CONVERTERS, DTYPES
from ladder.graph.importers.onnx_quantized import unpack
from ladder.graph.importers.onnx_shapes import known
from ladder.graph.importers.unknown import Unknown, refuse
from ladder.graph.operators import Foreign
from ladder.graph.recognise import recognise
from ladder.graph.rewrite import canonical
from ladder.graph.tensor import Array, TensorType

INSTALL = "pip install 'ladder[models]'"

#: oldest default operator set that is read
OPSET = 17


def from_onnx(model: Any, *, unknown: str = "refuse") -> Graph:
    """A graph of an ONNX model: quantised weights keep their codes, named dimensions stay symbolic.

    Args:
        model: the path of a file, or a loaded ``onnx.ModelProto``.
        unknown: ``"refuse"`` to list operators that the graph does not know in one error, ``"foreign"`` to keep each as
            a node that the caller's framework runs (a result's shape has to be in the model).

    Raises:
        ModelImportError: onnx is missing, the file cannot be read, its operator set is older than 17, or it holds
            operators that are not known.
    """
    graph = _Model(loaded(model), foreign=unknown == "foreign").graph()
    return canonical(recognise(canonical(graph)))


def loaded(model: Any) -> Any:
    """A model as onnx has it.

    Raises:
        ModelImportError: as :func:`from_onnx`.
    """
    onnx = _onnx()
    if isinstance(model, onnx.ModelProto):
        return model
    path = accept(model, PATH, "model", at="from_onnx", error=ModelImportError)
    try:
        return onnx.load(path)
    except (OSError, onnx.checker.ValidationError, ValueError) as error:
        raise _unreadable(path, error) from error
    except (
        Exception
    ) as error:  # protobuf's own DecodeError, whose module moves between its releases
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ModelImportError:
    return ModelImportError(
        f"the model cannot be read: {error}", at=path, hint="give the path of an ONNX file"
    )


def _onnx() -> Any:
    try:
        import onnx
        import onnx.numpy_helper
    except ImportError as error:
        raise ModelImportError("onnx is not installed", at="from_onnx", hint=INSTALL) from error
    return onnx


class _Model:
    """The walk through one model."""

    def __init__(self, model: Any, *, foreign: bool) -> None:
        self.onnx = _onnx()
        self.model = model
        self.foreign = foreign
        self.unknown: list[Unknown] = []
        self.values = Values(Draft(), _opset(model))
        self.shapes: dict[str, Any] = {}

    def graph(self) -> Graph:
        """All of it."""
        graph = self.model.graph
        for initializer in graph.initializer:
            array = self.onnx.numpy_helper.to_array(initializer)
            self.values.initializers[initializer.name] = array
        for value in graph.input:
            if value.name not in self.values.initializers:
                type_ = self._type(value)
                self.values.names[value.name] = self.values.draft.input(value.name, type_)
        self.shapes = {value.name: value for value in (*graph.value_info, *graph.output)}
        for node in graph.node:
            self._node(node)
        refuse(self.unknown, "ONNX model")
        self.values.draft.outputs = [self.values.name(value.name) for value in graph.output]
        return self.values.draft.graph()

    def _node(self, node: Any) -> None:
        kind = (
            f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        )
        call = Call(
            self.values,
            kind,
            node.name or next((one for one in node.output if one), kind),
            tuple(node.input),
            tuple(node.output),
            {one.name: self._attribute(one) for one in node.attribute},
        )
        try:
            integers = known(call)
            if integers is not None:
                self.values.known[node.output[0]] = integers
                return
            self._convert(call)
        except LadderError as error:
            self.unknown.append(Unknown(kind, call.name, error.what))
            self._stand_in(call)

    def _convert(self, call: Call) -> None:
        converter = CONVERTERS.get(call.kind)
        if converter is None:
            if not self.foreign:
                self.unknown.append(Unknown(call.kind, call.name))
            self._stand_in(call)
            return
        made = converter(call)
        names = made if isinstance(made, list) else [made]
        for output, name in zip(call.outputs, names, strict=False):
            if name is not None:
                self.values.names[output] = name

    def _stand_in(self, call: Call) -> None:
        """A foreign node in the place of what is unknown, so that the walk can go on."""
        inputs = [self.values.name(one) for one in call.inputs if one]
        for output in call.outputs:
            value = self.shapes.get(output)
            if value is not None:
                result = self._type(value)
            elif inputs and not self.foreign:
                result = self.values.draft.type(
                    inputs[0]
                ).with_()  # only so that the list of unknowns gets whole
            else:
                self.unknown.append(
                    Unknown(call.kind, call.name, f"the model does not say what {output} is")
                )
                result = TensorType((), "float32")
            words = tuple((name, str(value)) for name, value in call.attributes.items())
            op = Foreign(call.kind, result, words)
            self.values.names[output] = self.values.draft.add(op, inputs, call.name, output)

    def _attribute(self, attribute: Any) -> Any:
        value = self.onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, self.onnx.TensorProto):
            return self.onnx.numpy_helper.to_array(value)
        return value

    def _type(self, value: Any) -> TensorType:
        tensor = value.type.tensor_type
        dtype = DTYPES.get(tensor.elem_type)
        if dtype is None or not value.type.HasField("tensor_type"):
            raise ModelImportError(
                f"{value.name} is no tensor of a type that is read", at="inputs", hint="see DTYPES"
            )
        extents: list[Extent] = []
        for axis, dimension in enumerate(tensor.shape.dim):
            if dimension.HasField("dim_value"):
                extents.append(int(dimension.dim_value))
            else:
                extents.append(symbol(dimension.dim_param or f"{value.name}_{axis}"))
        return TensorType(tuple(extents), dtype)


def _opset(model: Any) -> int:
    versions = [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")]
    version = int(max(versions, default=0))
    if version < OPSET:
        raise ModelImportError(
            f"the model is of operator set {version}",
            at="from_onnx",
            hint=f"onnx.version_converter.convert_version(model, {OPSET}) brings it to one that is read",
        )
    return version


def traced(model: Any, inputs: Sequence[Any]) -> tuple[dict[str, Array], list[Array]]:
    """All values of a model by ONNX's names, and its outputs; run by onnx's reference evaluator.

    Raises:
        ModelImportError: onnx is missing.
    """
    _onnx()
    from onnx.reference import ReferenceEvaluator

    proto = loaded(model)
    evaluator = ReferenceEvaluator(proto, new_ops=[_matmul_nbits()])
    constants = {one.name for one in proto.graph.initializer}
    names = [value.name for value in proto.graph.input if value.name not in constants]
    feeds = {name: np.asarray(array) for name, array in zip(names, inputs, strict=True)}
    found = evaluator.run(None, feeds, intermediate=True)
    values = {name: np.asarray(value) for name, value in found.items() if value is not None}
    return values, [values[value.name] for value in proto.graph.output]


def _matmul_nbits() -> Any:
    """MatMulNBits for the evaluator, which lacks it: unpacked and multiplied in the type of A."""
    from onnx.reference.op_run import OpRun

    class MatMulNBits(OpRun):  # type: ignore[misc]  # onnx carries no types here
        op_domain = "com.microsoft"

        def _run(
            self, a: Array, b: Array, scales: Array, *others: Array | None,
            K: int, N: int, bits: int, block_size: int, accuracy_level: int | None = None,  # noqa: ARG002
        ) -> tuple[Array]:  # fmt: skip
            blocks = -(-K // block_size)
            codes = unpack(b.reshape(N, -1), bits).reshape(N, blocks, block_size).astype(np.float64)
            zeros = others[0] if others and others[0] is not None else None
            if zeros is None:
                points = np.full((N, blocks), 2.0 ** (bits - 1))
            elif zeros.dtype == np.uint8:
                points = unpack(zeros.reshape(N, -1), bits)[:, :blocks].astype(np.float64)
            else:
                points = zeros.reshape(N, blocks).astype(np.float64)
            scaled = (codes - points[..., None]) * scales.reshape(N, blocks, 1).astype(np.float64)
            y = a.astype(np.float64) @ scaled.reshape(N, -1)[:, :K].T
            if len(others) > 2 and others[2] is not None:
                y = y + others[2]
            return (y.astype(a.dtype),)

    return MatMulNBits
