"""ONNX models: operator by operator beside onnx's reference evaluator, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.errors import ModelImportError
from ladder.graph.extent import symbol
from tests.graph.importers.conftest import model, one

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

from ladder.graph.importers.onnx import from_onnx, traced  # noqa: E402

RNG = np.random.default_rng(0)
F32 = np.float32
I64 = np.int64
CASES = {
    "Add": one("Add", [(2, 3), (3,)]),
    "Div": one("Div", [(2, 3), (2, 1)]),
    "Pow": one("Pow", [(2, 3)], n=F32(2)),
    "Max": one("Max", [(2, 3), (3,), (1,)]),
    "Erf": one("Erf", [(5,)]),
    "Gelu": one("Gelu", [(5,)], 20),
    "Gelu tanh": one("Gelu", [(5,)], 20, {"approximate": "tanh"}),
    "Clip": one("Clip", [(5,)], low=F32(-0.5), high=F32(0.5)),
    "Softmax": one("Softmax", [(2, 3, 4)], attributes={"axis": 1}),
    "LayerNormalization": one(
        "LayerNormalization", [(2, 4), (4,), (4,)], attributes={"epsilon": 0.1}
    ),
    "RMSNormalization": one("RMSNormalization", [(2, 4), (4,)], 23),
    "ReduceMean 18": one("ReduceMean", [(2, 3, 4)], 18, {"keepdims": 0}, axes=np.array([0, -1])),
    "ReduceMean 17": one("ReduceMean", [(2, 3, 4)], 17, {"axes": [1]}),
    "ReduceSum": one("ReduceSum", [(2, 3)]),
    "MatMul": one("MatMul", [(2, 3, 4), (2, 4, 5)]),
    "MatMul by a constant": one("MatMul", [(2, 3, 4)], w=RNG.normal(size=(4, 5)).astype(F32)),
    "Reshape": one("Reshape", [(2, 3, 4)], s=np.array([0, -1, 2])),
    "Reshape allowzero": one("Reshape", [(0, 3)], attributes={"allowzero": 1}, s=np.array([3, 0])),
    "Transpose": one("Transpose", [(2, 3, 4)], attributes={"perm": [2, 0, 1]}),
    "Transpose reversed": one("Transpose", [(2, 3, 4)]),
    "Concat": one("Concat", [(2, 3), (2, 4)], attributes={"axis": -1}),
    "Slice": one(
        "Slice", [(5, 6)], starts=np.array([1, -5]), ends=np.array([9, -1]), axes=np.array([0, 1]), steps=np.array([2, 1])
    ),
    "Squeeze": one("Squeeze", [(1, 3, 1)], axes=np.array([2])),
    "Unsqueeze": one("Unsqueeze", [(3,)], axes=np.array([0, -1])),
    "Expand": one("Expand", [(3, 1)], s=np.array([2, 1, 4])),
    "Gather": one("Gather", [(4, 3)], attributes={"axis": 1}, i=np.array([[2, 0]])),
    "Gather one": one("Gather", [(4, 3)], attributes={"axis": 0}, i=I64(-1)),
    "Cast": one("Cast", [(3,)], attributes={"to": TensorProto.DOUBLE}),
    "Flatten": one("Flatten", [(2, 3, 4)], attributes={"axis": 2}),
    "Attention": one("Attention", [(1, 2, 3, 4)] * 3, 23, {"is_causal": 1}),
    "Attention flat": one(
        "Attention", [(1, 3, 8), (1, 3, 4), (1, 3, 4)], 23, {"q_num_heads": 4, "kv_num_heads": 2, "scale": 0.3}
    ),
    "RotaryEmbedding": one("RotaryEmbedding", [(1, 2, 3, 4), (1, 3, 2), (1, 3, 2)], 23),
    "RotaryEmbedding interleaved": one(
        "RotaryEmbedding", [(1, 2, 3, 4), (1, 3, 2), (1, 3, 2)], 23, {"interleaved": 1}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_operator_means_what_onnx_computes(name):
    proto = CASES[name]
    graph = from_onnx(proto)
    inputs = [RNG.normal(size=tuple(map(int, one.type.shape))).astype(F32) for one in graph.inputs]
    _, (want,) = traced(proto, inputs)
    got = graph.run(*inputs)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    if name.startswith(("Gather", "Transpose", "Slice", "Reshape")):
        assert tuple(graph.types[graph.outputs[0]].shape) == want.shape


def test_shapes_that_are_computed_stay_symbolic_and_leave_no_node():
    nodes = [
        ("Shape", ["x"], ["shape"]),
        ("Gather", ["shape", "zero"], ["b"]),
        ("Gather", ["shape", "one"], ["s"]),
        ("Mul", ["b", "s"], ["rows"]),
        ("Unsqueeze", ["rows", "axis"], ["rows1"]),
        ("Concat", ["rows1", "minus"], ["wanted"], {"axis": 0}),
        ("Reshape", ["x", "wanted"], ["y"]),
    ]
    constants = {"zero": I64(0), "one": I64(1), "axis": np.array([0]), "minus": np.array([-1])}
    graph = from_onnx(model(nodes, {"x": ["batch", "seq", 2, 3]}, ["y"], **constants))
    assert graph.types[graph.outputs[0]].shape == (
        symbol("batch") * symbol("seq"),
        6,
    )
    assert len(graph.nodes) == 1
    assert graph.run(np.zeros((2, 5, 2, 3))).shape == (10, 6)


# -- what is refused -------------------------------------------------------------------------------


def test_unknown_operators_are_listed_at_once():
    nodes = [
        ("CumSum", ["x", "axis"], ["a"]),
        ("NonZero", ["a"], ["b"], {"name": "finder"}),
        ("Add", ["x", "x"], ["y"]),
    ]
    proto = model(nodes, {"x": [2, 3]}, ["y"], axis=I64(0))
    with pytest.raises(ModelImportError) as caught:
        from_onnx(proto)
    assert caught.value.what.startswith("2 operators of the model are not known")
    assert "CumSum: a" in caught.value.what
    assert "NonZero: finder" in caught.value.what


def test_unknown_operators_may_stay_the_frameworks():
    proto = model([("CumSum", ["x", "axis"], ["y"])], {"x": [2, 3]}, ["y"], axis=I64(1))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3]))
    graph = from_onnx(proto, unknown="foreign")
    done = graph.run(np.ones((2, 3)), foreign={"CumSum": lambda x, axis: np.cumsum(x, int(axis))})
    assert done[1].tolist() == [1, 2, 3]


def test_old_operator_sets_and_files_that_are_none(tmp_path):
    with pytest.raises(ModelImportError, match="operator set 16") as caught:
        from_onnx(one("Add", [(2,), (2,)], 16))
    assert "convert_version" in caught.value.hint
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\xffno model")
    for given in (path, tmp_path / "none.onnx"):
        with pytest.raises(ModelImportError, match="cannot be read"):
            from_onnx(given)
    with pytest.raises(ModelImportError, match="model is 3, not the path"):
        from_onnx(3)


def test_a_file_is_read(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(CASES["Add"], path)
    assert from_onnx(path) == from_onnx(str(path)) == from_onnx(CASES["Add"])
