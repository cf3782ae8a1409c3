"""Quantised ONNX models: weights keep their codes, scales and zeros, and chains round as onnx does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ladder.errors import ModelImportError
from ladder.graph.operators import Dequantize, Linear, Quantize
from ladder.graph.verify import verify
from tests.graph.importers.conftest import model

onnx = pytest.importorskip("onnx")
from onnx import numpy_helper  # noqa: E402

from ladder.graph.importers.onnx import from_onnx, traced  # noqa: E402

RNG = np.random.default_rng(0)
F32 = np.float32


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


@pytest.mark.parametrize("given", ["s", "z"])
def test_codes_whose_scale_or_zero_is_an_input_are_no_weight(given):
    """C57: what only a call knows is not left out of a constant."""
    codes = RNG.integers(-8, 8, (4, 6)).astype(np.int8)
    scales, zeros = F32([0.5, 1, 2, 4, 8, 16]), np.arange(-3, 3).astype(np.int8)
    nodes = [
        ("DequantizeLinear", ["w", "s", "z"], ["wf"], {"axis": 1}),
        ("MatMul", ["x", "wf"], ["y"]),
    ]
    constants = {"w": codes, "s": scales, "z": zeros}
    value = constants.pop(given)
    proto = model(nodes, {"x": ["m", 4], given: [6]}, ["y"], **constants)
    proto.graph.input[1].type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(
        value.dtype
    )
    graph = from_onnx(proto)
    assert len(graph.of(Dequantize)) == 1
    got = graph.run(np.eye(4), value)
    np.testing.assert_array_equal(got, (codes - zeros.astype(int)) * scales)


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
