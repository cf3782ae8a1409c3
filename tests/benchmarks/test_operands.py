"""What is multiplied on the GPU means what NumPy says that it means (torch on the CPU stands in)."""

from __future__ import annotations

import numpy as np
import pytest

import ladder
from benchmarks.weights import WEIGHTS
from ladder.scheduler import choose_packing

torch = pytest.importorskip("torch")
operands = pytest.importorskip("benchmarks.operands")

N, K = 48, 512


DENSE = ("float16", "bfloat16")


@pytest.mark.parametrize("name", DENSE)
def test_dense_weights_are_their_own_numbers(name):
    weight = operands.Weight.random(WEIGHTS[name](), N, K, (), "cpu")
    q = ladder.Quantized(WEIGHTS[name](), weight.codes.numpy().view(np.uint16))
    assert np.array_equal(weight.values().numpy(), q.dequantize())
    op = ladder.matmul(1, N, K, activation=name, weight=name, out=name)
    packing = choose_packing(op, ladder.devices["h200"].features)
    packed = packing.pack_arrays(weight.codes)["weight"]
    assert np.array_equal(
        packed.view(torch.int32).numpy().view(np.uint32), packing.pack(q)["weight"]
    )
    back = packing.unpack_arrays({"weight": packed})["codes"]
    assert torch.equal(back.view(torch.int16), weight.codes)


@pytest.mark.parametrize("name", [name for name in WEIGHTS if name not in DENSE])
def test_values_and_packing_are_those_of_the_reference(name):
    wt = WEIGHTS[name]()
    weight = operands.Weight.random(wt, N, K, (), "cpu")
    parts = {"scales": weight.scales.numpy().view(wt.scale_dtype)}
    if wt.zero:
        parts["zeros"] = weight.zeros.numpy()
    if wt.second:
        parts["global_scale"] = operands.GLOBAL_SCALE
    q = ladder.Quantized(wt, codes=weight.codes.numpy(), **parts)
    assert np.array_equal(weight.values().numpy(), q.dequantize())
    assert set(np.unique(q.codes)) == set(np.flatnonzero(np.isfinite(wt.element.values)))


@pytest.mark.parametrize("name", WEIGHTS)
def test_outputs_of_every_weight_stay_far_from_the_end_of_float16(name):
    values = operands.Weight.random(WEIGHTS[name](), N, K, (), "cpu").values()
    # an output is a sum of K products with normal activations: a standard deviation of |w| sqrt(K)
    deviation = float(values.square().mean().sqrt()) * 28672**0.5
    assert 6 * deviation < 65504 / 8


def test_copies_are_distinct_and_equal(monkeypatch):
    wt = WEIGHTS["int4"]()
    op = ladder.matmul(1, N, K, activation="float16", weight=wt)
    packing = choose_packing(op, ladder.devices["h200"].features)
    weight = operands.Weight.random(wt, N, K, (), "cpu")
    arrays = packing.pack_arrays(weight.codes, scales=weight.scales, zeros=weight.zeros)
    packed = operands.Packed(packing, arrays)
    monkeypatch.setattr(operands, "ROTATED_BYTES", 3 * packed.nbytes)
    copies = operands.rotated(packed)
    assert len(copies) == 3
    assert copies[0] == copies[1] == copies[2]
    assert len({copy.pointers["weight"] for copy in copies}) == 3


def test_an_output_that_was_not_written_has_no_error():
    y = torch.tensor([[1.0, float("nan")]])
    assert np.isnan(operands.relative_error(y, torch.tensor([[1.0, 2.0]]).double()))


@pytest.mark.parametrize("dtype", ["int8", "fp8_e4m3fn"])
def test_activations_of_8_bits_have_scales_that_bring_their_rows_to_about_1(dtype):
    torch.manual_seed(0)
    x = operands.activations(64, K, dtype, "cpu")
    scales = operands.row_scales(64, dtype, "cpu")
    assert x.dtype == operands.torch_type(dtype)
    assert scales.shape == (64,)
    assert scales.dtype == torch.float32
    sizes = x.double().square().mean(dim=1).sqrt() * scales.double()
    assert 0.4 < float(sizes.min()) < float(sizes.max()) < 1.7
    assert operands.row_scales(64, "float16", "cpu") is None


@pytest.mark.parametrize("steps", ["", "gelu", "gelu_tanh", "silu_gate+residual", "residual+tanh"])
def test_what_an_epilogue_makes_of_exact_sums(steps):
    from benchmarks.grid import Case
    from benchmarks.operands import with_epilogue
    from ladder.graph.epilogue import AddResidual

    op = Case("int4", 8, 64, 3, "float16", epilogue=steps).operator
    sums = torch.randn((3, 8), dtype=torch.float64)
    residual, exact = with_epilogue(op, sums)
    assert (residual is not None) == op.residual
    wanted = sums.numpy()
    for step in op.epilogue:
        added = (residual.double().numpy(),) if isinstance(step, AddResidual) else ()
        wanted = step.apply(wanted, added)
    np.testing.assert_allclose(exact.numpy(), wanted, rtol=1e-12)
