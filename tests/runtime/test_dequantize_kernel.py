"""Launching the decoding of a weight: arguments, copies from and to the host, through a stand-in for the driver."""

from __future__ import annotations

import numpy as np
import pytest

import ladder
from ladder.codegen.kernel import Launch, LoweredKernel, Parameter
from ladder.codegen.toolchain import Cubin
from ladder.errors import LaunchError, PackingError
from ladder.runtime.dequantize_kernel import DequantizeKernel
from ladder.runtime.packed import Packed
from ladder.runtime.variant import Variant

N, K = 16, 64
W4 = ladder.types["int4"].grouped(32)
PARAMETERS = (
    Parameter("scales", "buffer", "float16", "scales"),
    Parameter("y", "buffer", "uint32", "y"),
    Parameter("weight", "buffer", "uint32", "weight"),
)


@pytest.fixture
def weights() -> ladder.Quantized:
    return ladder.quantize(np.random.default_rng(0).standard_normal((N, K)), W4)


@pytest.fixture
def plan() -> ladder.DequantizePlan:
    return ladder.schedule(ladder.dequantize(N, K, weight=W4))


@pytest.fixture
def device(fakes, monkeypatch, plan):
    """A driver whose launches decode through the raw addresses."""

    def compute(v: dict[str, int]) -> None:
        memory_at = fakes.Driver.prepare.__globals__["memory_at"]
        shapes = plan.packing.shapes()
        arrays = {
            name: memory_at(v[name], int(np.prod(shapes[name][0])), shapes[name][1]).reshape(
                shapes[name][0]
            )
            for name in ("weight", "scales")
        }
        arrays["unit"] = np.zeros(2, np.float32)
        dense = plan.target.pack(plan.dense(plan.packing.unpack(arrays)))["weight"]
        memory_at(v["y"], dense.size, np.uint32)[:] = dense.reshape(-1)

    monkeypatch.setitem(fakes.Driver.prepare.__globals__, "compute", compute)
    driver = fakes.Driver()
    driver.parameters = PARAMETERS
    return driver


@pytest.fixture
def kernel(device, plan) -> DequantizeKernel:
    launch = Launch((3, 1, 1), (256, 1, 1), 128)
    lowered = LoweredKernel("k", "// k", PARAMETERS, launch, None, "sm_90a")
    cubins = {"sm_90a": Cubin(b"elf", "", 32, 0, 0, 0.0, "fake 1.0")}
    return DequantizeKernel([Variant(plan, lowered, cubins)], plan, driver=device)


def test_a_weight_of_the_host_goes_there_and_back(kernel, device, weights) -> None:
    dense = kernel(kernel.pack(weights))
    assert dense.place == "cpu"
    assert kernel.plan.target.unpack(dense.numpy()) == kernel.plan.dense(weights)
    (launch,) = device.launches
    assert launch.geometry == ((3, 1, 1), (256, 1, 1), 128, None)


def test_a_bound_call_launches_again_and_leaves_the_result_fresh(kernel, device, weights) -> None:
    packed = kernel.pack(weights).to("cuda:0", driver=device)
    step = kernel.bind(packed)
    dense = step()
    assert dense is step.out
    assert dense.place == "cuda:0"
    dense.fresh = False
    assert step() is dense
    assert dense.fresh, "a product must not read words ahead that are only being written"
    assert len(device.launches) == 2
    assert kernel.bind(packed, out=dense)() is dense
    assert kernel(packed, out=dense) is dense


def test_what_does_not_fit_is_refused(kernel, device, weights) -> None:
    packed = kernel.pack(weights)
    there = packed.to("cuda:0", driver=device)
    with pytest.raises(LaunchError, match="the weight is on the CPU"):
        kernel.bind(packed)
    with pytest.raises(PackingError, match="out is of another packing"):
        kernel.bind(there, out=there)
    with pytest.raises(PackingError, match="packed is 3"):
        kernel(3)
    host = kernel(packed)
    with pytest.raises(LaunchError, match="the codes are on cuda:0, out is on cpu"):
        kernel.bind(there, out=host)
    with pytest.raises(LaunchError, match="packed weights on the CPU are not written to"):
        kernel(packed, out=host)


def test_a_result_over_its_own_codes_is_refused(kernel, torch, weights) -> None:
    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    (shape, dtype), codes = kernel.plan.target.shapes()["weight"], packed["weight"]
    memory = torch.on(np.zeros(codes.array.size + int(np.prod(shape)), dtype))
    kept = type(memory)(memory.array[: codes.array.size].reshape(codes.array.shape), memory.device)
    moved = Packed(packed.packing, {**packed, "weight": kept})
    for start, refused in ((codes.array.size - 4, True), (codes.array.size, False)):
        words = memory.array[start:][: int(np.prod(shape))].reshape(shape)
        out = Packed(kernel.plan.target, {"weight": type(memory)(words, memory.device)})
        if refused:
            with pytest.raises(LaunchError, match="out and weight share memory"):
                kernel.bind(moved, out=out)
        else:
            assert kernel.bind(moved, out=out).out is out
