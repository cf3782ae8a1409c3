"""ONNX models of a few operators."""

from __future__ import annotations

import numpy as np


def model(nodes, inputs, outputs, opset=21, dtype=None, **constants):
    """A model of ``(kind, inputs, outputs, attributes)``; constants are arrays, or tensors of onnx."""
    from onnx import TensorProto, helper, numpy_helper

    dtype = TensorProto.FLOAT if dtype is None else dtype
    graph = helper.make_graph(
        [helper.make_node(*node[:3], **(node[3] if len(node) > 3 else {})) for node in nodes],
        "g",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, None) for name in outputs],
        [
            value if isinstance(value, TensorProto) else numpy_helper.from_array(np.asarray(value), name)
            for name, value in constants.items()
        ],
    )  # fmt: skip
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def one(kind, shapes, opset=21, attributes=None, **constants):
    """A model of one operator: inputs a, b, ... of some shapes, then constants."""
    names = [chr(97 + i) for i in range(len(shapes))]
    node = (kind, [*names, *constants], ["y"], attributes or {})
    return model([node], dict(zip(names, shapes, strict=True)), ["y"], opset, **constants)
