"""Launching a quantisation of activations: arguments, grids, copies from and to the host, through a stand-in for the driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ladder
from ladder.codegen.kernel import CeilDiv, Launch, LoweredKernel, Parameter
from ladder.codegen.toolchain import Cubin
from ladder.errors import LaunchError
from ladder.runtime.quantize_kernel import QuantizeKernel, check_quantize
from ladder.runtime.variant import Variant

K = 16
PARAMETERS = (
    Parameter("scale", "buffer", "float32", "x_scale"),
    Parameter("y", "buffer", "int8", "y"),
    Parameter("x", "buffer", "float16", "x"),
    Parameter("m", "scalar", "int32", "m"),
    Parameter("stride", "scalar", "int64", "x_stride_m"),
)


@pytest.fixture
def device(fakes, monkeypatch):
    """A driver whose launches quantise through the raw addresses."""
    op = ladder.quantize_activations(None, K)

    def compute(v: dict[str, int]) -> None:
        m, stride = v["m"], v["x_stride_m"]
        memory_at = fakes.Driver.prepare.__globals__["memory_at"]
        x = memory_at(v["x"], (m - 1) * stride + K, np.float16)
        some = np.stack([x[row * stride : row * stride + K] for row in range(m)])
        codes, scales = op.reference(some)
        memory_at(v["y"], m * K, np.int8)[:] = codes.reshape(-1)
        memory_at(v["x_scale"], m, np.float32)[:] = scales

    monkeypatch.setitem(fakes.Driver.prepare.__globals__, "compute", compute)
    driver = fakes.Driver()
    driver.parameters = PARAMETERS
    return driver


@pytest.fixture
def kernel(device) -> QuantizeKernel:
    plan = ladder.schedule(ladder.quantize_activations(None, K), rows=4)
    launch = Launch((CeilDiv(4), 1, 1), (128, 1, 1), 128)
    lowered = LoweredKernel("k", "// k", PARAMETERS, launch, None, "sm_90a")
    cubins = {"sm_90a": Cubin(b"elf", "", 32, 0, 0, 0.0, "fake 1.0")}
    return QuantizeKernel([Variant(plan, lowered, cubins)], plan, driver=device)


def activations(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float16)


def test_arrays_of_the_host_go_there_and_back(kernel, device) -> None:
    x = activations(3, 2, K)
    codes, scales = kernel(x)
    for found, wanted in zip((codes, scales), kernel.plan.op.reference(x), strict=True):
        assert found.dtype == wanted.dtype
        assert np.array_equal(found, wanted)
    (launch,) = device.launches
    assert launch.geometry == ((2, 1, 1), (128, 1, 1), 128, None)
    assert (launch.values["m"], launch.values["x_stride_m"]) == (6, K)
    out = (np.zeros((6, K), np.int8), np.zeros(6, np.float32))
    assert kernel(x.reshape(6, K), out=out) is out or np.array_equal(out[0], codes.reshape(6, K))
    assert np.array_equal(out[1], scales.reshape(6))


def test_tensors_are_read_where_they_lie(kernel, device, torch) -> None:
    wide = torch.on(activations(5, K + 8))
    x = wide[:, :K]
    codes, scales = kernel(x)
    (launch,) = device.launches
    assert launch.values["x"] == wide.data_ptr()
    assert launch.values["x_stride_m"] == K + 8
    assert (str(codes.dtype), str(scales.dtype)) == ("torch.int8", "torch.float32")
    wanted = kernel.plan.op.reference(x.array)
    assert np.array_equal(codes.array, wanted[0])
    assert np.array_equal(scales.array, wanted[1])


def test_a_bound_call_launches_again_and_no_rows_launch_nothing(kernel, device, torch) -> None:
    step = kernel.bind(torch.on(activations(2, K)))
    assert step() is step.out
    step()
    assert len(device.launches) == 2
    empty = kernel.bind(torch.on(activations(0, K)))()
    assert empty[0].shape == (0, K)
    assert len(device.launches) == 2


def test_what_cannot_be_read_is_copied_with_a_warning_or_refused(kernel, device, torch) -> None:
    with pytest.warns(RuntimeWarning, match="x is copied at every call: it has row stride 17"):
        codes, _ = kernel(torch.on(activations(3, K + 1))[:, :K])
    assert np.array_equal(codes.array, kernel.plan.op.reference(activations(3, K + 1)[:, :K])[0])
    x = torch.on(activations(2, K))
    cpu = (np.zeros((2, K), np.int8), np.zeros(2, np.float32))
    with pytest.raises(LaunchError, match="codes is on cpu, x on cuda:0"):
        kernel(x, out=cpu)


def test_a_row_alone_has_a_scale_without_axes(kernel, torch) -> None:
    for x in (activations(K), torch.on(activations(K))):
        codes, scales = kernel(x)
        wanted = kernel.plan.op.reference(getattr(x, "array", x))
        assert (tuple(codes.shape), tuple(scales.shape)) == ((K,), ())
        assert np.array_equal(getattr(codes, "array", codes), wanted[0])
        assert getattr(scales, "array", scales) == wanted[1]


def test_results_that_share_memory_are_refused(kernel) -> None:
    memory = np.zeros(2 * K + 8, np.uint8)
    codes = memory[: 2 * K].view(np.int8).reshape(2, K)
    check_quantize(kernel.variants, activations(2, K), (codes, memory[2 * K :].view(np.float32)))
    with pytest.raises(LaunchError, match="codes and scales share memory"):
        check_quantize(kernel.variants, activations(2, K), (codes, memory[24:32].view(np.float32)))
