"""The example models as ONNX files, from the weights of the PyTorch ones: what an exporter would write.

python examples/models/onnx_files.py llama.onnx && ladder graph llama.onnx
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Weights = Mapping[str, np.ndarray]


class Writer:
    """Nodes in the order in which they are written; tensors get numbers for names."""

    def __init__(self, weights: Weights) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants = {name: np.asarray(value) for name, value in weights.items()}

    def __call__(
        self, kind: str, *inputs: Any, name: str = "", domain: str = "", **attributes: Any
    ) -> str:
        """A node with one output; arrays among the inputs become constants."""
        output = name or f"{kind}_{len(self.nodes)}"
        names = [self.constant(one) if not isinstance(one, str) else one for one in inputs]
        self.nodes.append(
            helper.make_node(kind, names, [output], name=output, domain=domain, **attributes)
        )
        return output

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def model(
        self,
        inputs: Mapping[str, Sequence[Any]],
        outputs: Sequence[str],
        opset: int = 17,
        dtype: int = TensorProto.FLOAT,
    ) -> onnx.ModelProto:
        """The file: inputs by name with their shapes, texts for dynamic extents."""
        graph = helper.make_graph(
            self.nodes,
            "model",
            [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, dtype, None) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        sets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=10)


def weights_of(module: Any) -> dict[str, np.ndarray]:
    """The weights of a PyTorch module by name."""
    return {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()}


def linear(w: Writer, x: str, name: str, *, bias: bool = False) -> str:
    """MatMul by the transposed weight, as exporters write a linear layer."""
    turned = f"{name}.weight_t"
    if turned not in w.constants:
        w.constants[turned] = np.ascontiguousarray(w.constants.pop(f"{name}.weight").T)
    y = w("MatMul", x, turned, name=name)
    return w("Add", y, f"{name}.bias", name=f"{name}.add") if bias else y


def rms_norm(w: Writer, x: str, name: str, eps: float) -> str:
    mean = w("ReduceMean", w("Pow", x, np.float32(2)), axes=[-1], keepdims=1)
    root = w("Sqrt", w("Add", mean, np.float32(eps)))
    return w("Mul", f"{name}.weight", w("Mul", x, w("Div", np.float32(1), root)), name=name)


def heads(w: Writer, x: str, source: str, count: int, size: int) -> str:
    """[B, S, H*D] -> [B, H, S, D], the shape read from another tensor as exporters do."""
    shape = w("Shape", source)
    parts = [w("Unsqueeze", w("Gather", shape, np.int64(axis)), np.array([0])) for axis in (0, 1)]
    wanted = w("Concat", *parts, np.array([count, size]), axis=0)
    return w("Transpose", w("Reshape", x, wanted), perm=[0, 2, 1, 3])


def turn(w: Writer, x: str, cos: str, sin: str, size: int) -> str:
    half = size // 2
    lower = w("Slice", x, np.array([0]), np.array([half]), np.array([3]), np.array([1]))
    upper = w("Slice", x, np.array([half]), np.array([2**63 - 1]), np.array([3]), np.array([1]))
    turned = w("Concat", w("Neg", upper), lower, axis=-1)
    return w("Add", w("Mul", x, cos), w("Mul", turned, sin))


def llama(c: Any, weights: Weights, *, cached: bool = False) -> onnx.ModelProto:
    """A LLaMA decoder layer in operator set 17: every norm, rotation and attention spelled out.

    Inputs x [B, S, hidden], cos and sin [S, D], mask [S, T]; with a cache also keys and values [B, G, C, D].
    """
    w = Writer({name: value.astype(np.float32) for name, value in weights.items()})
    x = "x"
    normed = rms_norm(w, x, "input_norm", c.eps)
    q, k, v = (
        heads(w, linear(w, normed, f"attention.{name}_proj"), x, count, c.head)
        for name, count in (("q", c.heads), ("k", c.groups), ("v", c.groups))
    )
    q, k = (turn(w, one, "cos", "sin", c.head) for one in (q, k))
    if cached:
        k = w("Concat", "keys", k, axis=2, name="all_keys")
        v = w("Concat", "values", v, axis=2, name="all_values")
    scores = w("MatMul", q, w("Transpose", _repeated(w, k, c), perm=[0, 1, 3, 2]))
    scores = w("Add", w("Mul", scores, np.float32(c.head**-0.5)), "mask")
    y = w("MatMul", w("Softmax", scores, axis=-1), _repeated(w, v, c))
    joined = w("Reshape", w("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, -1]))
    x = w("Add", x, linear(w, joined, "attention.o_proj"))
    normed = rms_norm(w, x, "post_norm", c.eps)
    gate, up = (linear(w, normed, f"mlp.{name}_proj") for name in ("gate", "up"))
    inner = w("Mul", w("Mul", gate, w("Sigmoid", gate)), up)
    x = w("Add", x, linear(w, inner, "mlp.down_proj"), name="y")
    tokens, context = (1, "total") if cached else ("tokens", "tokens")
    inputs = {
        "x": ["batch", tokens, c.hidden],
        "cos": [tokens, c.head],
        "sin": [tokens, c.head],
        "mask": [tokens, context],
    }
    if not cached:
        return w.model(inputs, [x])
    cache = ["batch", c.groups, "context", c.head]
    inputs["mask"] = [1, 1]
    return w.model({**inputs, "keys": cache, "values": cache}, [x, "all_keys", "all_values"])


def _repeated(w: Writer, x: str, c: Any) -> str:
    """[B, G, T, D] -> [B, H, T, D], each group for its heads."""
    times = c.heads // c.groups
    if times == 1:
        return x
    shape = w("Shape", x)
    batch, tokens = (w("Unsqueeze", w("Gather", shape, np.int64(a)), np.array([0])) for a in (0, 2))
    wide = w("Concat", batch, np.array([c.groups, times]), tokens, np.array([c.head]), axis=0)
    flat = w("Concat", batch, np.array([c.heads]), tokens, np.array([c.head]), axis=0)
    return w("Reshape", w("Expand", w("Unsqueeze", x, np.array([2])), wide), flat)


def llama_23(c: Any, weights: Weights) -> onnx.ModelProto:
    """The same for a prompt in operator set 23, which has RMSNormalization, RotaryEmbedding and Attention."""
    w = Writer({name: value.astype(np.float32) for name, value in weights.items()})
    normed = w("RMSNormalization", "x", "input_norm.weight", epsilon=c.eps)
    q, k, v = (
        heads(w, linear(w, normed, f"attention.{name}_proj"), "x", count, c.head)
        for name, count in (("q", c.heads), ("k", c.groups), ("v", c.groups))
    )
    q, k = (w("RotaryEmbedding", one, "cos", "sin") for one in (q, k))
    y = w("Attention", q, k, v, is_causal=1)
    joined = w("Reshape", w("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, -1]))
    x = w("Add", "x", linear(w, joined, "attention.o_proj"))
    normed = w("RMSNormalization", x, "post_norm.weight", epsilon=c.eps)
    gate, up = (linear(w, normed, f"mlp.{name}_proj") for name in ("gate", "up"))
    inner = w("Mul", w("Mul", gate, w("Sigmoid", gate)), up)
    x = w("Add", x, linear(w, inner, "mlp.down_proj"), name="y")
    half = ["batch", "tokens", c.head // 2]
    return w.model({"x": ["batch", "tokens", c.hidden], "cos": half, "sin": half}, [x], opset=23)


def mlp(weights: Weights) -> onnx.ModelProto:
    """Three Gemm with the exact GELU spelled out between them."""
    w = Writer(weights)
    x = "x"
    for place in (0, 2, 4):
        x = w("Gemm", x, f"{place}.weight", f"{place}.bias", name=f"layer{place}", transB=1)
        if place < 4:
            erf = w("Erf", w("Div", x, np.float32(2**0.5)))
            x = w("Mul", w("Mul", x, w("Add", erf, np.float32(1))), np.float32(0.5))
    return w.model({"x": ["tokens", weights["0.weight"].shape[1]]}, [x])


def vit(weights: Weights, count: int) -> onnx.ModelProto:
    """A ViT encoder layer; q, k and v from one projection."""
    w = Writer(weights)
    width = weights["norm1.weight"].shape[0]
    normed = w("LayerNormalization", "x", "norm1.weight", "norm1.bias", epsilon=1e-6)
    qkv = linear(w, normed, "qkv", bias=True)
    split = w("Reshape", qkv, np.array([0, 0, 3, count, width // count]))
    turned = w("Transpose", split, perm=[2, 0, 3, 1, 4])
    q, k, v = (w("Gather", turned, np.int64(i), axis=0) for i in range(3))
    scores = w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2]))
    scores = w("Div", scores, np.float32((width // count) ** 0.5))
    y = w("MatMul", w("Softmax", scores, axis=-1), v)
    joined = w("Reshape", w("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, -1]))
    x = w("Add", "x", linear(w, joined, "proj", bias=True))
    normed = w("LayerNormalization", x, "norm2.weight", "norm2.bias", epsilon=1e-6)
    inner = linear(w, normed, "fc1", bias=True)
    inner = w(
        "Mul",
        w("Mul", inner, w("Add", w("Erf", w("Div", inner, np.float32(2**0.5))), np.float32(1))),
        np.float32(0.5),
    )
    x = w("Add", x, linear(w, inner, "fc2", bias=True), name="y")
    return w.model({"x": ["batch", "tokens", width]}, [x])


def main() -> None:
    import llama as torch_llama

    parser = argparse.ArgumentParser()
    parser.add_argument(
        "path", help="file that is written, a LLaMA-3-8B decoder layer scaled down by 32"
    )
    path = parser.parse_args().path
    config = torch_llama.CONFIGS["llama-3-8b"].scaled(32)
    onnx.save(llama(config, weights_of(torch_llama.layer(config))), path)


if __name__ == "__main__":
    main()
