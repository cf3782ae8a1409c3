"""ONNX models: operator by operator beside onnx's reference evaluator, layers beside torch, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ladder.errors import ModelImportError
from ladder.graph.extent import symbol
from ladder.graph.operators import Attention, Dequantize, Linear, Quantize, RMSNorm, Rotary
from ladder.graph.verify import verify

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from ladder.graph.importers.onnx import from_onnx, traced  # noqa: E402

RNG = np.random.default_rng(0)
F32 = np.float32


def model(nodes, inputs, outputs, opset=21, dtype=TensorProto.FLOAT, **constants):
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


# -- quantised weights -----------------------------------------------------------------------------


def int4(array, name):
    return numpy_helper.from_array(np.asarray(array).astype(ml_dtypes.int4), name)


def dequantized(codes, scales, zeros, axis, block):
    """ONNX's definition, by loops."""
    w = np.zeros(codes.shape)
    for index in np.ndindex(codes.shape):
        place = list(index)
        if block:
            place[axis] //= block
        s, z = scales, zeros
        at = tuple(place) if np.ndim(s) == 2 else (index[axis],) if np.ndim(s) == 1 else ()
        w[index] = (int(codes[index]) - (0 if z is None else int(z[at]))) * float(s[at])
    return w


def qdq(codes, scales, zeros=None, *, axis, block=0, opset=21, turned=False):
    k = codes.shape[1] if turned else codes.shape[0]
    names = ["w", "s", *([] if zeros is None else ["z"])]
    attributes = {"axis": axis, **({"block_size": block} if block else {})}
    nodes = [("DequantizeLinear", names, ["wf"], attributes)]
    right = "wf"
    if turned:
        nodes.append(("Transpose", ["wf"], ["wt"], {"perm": [1, 0]}))
        right = "wt"
    nodes.append(("MatMul", ["x", right], ["y"]))
    constants = {"w": int4(codes, "w"), "s": np.asarray(scales, F32)}
    if zeros is not None:
        constants["z"] = int4(zeros, "z")
    return model(nodes, {"x": ["m", k]}, ["y"], opset, **constants)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("with_zeros", [False, True])
def test_blocks_along_either_axis_meet_their_own_scale(axis, with_zeros):
    """C56: DequantizeLinear of [K, N] in blocks along K or N; every block has a power of two of its own."""
    k, n, block = 96, 64, 32
    codes = RNG.integers(-8, 8, (k, n))
    shape = (k // block, n) if axis == 0 else (k, n // block)
    scales = 2.0 ** ((np.arange(shape[0] * shape[1]) % 40) - 20).reshape(shape)
    zeros = RNG.integers(-8, 8, shape) if with_zeros else None
    graph = from_onnx(qdq(codes, scales, zeros, axis=axis, block=block))
    (layer,) = graph.of(Linear)
    weight = graph.constant(layer.inputs[1]).value
    assert weight.type.element.name == "int4"
    assert weight.type.group == ((1, block) if axis == 0 else (block, 1))
    want = dequantized(codes, scales, zeros, axis, block)
    np.testing.assert_array_equal(weight.dequantize(), want.T)
    np.testing.assert_array_equal(graph.run(np.eye(k)), want)


@pytest.mark.parametrize("with_zeros", [False, True])
def test_tied_weights_serve_both_layers_one_of_them_turned(with_zeros):
    """C55: two DequantizeLinear share weight, scale and zero, and feed two MatMul, one transposed."""
    n = 32
    codes = RNG.integers(-8, 8, (n, n))
    scales = 2.0 ** RNG.integers(-5, 5, (1, n)).astype(F32)
    zeros = RNG.integers(-8, 8, (1, n)) if with_zeros else None
    names = ["w", "s", *(["z"] if with_zeros else [])]
    attributes = {"axis": 0, "block_size": n}
    nodes = [
        ("DequantizeLinear", names, ["a"], attributes),
        ("DequantizeLinear", names, ["b"], attributes),
        ("Transpose", ["b"], ["bt"]),
        ("MatMul", ["x", "a"], ["y"]),
        ("MatMul", ["y", "bt"], ["z_out"]),
    ]
    constants = {"w": int4(codes, "w"), "s": scales}
    if with_zeros:
        constants["z"] = int4(zeros, "z")
    proto = model(nodes, {"x": ["m", n]}, ["y", "z_out"], **constants)
    graph = from_onnx(proto)
    w = dequantized(codes, scales, zeros, 0, n)
    y, z = graph.run(np.eye(n))
    np.testing.assert_array_equal(y, w)
    np.testing.assert_array_equal(z, w @ w.T)
    assert len(graph.of(Linear)) == 2
    assert all(graph.constant(node.inputs[1]).type.weight for node in graph.of(Linear))
    assert len(graph.constants) == 2
    low = graph.assign("int4")
    assert [low.constant(n.inputs[1]).value for n in low.of(Linear)] == [
        graph.constant(n.inputs[1]).value for n in graph.of(Linear)
    ]


@pytest.mark.parametrize(
    "scales, axis, block, group",
    [
        (F32(0.25), 1, 0, (None, None)),
        (2.0 ** np.arange(-8, 8, dtype=F32), 1, 0, (1, None)),
        (2.0 ** np.arange(-4, 4, dtype=F32), 0, 0, (None, 1)),
        ((2.0 ** np.arange(-8, 8, dtype=F32)).reshape(1, 16), 0, 8, (1, 8)),
    ],
    ids=["tensor", "per output", "per input", "one block per column"],
)
def test_every_rank_of_scales(scales, axis, block, group):
    """C57: scalar, per-channel, and one block per column (K == block): none is mistaken for another."""
    codes = RNG.integers(-8, 8, (8, 16))
    graph = from_onnx(qdq(codes, scales, axis=axis, block=block))
    (layer,) = graph.of(Linear)
    assert graph.constant(layer.inputs[1]).type.weight.group == group
    want = dequantized(codes, np.asarray(scales), None, axis, block)
    np.testing.assert_array_equal(graph.run(np.eye(8)), want)


def test_an_activation_among_weights_stays_an_activation():
    """C57: only DequantizeLinear of an initializer becomes a weight."""
    nodes = [
        ("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        ("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        ("DequantizeLinear", ["w", "s"], ["wf"], {"axis": 1}),
        ("MatMul", ["xd", "wf"], ["y"]),
    ]
    w = RNG.integers(-128, 128, (4, 6)).astype(np.int8)
    constants = {"xs": F32(0.1), "xz": np.uint8(128), "w": w, "s": 2.0 ** np.arange(6, dtype=F32)}
    proto = model(nodes, {"x": ["m", 4]}, ["y"], **constants)
    graph = from_onnx(proto)
    assert [type(n.op) for n in graph.nodes] == [Quantize, Dequantize, Linear]
    assert graph.constant(graph.nodes[-1].inputs[1]).type.weight.element.name == "int8"
    report = verify(graph, proto, [RNG.normal(size=(3, 4)).astype(F32)])
    assert report.ok, str(report)


@pytest.mark.parametrize("opset, block", [(20, 0), (19, 0), (20, 32)])
def test_int4_or_blocks_in_an_older_operator_set_are_refused(opset, block):
    """C57: int4 under operator set 20 is no valid model."""
    codes = RNG.integers(-8, 8, (32, 4))
    scales = np.ones((1, 4) if block else (), F32)
    with pytest.raises(ModelImportError, match=f"under operator set {opset}"):
        from_onnx(qdq(codes, scales, axis=0, block=block, opset=opset))


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("alpha, beta", [(1.0, 1.0), (0.5, 2.0), (2.0, 0.0)])
@pytest.mark.parametrize("low", [False, True])
def test_attributes_of_gemm_are_kept(turned, alpha, beta, low):
    """C57: alpha, beta and transB of Gemm, over plain and over quantised weights."""
    codes = RNG.integers(-8, 8, (6, 4) if turned else (4, 6))
    bias = RNG.integers(-4, 4, 6).astype(F32)
    attributes = {"alpha": alpha, "beta": beta, "transB": turned}
    if low:
        nodes = [
            ("DequantizeLinear", ["q", "s"], ["w"]),
            ("Gemm", ["x", "w", "c"], ["y"], attributes),
        ]
        constants = {"q": int4(codes, "q"), "s": F32(0.5), "c": bias}
    else:
        nodes = [("Gemm", ["x", "w", "c"], ["y"], attributes)]
        constants = {"w": codes.astype(F32), "c": bias}
    graph = from_onnx(model(nodes, {"x": ["m", 4]}, ["y"], **constants))
    w = codes * (0.5 if low else 1.0)
    want = alpha * (np.eye(4) @ (w.T if turned else w)) + beta * bias
    np.testing.assert_array_equal(graph.run(np.eye(4)), want)
    (layer,) = graph.of(Linear)
    assert (graph.constant(layer.inputs[1]).type.weight is not None) == low


def test_a_chain_of_quantised_operators_rounds_as_onnx_does_at_halves():
    """C59: QDQ around Add and MatMul, inputs at k + 0.5 steps: half to even, equal bit by bit to onnx's evaluator.

    Where the scale is no power of two, float32 and float64 sums may lie on two sides of a half: one step, and no more.
    """
    nodes = [
        ("QuantizeLinear", ["x", "s", "z"], ["q1"]),
        ("DequantizeLinear", ["q1", "s", "z"], ["d1"]),
        ("Add", ["d1", "half"], ["a"]),
        ("QuantizeLinear", ["a", "s", "z"], ["q2"]),
        ("DequantizeLinear", ["q2", "s", "z"], ["d2"]),
        ("MatMul", ["d2", "w"], ["m"]),
        ("QuantizeLinear", ["m", "s", "z"], ["y"]),
    ]
    for scale in (0.125, 0.1):
        s = F32(scale)
        constants = {"s": s, "z": np.int8(3), "half": s * F32(0.5), "w": np.eye(8, dtype=F32)}
        proto = model(nodes, {"x": ["m", 8]}, ["y"], **constants)
        x = ((np.arange(-80, 80).reshape(-1, 8) + F32(0.5)) * s).astype(F32)
        _, (want,) = traced(proto, [x])
        steps = np.abs(from_onnx(proto).run(x) - want.astype(int))
        assert steps.max() <= (0 if scale == 0.125 else 1)
        first = from_onnx(model(nodes[:1], {"x": ["m", 8]}, ["q1"], s=s, z=np.int8(3))).run(x)
        np.testing.assert_array_equal(first, np.clip(np.rint(x / s) + 3, -128, 127))


def test_every_quantised_type_reads_its_codes():
    for dtype, opset in (
        (np.int8, 17),
        (np.uint8, 17),
        (ml_dtypes.uint4, 21),
        (ml_dtypes.float8_e4m3fn, 19),
    ):
        codes = RNG.integers(0, 8, (4, 6)).astype(dtype)
        nodes = [("DequantizeLinear", ["q", "s"], ["w"]), ("MatMul", ["x", "w"], ["y"])]
        proto = model(nodes, {"x": ["m", 4]}, ["y"], opset, q=codes, s=F32(0.5))
        graph = from_onnx(proto)
        (layer,) = graph.of(Linear)
        assert graph.constant(layer.inputs[1]).type.weight.bits == (
            4 if dtype == ml_dtypes.uint4 else 8
        )
        np.testing.assert_array_equal(graph.run(np.eye(4)), codes.astype(float) * 0.5)


# -- MatMulNBits -----------------------------------------------------------------------------------


def packed(codes, bits, block):
    """[N, K] codes -> [N, blocks, bytes], by shifting one code at a time into its byte."""
    n, k = codes.shape
    blocks = -(-k // block)
    out = np.zeros((n, blocks, block * bits // 8), np.uint8)
    for row in range(n):
        for column in range(k):
            place = (column % block) * bits
            out[row, column // block, place // 8] |= int(codes[row, column]) << place % 8
    return out


def packed_rows(codes, bits):
    n, count = codes.shape
    out = np.zeros((n, -(-count * bits // 8)), np.uint8)
    for row in range(n):
        for i in range(count):
            out[row, i * bits // 8] |= int(codes[row, i]) << i * bits % 8
    return out


def nbits(n, k, bits, block, *, zeros=None, flat=False, g_idx=None, change=None):
    blocks = -(-k // block)
    rng = np.random.default_rng(n + k)
    codes = rng.integers(0, 2**bits, (n, k))
    scales = (2.0 ** rng.integers(-6, 6, (n, blocks))).astype(F32)
    constants = {"B": packed(codes, bits, block), "scales": scales.reshape(-1) if flat else scales}
    points = np.full((n, blocks), 2.0 ** (bits - 1))
    inputs = ["x", "B", "scales", "", ""]
    if zeros == "packed":
        points = rng.integers(0, 2**bits, (n, blocks))
        stored = packed_rows(points, bits)
        constants["zeros"] = stored.reshape(-1) if flat else stored
    elif zeros == "float":
        points = rng.integers(0, 2**bits, (n, blocks)) + 0.5
        constants["zeros"] = (points.reshape(-1) if flat else points).astype(F32)
    if zeros:
        inputs[3] = "zeros"
    if g_idx is not None:
        inputs[4] = "g_idx"
        constants["g_idx"] = np.asarray(g_idx, np.int32)
    constants.update(change or {})
    node = (
        "MatMulNBits",
        inputs,
        ["y"],
        {"domain": "com.microsoft", "K": k, "N": n, "bits": bits, "block_size": block},
    )
    spread = np.arange(k) // block
    weight = (codes - points[:, spread]) * scales[:, spread]
    return model([node], {"x": ["m", k]}, ["y"], **constants), weight


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("zeros", [None, "packed", "float"])
@pytest.mark.parametrize("bits, block", [(4, 32), (4, 16), (2, 128), (8, 32)])
def test_matmul_nbits_keeps_codes_scales_and_zeros(bits, block, zeros, flat):
    """C88: scales and zeros as [N * blocks] and as [N, blocks], packed and float zeros, 2, 4 and 8 bits."""
    proto, weight = nbits(6, 3 * block, bits, block, zeros=zeros, flat=flat)
    graph = from_onnx(proto)
    (layer,) = graph.of(Linear)
    constant = graph.constant(layer.inputs[1])
    assert constant.type.weight.bits == bits
    assert constant.type.weight.zero == {None: None, "packed": "integer", "float": "float"}[zeros]
    np.testing.assert_array_equal(constant.value.dequantize(), weight)
    x = RNG.normal(size=(2, 3 * block)).astype(F32)
    np.testing.assert_array_equal(graph.run(x), x.astype(np.float64) @ weight.T)
    assert verify(graph, proto, [x]).ok


@pytest.mark.parametrize("m", [1, 2])
def test_a_last_block_that_is_half_full(m):
    """C38: K = 4304, blocks of 32, 4 bits, zeros: 135 blocks, rows of 2160 bytes, 68 bytes of zero points a row."""
    n = 24  # rows are independent: fewer of them, all different
    proto, weight = nbits(n, 4304, 4, 32, zeros="packed")
    assert {one.name: tuple(one.dims) for one in proto.graph.initializer} == {
        "B": (n, 135, 16),
        "scales": (n, 135),
        "zeros": (n, 68),
    }
    graph = from_onnx(proto)
    x = RNG.normal(size=(m, 4304)).astype(F32)
    np.testing.assert_array_equal(graph.run(x), x.astype(np.float64) @ weight.T)
    (layer,) = graph.of(Linear)
    assert graph.constant(layer.inputs[1]).value.scales.shape == (n, 135)


@pytest.mark.parametrize(
    "change, text",
    [
        ({"B": np.zeros((6, 2, 16), np.uint8)}, r"B is \[6, 2, 16\], expected \[6, 3, 16\]"),
        ({"scales": np.ones((6, 2), F32)}, r"scales is \[6, 2\], expected \[18\] or \[6, 3\]"),
        (
            {"zeros": np.zeros((6, 3), np.uint8)},
            r"zero_points is \[6, 3\], expected \[12\] or \[6, 2\]",
        ),
        ({"zeros": np.zeros((6, 2), F32)}, r"zero_points is \[6, 2\], expected \[18\] or \[6, 3\]"),
    ],
)
def test_wrong_sizes_are_refused(change, text):
    """C88: sizes are checked against N, K, bits and block_size before anything is read."""
    proto, _ = nbits(6, 96, 4, 32, zeros="packed", change=change)
    with pytest.raises(ModelImportError, match=text):
        from_onnx(proto)


def test_an_order_of_groups_is_refused_unless_it_says_nothing_new():
    """C88: g_idx is never ignored."""
    order = np.arange(96) // 32
    proto, weight = nbits(6, 96, 4, 32, g_idx=order)
    np.testing.assert_array_equal(from_onnx(proto).run(np.eye(96)), weight.T)
    proto, _ = nbits(6, 96, 4, 32, g_idx=order[::-1])
    with pytest.raises(ModelImportError, match="g_idx puts columns into groups"):
        from_onnx(proto)
    proto, _ = nbits(6, 96, 4, 32)
    proto.graph.node[0].attribute[2].i = 3
    with pytest.raises(ModelImportError, match="bits = 3"):
        from_onnx(proto)


# -- models ----------------------------------------------------------------------------------------


def angles_half(c, cos, sin):
    return (one[None, :, : c.head // 2].expand(2, -1, -1) for one in (cos, sin))


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3-8b", "llama-2-70b"])
@pytest.mark.parametrize("form", ["17", "cached", "23"])
def test_llama_layers_equal_those_from_torch(llama, onnx_files, name, form):
    torch = pytest.importorskip("torch")
    config = llama.CONFIGS[name].scaled(64)
    module = llama.layer(config)
    weights = onnx_files.weights_of(module)
    if form == "cached":
        (x, cos, sin, keys, values), _ = llama.next_token(config, 2, 5)
        proto = onnx_files.llama(config, weights, cached=True)
        given = [x, cos, sin, torch.zeros(1, 1), keys, values]
        want = module(x, cos, sin, keys, values)[0]
    else:
        (x, cos, sin), _ = llama.prompt(config, 2, 4)
        want = module(x, cos, sin)
        if form == "17":
            proto = onnx_files.llama(config, weights)
            given = [x, cos, sin, torch.where(torch.tril(torch.ones(4, 4)) > 0, 0.0, -1e9)]
        else:
            proto = onnx_files.llama_23(config, weights)
            given = [x, *angles_half(config, cos, sin)]
    graph = from_onnx(proto)
    assert [len(graph.of(kind)) for kind in (Linear, RMSNorm, Rotary, Attention)] == [7, 2, 2, 1]
    got = graph.run(*given)
    got = got[0] if form == "cached" else got
    np.testing.assert_allclose(got, want.detach().numpy(), atol=2e-5)
    report = verify(graph, proto, [one.numpy() for one in given])
    assert report.ok, str(report)
    assert report.cosine > 1 - 1e-9


def test_vit_and_mlp_equal_those_from_torch(vit, mlp, onnx_files):
    torch = pytest.importorskip("torch")
    module, x = vit.layer(48, 96, 3), torch.randn(2, 7, 48)
    proto = onnx_files.vit(onnx_files.weights_of(module), 3)
    graph = from_onnx(proto)
    np.testing.assert_allclose(graph.run(x), module(x).detach().numpy(), atol=1e-5)
    assert len(graph.of(Attention)) == 1
    assert verify(graph, proto, [x.numpy()]).ok
    module, x = mlp.mlp(16, 32, 8), torch.randn(3, 16)
    proto = onnx_files.mlp(onnx_files.weights_of(module))
    graph = from_onnx(proto)
    np.testing.assert_allclose(graph.run(x), module(x).detach().numpy(), atol=1e-5)
    assert [node.op.kind for node in graph.nodes] == ["linear", "unary"] * 2 + ["linear"]
    assert verify(graph, proto, [x.numpy()]).ok


@pytest.mark.parametrize("name", ["llama-3-8b", "vit", "mlp"])
def test_models_get_the_same_rules_as_those_from_torch(llama, vit, mlp, onnx_files, name):
    """Each rule on each model: fused, laid out without a conversion, and within its bounds beside onnx's evaluator."""
    if name == "llama-3-8b":
        config = llama.CONFIGS[name].scaled(64)
        proto = onnx_files.llama(config, onnx_files.weights_of(llama.layer(config)))
        (x, cos, sin), _ = llama.prompt(config, 2, 4)
        given = [x.numpy(), cos.numpy(), sin.numpy(), np.where(np.tri(4) > 0, 0, -1e9).astype(F32)]
    elif name == "vit":
        proto = onnx_files.vit(onnx_files.weights_of(vit.layer(64, 128, 4)), 4)
        given = [RNG.normal(size=(2, 7, 64)).astype(F32)]
    else:
        proto = onnx_files.mlp(onnx_files.weights_of(mlp.mlp(64, 128, 32)))
        given = [RNG.normal(size=(3, 64)).astype(F32)]
    graph = from_onnx(proto)
    for rule in llama.RULES.values():
        low = graph.assign(rule).fuse().propagate("h200")
        assert not low.layouts.conversions
        report = verify(low, proto, given)
        assert report.ok, str(report)
        assert report.cosine > 0.98
        assert low.weight_bytes < 0.45 * graph.weight_bytes


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
