"""Numbers through the kernel, bit by bit: one activation of 1 picks each weight out, as plan and as emulated kernel."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import ladder
from ladder.scheduler import packing as packing_module
from tests.codegen.conftest import DTYPES, Emulated

E4M3 = ml_dtypes.float8_e4m3fn
E8M0 = ml_dtypes.float8_e8m0fnu
INT4, UINT4 = ladder.types["int4"], ladder.types["uint4"]


def both(
    emulated: Emulated,
    weights: ladder.Quantized,
    x: NDArray[Any],
    *,
    out: str = "float32",
    activation: str = "float16",
    **decisions: Any,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """What the kernel computes and what the plan does; an answer of nothing but zeros proves nothing."""
    n, k = weights.shape
    op = ladder.matmul(m=len(x), n=n, k=k, activation=activation, weight=weights.type, out=out)
    plan = ladder.schedule(op, "h200", **decisions)
    x = x.astype(DTYPES[activation])
    kernel, numpy = emulated(plan, x, weights), plan.run(x, weights)
    assert np.any(kernel.astype(np.float32) != 0)
    return kernel, numpy


def same_numbers(found: tuple[NDArray[Any], NDArray[Any]], want: NDArray[np.float64]) -> None:
    for y in found:
        np.testing.assert_array_equal(y.astype(np.float64), want)


def test_all_pairs_of_nibbles(emulated: Emulated) -> None:
    """C08: each of the 256 pairs stands side by side in a byte; no nibble floods its neighbour, -8 included."""
    pairs = np.array([(low, high) for low in range(16) for high in range(16)], np.uint8)
    weights = ladder.Quantized(INT4, pairs.reshape(16, 32))
    want = ((pairs.astype(int) + 8) % 16 - 8).reshape(16, 32).T
    same_numbers(both(emulated, weights, np.eye(32)), want.astype(np.float64))


READINGS = {
    "int4": lambda q: (q + 8) % 16 - 8,
    "uint4": lambda q: q,
    "offset4": lambda q: q - 8,
    "bipolar4": lambda q: 2 * q - 15,
    "signmag4": lambda q: np.where(q < 8, q, 8 - q),
}


@pytest.mark.parametrize("name", READINGS)
def test_integer_products_are_exact(name: str, emulated: Emulated) -> None:
    """C09: one meaning for each name; M = N = 32, K = 64, all 16 codes, equal to the integer product."""
    rng = np.random.default_rng(9)
    codes = np.stack([rng.permutation(np.arange(64) % 16) for _ in range(32)]).astype(np.uint8)
    x = rng.integers(-128, 128, (32, 64))
    want = x @ READINGS[name](codes.astype(int)).T
    assert len(np.unique(want)) > 100
    same_numbers(both(emulated, ladder.Quantized(name, codes), x), want.astype(np.float64))


@pytest.mark.parametrize("activation", ["float16", "bfloat16"])
def test_every_byte_of_an_e4m3_scale(activation: str, emulated: Emulated) -> None:
    """C22: subnormals such as 0x01 = 2^-9 included, whatever the activation type; NaN bytes cannot be packed."""
    scales = np.arange(256, dtype=np.uint8).view(E4M3)
    scales = scales[np.isfinite(scales.astype(np.float32))]
    weight = ladder.types["fp4_e2m1"].grouped(16, scale="fp8_e4m3fn")
    codes = weight.element.encode(np.ones((len(scales), 16)))
    weights = ladder.Quantized(weight, codes, scales[:, None])
    want = scales.astype(np.float64)[None]
    assert want[0, [1, 7, 0x38, 0x40, 0x7E]].tolist() == [0.001953125, 0.013671875, 1, 2, 448]
    same_numbers(both(emulated, weights, np.eye(1, 16), activation=activation), want)


def test_every_byte_of_an_e8m0_scale(emulated: Emulated) -> None:
    """C21: byte 0 is 2^-127, a subnormal of float32 and bfloat16: never 0, an infinity or another sign."""
    scales = np.arange(255, dtype=np.uint8).view(E8M0)
    weight = ladder.types["mxfp4"]
    values = np.repeat([[0.5, 1.0, 1.5]], 255, axis=0)
    codes = weight.element.encode(np.pad(values, ((0, 0), (0, 29))))
    weights = ladder.Quantized(weight, codes, scales[:, None])
    want = (values * np.exp2(np.arange(-127.0, 128))[:, None]).T
    found = both(emulated, weights, np.eye(3, 32), activation="bfloat16")
    want = want.astype(np.float32).astype(np.float64)
    same_numbers(found, want)
    for y in both(emulated, weights, np.eye(3, 32), activation="bfloat16", out="bfloat16"):
        np.testing.assert_array_equal(y.astype(np.float64), want)
        assert y.view(np.uint16)[0, 0] == 0x0020
    six = ladder.Quantized(
        weight, weight.element.encode(np.full((16, 32), 6.0)), scales[:1].repeat(16)[:, None]
    )
    for y in both(emulated, six, np.eye(1, 32), activation="bfloat16"):
        assert y[0, 0] == np.float32(6 * 2.0**-127)


@pytest.mark.parametrize("zero", ["sums", "register"])
@pytest.mark.parametrize("scale", [0.1, 6000.0])
def test_a_weight_equal_to_its_zero_is_0(scale: float, zero: str, emulated: Emulated) -> None:
    """C27: all 16 x 16 (code, zero); scale * zero overflows float16 at 6000 and must not be formed in it."""
    codes = np.tile(np.repeat(np.arange(16, dtype=np.uint8), 16), (16, 1))  # group q holds code q
    zeros = np.tile(np.arange(16, dtype=np.uint8)[:, None], (1, 16))  # row z has zero z
    weight = UINT4.grouped(16, zero="integer")
    weights = ladder.Quantized(weight, codes, np.full((16, 16), scale, np.float16), zeros)
    x = np.zeros((16, 256))
    x[np.arange(16), 16 * np.arange(16)] = 1
    found = both(emulated, weights, x, zero=zero)
    exact = float(np.float16(scale)) * (np.arange(16.0)[:, None] - np.arange(16.0)[None])
    for y in found:
        assert (np.diagonal(y) == 0).all()
        np.testing.assert_allclose(y, exact, rtol=2**-22)
    assert exact[14, 15] == -float(np.float16(scale))


def test_values_and_signs_of_e2m1(emulated: Emulated) -> None:
    """C80: all 16 codes through the kernel; code 8 is -0.0, and a product with it is no number but 0."""
    weights = ladder.Quantized("fp4_e2m1", np.tile(np.arange(16, dtype=np.uint8), (16, 1)))
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    want = np.repeat(np.concatenate([magnitudes, -magnitudes])[:, None], 16, axis=1)
    same_numbers(both(emulated, weights, np.eye(16)), want)


@pytest.mark.parametrize("group", [256, 512, 1000, 4096])
def test_large_groups_with_zeros(group: int, emulated: Emulated) -> None:
    """C39: group 512 at K = 2048, codes 2, zero 3, scale 0.5, ones: -1024, and other sizes as well."""
    weight = UINT4.grouped(group, zero="integer")
    shape = weight.scale_shape(4, 2048)
    weights = ladder.Quantized(
        weight, np.full((4, 2048), 2), np.full(shape, 0.5), np.full(shape, 3, np.uint8)
    )
    same_numbers(both(emulated, weights, np.ones((1, 2048))), np.full((1, 4), -1024.0))


@pytest.mark.parametrize("name, k", [("mxfp4", 1824), ("nvfp4", 464)])
def test_scratch_that_holds_garbage(
    name: str, k: int, emulated: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C43, C86: fresh memory full of 0x7F, a NaN in e4m3: the packer writes all padding, so nothing depends on it."""
    rng = np.random.default_rng(86)
    q = ladder.quantize(rng.standard_normal((33, k)), name)
    op = ladder.matmul(m=5, n=33, k=k, activation="float16", weight=name, out="float32")
    plan = ladder.schedule(op, "h200")
    x = rng.standard_normal((5, k)).astype(np.float16)
    clean, first = plan.packing.pack(q), emulated(plan, x, q)

    empty = np.empty

    def poisoned(shape: Any, dtype: Any = float, **_: Any) -> NDArray[Any]:
        dtype = np.dtype(dtype)
        if not dtype.itemsize:  # NumPy itself asks for arrays of nothing where it broadcasts shapes
            return empty(shape, dtype)
        return np.full(
            (*np.atleast_1d(shape)[:-1], np.atleast_1d(shape)[-1] * dtype.itemsize), 0x7F, np.uint8
        ).view(dtype)

    monkeypatch.setattr(packing_module.np, "empty", poisoned)
    dirty, second = plan.packing.pack(q), emulated(plan, x, q)
    monkeypatch.undo()
    for part, (shape, dtype) in plan.packing.shapes().items():
        assert clean[part].tobytes() == dirty[part].tobytes(), part
        assert clean[part].shape == shape
        assert clean[part].dtype.name == dtype
    np.testing.assert_array_equal(first, second)
    error = np.linalg.norm(first - op.reference(x, q)) / np.linalg.norm(op.reference(x, q))
    assert error <= 1e-5


@pytest.mark.parametrize("m", [1, 8, 32, 48, 128])
def test_nvfp4_at_every_m(m: int, emulated: Emulated) -> None:
    """C87: no range of M gives zeros; the larger ones stand among the GPU's tests."""
    rng = np.random.default_rng(m)
    q = ladder.quantize(rng.standard_normal((32, 128)), "nvfp4")
    op = ladder.matmul(m=None, n=32, k=128, activation="float16", weight="nvfp4", out="float32")
    x = rng.standard_normal((m, 128)).astype(np.float16)
    want = op.reference(x, q)
    y = emulated(ladder.schedule(op, "h200").plan_for(m), x, q)
    assert (np.abs(want).max(axis=1) > 1).all()
    assert np.linalg.norm(y - want) <= 1e-5 * np.linalg.norm(want)


@pytest.mark.parametrize("n, k", [(48, 96), (64, 64)])
def test_the_one_row_kernel_reads_weights_as_the_other_does(
    n: int, k: int, emulated: Emulated
) -> None:
    """C49: [n, k] for every M, where n = k hides a swap as well; n != k the wrong way round is refused."""
    rng = np.random.default_rng(49)
    weight = INT4.grouped(32, zero="integer")
    q = ladder.quantize(rng.standard_normal((n, k)), weight)
    op = ladder.matmul(m=None, n=n, k=k, activation="float16", weight=weight, out="float32")
    plans = ladder.schedule(op, "h200")
    x = rng.standard_normal((20, k)).astype(np.float16)
    rows = [emulated(plans.plan_for(m), x[:m], q)[0] for m in (1, 2, 20)]
    assert len({plans.plan_for(m).family for m in (1, 20)}) == 2
    want = op.reference(x[0], q)
    for row, m in zip(rows, (1, 2, 20), strict=True):
        # weights that are scaled in registers are rounded to float16
        error = 1e-3 if plans.plan_for(m).scale == "register" else 1e-5
        assert np.linalg.norm(row - want) <= error * np.linalg.norm(want)
    if n != k:
        turned = ladder.quantize(rng.standard_normal((k, n)), weight)
        with pytest.raises(ladder.LadderError, match=r"output channels first"):
            plans.plan_for(1).packing.pack(turned)


@pytest.mark.parametrize("shape", [(3, 2), (1, 3, 2), (2, 0), ()])
def test_leading_axes_are_rows_of_the_real_kernel(
    shape: tuple[int, ...], emulated: Emulated
) -> None:
    """C46: flatten to rows, multiply, reshape back; every element of the batch."""
    rng = np.random.default_rng(46)
    q = ladder.quantize(rng.standard_normal((24, 64)), INT4.grouped(32))
    op = ladder.matmul(m=None, n=24, k=64, activation="float16", weight=q.type, out="float32")
    x = rng.standard_normal((*shape, 64)).astype(np.float16)
    y = emulated(ladder.schedule(op, "h200").plan_for(x.size // 64), x, q)
    assert y.shape == (*shape, 24)
    np.testing.assert_allclose(y, op.reference(x, q), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 6e4])
def test_what_is_no_number_stays_in_its_row(value: float, emulated: Emulated) -> None:
    """An activation of NaN or infinity spoils its own token as IEEE says, and no other."""
    rng = np.random.default_rng(3)
    q = ladder.quantize(rng.standard_normal((24, 72)), INT4.grouped(32, zero="integer"))
    op = ladder.matmul(m=3, n=24, k=72, activation="float16", weight=q.type, out="float32")
    plan = ladder.schedule(op, "h200")
    x = rng.standard_normal((3, 72)).astype(np.float16)
    clean = emulated(plan, x, q)
    x[1, 70] = value
    y = emulated(plan, x, q)
    np.testing.assert_array_equal(y[[0, 2]], clean[[0, 2]])
    if np.isfinite(value):
        np.testing.assert_allclose(y[1], op.reference(x[1], q), rtol=1e-3, atol=1)
    else:
        assert not np.isfinite(y[1]).any()


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (7, 1, 1), (1, 17, 1), (3, 1, 65), (0, 5, 3)])
@pytest.mark.parametrize("name", ["int4", "nf4", "nvfp4"])
def test_the_smallest_shapes(name: str, m: int, n: int, k: int, emulated: Emulated) -> None:
    """C42: one row, one channel, one column; no rows give no rows."""
    rng = np.random.default_rng(1)
    q = ladder.quantize(rng.standard_normal((n, k)), ladder.types[name])
    op = ladder.matmul(m=m, n=n, k=k, activation="float16", weight=q.type, out="float32")
    x = rng.standard_normal((m, k)).astype(np.float16)
    plan = ladder.schedule(op, "h200")
    for y in (emulated(plan, x, q), plan.run(x, q)):
        assert y.shape == (m, n)
        np.testing.assert_allclose(y, op.reference(x, q), rtol=1e-3, atol=4e-3)  # nf4 is rounded
