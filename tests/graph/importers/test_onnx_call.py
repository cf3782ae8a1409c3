"""ONNX models that contradict themselves: each is refused with what is wrong, and where."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.errors import ModelImportError, ShapeError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from ladder.graph.importers.onnx import from_onnx, traced  # noqa: E402

F32 = np.float32
X = {"x": ["n", 6]}


def model(*nodes, inputs=X, outputs=("y",), opset=21, **constants):
    """Nodes as ``(kind, inputs, outputs, attributes)``; results without shapes."""
    graph = helper.make_graph(
        [helper.make_node(*node[:3], **(node[3] if len(node) > 3 else {})) for node in nodes],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def one(kind, attributes=None, **constants):
    return model((kind, ["x", *constants], ["y"], attributes or {}), **constants)


def nbits(**change):
    attributes = {"K": 6, "N": 4, "bits": 4, "block_size": 16, **change, "domain": "com.microsoft"}
    kept = {name: value for name, value in attributes.items() if value is not None}
    return one("MatMulNBits", kept, b=np.zeros((4, 1, 8), np.uint8), s=np.ones(4, F32))


AXES = {
    "Softmax": one("Softmax", {"axis": 2}),
    "LayerNormalization": one("LayerNormalization", {"axis": -3}, scale=np.ones(6, F32)),
    "ReduceMean": one("ReduceMean", axes=np.array([5])),
    "Concat": one("Concat", {"axis": 2}),
    "Gather": one("Gather", {"axis": 2}, i=np.array([0, 1])),
    "Split": one("Split", {"axis": 2}),
    "Slice": one("Slice", starts=np.array([0]), ends=np.array([1]), axes=np.array([2])),
    "Squeeze": one("Squeeze", axes=np.array([3])),
    "Unsqueeze": one("Unsqueeze", axes=np.array([4])),
    "Flatten": one("Flatten", {"axis": 3}),
}


@pytest.mark.parametrize("kind", AXES)
def test_axes_that_are_not_there_are_refused(kind):
    with pytest.raises(ModelImportError, match=rf"{kind} \(axis -?\d of [23]\): y"):
        from_onnx(AXES[kind])


@pytest.mark.parametrize("axis", [-3, 2])
def test_scales_along_an_axis_that_is_not_there_are_refused(axis):
    codes, scales = np.ones((6, 4), np.int8), np.ones(4, F32)
    nodes = ("DequantizeLinear", ["q", "s"], ["w"], {"axis": axis}), ("MatMul", ["x", "w"], ["y"])
    with pytest.raises(ModelImportError, match=f"axis {axis} of 2"):
        from_onnx(model(*nodes, q=codes, s=scales))


@pytest.mark.parametrize(
    "zeros", [np.full(4, 3, np.uint8), np.full(5, 3, np.int8), np.zeros(5, np.int8)]
)
def test_zero_points_of_another_type_or_shape_are_refused(zeros):
    """Read as if they were the codes' own, uint8 zeros beside int8 codes would mean other numbers."""
    codes, scales = np.ones((6, 4), np.int8), np.ones(4, F32)
    nodes = ("DequantizeLinear", ["q", "s", "z"], ["w"]), ("MatMul", ["x", "w"], ["y"])
    with pytest.raises(ModelImportError, match="zero points are"):
        from_onnx(model(*nodes, q=codes, s=scales, z=zeros))


@pytest.mark.parametrize(
    "proto, match",
    [
        (one("Concat"), r"Concat \(axis is missing\)"),
        (one("Transpose", {"perm": "ab"}), "Transpose cannot be read: ValueError"),
        (one("Reshape", s=np.array([-1, -1])), r"Reshape \(.* is -1"),
        (nbits(K=None), r"MatMulNBits \(K is missing\)"),
        (nbits(block_size=0), r"MatMulNBits \(block_size = 0\)"),
        (model(("Split", ["x", "s"], ["y", "z"], {"axis": 1}), s=np.array([3, 2])), "pieces of 5 from 6"),
        (model(("Relu", ["x"], ["y"]), ("Erf", ["x"], ["y"])), "two tensors are called 'y'"),
        (model(("Add", ["x", "b"], ["a"]), ("Add", ["a", "x"], ["b"]), outputs=["b"]), "no tensor is called 'b'"),
        (model(("MatMul", ["x", "w"], ["y"])), "no tensor is called 'w'"),
        (model(("Relu", ["x"], ["y"]), inputs={"x": None}), "x has no shape"),
        (model(("Relu", ["x"], ["y"]), opset=99), "operator set 99, the newest that is known here is"),
    ],
)  # fmt: skip
def test_models_that_contradict_themselves_are_refused(proto, match):
    with pytest.raises(ModelImportError, match=match):
        from_onnx(proto)


def test_negative_extents_are_refused():
    with pytest.raises(ShapeError, match="an extent is -3"):
        from_onnx(model(("Relu", ["x"], ["y"]), inputs={"x": [-3, 6]}))


def test_initializers_that_are_cut_short_are_refused():
    proto = model(("MatMul", ["x", "w"], ["y"]), w=np.ones((6, 4), F32))
    proto.graph.initializer[0].raw_data = proto.graph.initializer[0].raw_data[:10]
    with pytest.raises(ModelImportError, match="'w' cannot be read"):
        from_onnx(proto)
    proto.graph.initializer[0].ClearField("raw_data")
    proto.graph.initializer[0].data_location = TensorProto.EXTERNAL
    proto.graph.initializer[0].external_data.add(key="location", value="gone.bin")
    with pytest.raises(ModelImportError, match="'w' cannot be read"):
        from_onnx(proto)


def test_what_the_evaluator_cannot_run_is_told_as_an_error_of_ours():
    proto = model(("MatMul", ["x", "w"], ["y"]), w=np.ones((6, 4), F32))
    with pytest.raises(ModelImportError, match="evaluator cannot run the model"):
        traced(proto, [np.ones((2, 5), F32)])
    with pytest.raises(ModelImportError, match="0 inputs were given"):
        traced(proto, [])


def test_unknown_is_one_of_two_ways():
    with pytest.raises(ModelImportError, match="unknown is 'keep', not one of refuse, foreign"):
        from_onnx(one("Relu"), unknown="keep")
