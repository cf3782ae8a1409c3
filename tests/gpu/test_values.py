"""Real kernels on a real GPU: the sizes and ranges of M that no emulator walks."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import ladder
from ladder.runtime.buffer import DeviceBuffer
from ladder.runtime.driver import cuda_driver
from ladder.runtime.error_bar import error_bar

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    """The catalogue's device for this GPU."""
    capability = cuda_driver().compute_capability(0)
    names = {(9, 0): "h200", (8, 0): "a100", (8, 6): "rtx3090", (8, 7): "orin", (8, 9): "rtx4090"}
    if capability not in names:
        pytest.skip(f"no device of the catalogue has capability {capability}")
    return names[capability]


@pytest.fixture(scope="module")
def nvfp4(device):
    rng = np.random.default_rng(87)
    q = ladder.quantize(rng.standard_normal((96, 464)), "nvfp4")
    op = ladder.matmul(m=None, n=96, k=464, activation="float16", weight="nvfp4", out="float32")
    kernel = ladder.compile(ladder.schedule(op, device))
    return op, q, kernel, kernel.pack(q)


@pytest.mark.parametrize("m", [1, 5, 8, 32, 128, 256, 512, 1024, 1536, 2048, 4096])
def test_nvfp4_at_every_m(nvfp4, m):
    """C86, C87: K = 464 ends within a block; no range of M gives zeros."""
    op, q, kernel, packed = nvfp4
    x = np.random.default_rng(m).standard_normal((m, 464)).astype(np.float16)
    want = op.reference(x, q)
    y = kernel(x, packed)
    assert (np.abs(want).max(axis=1) > 1).all()
    assert np.linalg.norm(y - want) <= 1e-5 * np.linalg.norm(want)


@pytest.mark.slow
@pytest.mark.parametrize("m", [74898, 74899])
def test_the_last_rows_of_an_output_past_2_to_the_31(device, m):
    """C60: M * N = 2147475456 and 2147504128 elements; the last rows are those of a call with 16 rows."""
    op = ladder.matmul(m=None, n=28672, k=16, activation="float16", weight="int4")
    kernel = ladder.compile(ladder.schedule(op, device))
    rng = np.random.default_rng(60)
    packed = kernel.pack(ladder.Quantized("int4", rng.integers(0, 16, (28672, 16))))
    x = rng.integers(-8, 8, (m, 16)).astype(np.float16)
    y = kernel(x, packed)
    np.testing.assert_array_equal(y[-16:], kernel(x[-16:], packed))
    np.testing.assert_array_equal(y[:16], kernel(x[:16], packed))
    assert np.abs(y[-16:]).max() > 1


@pytest.mark.parametrize("m", [1, 8, 40, 300, 1100])
@pytest.mark.parametrize(
    "steps",
    [("gelu",), ("tanh", "residual"), ("silu_gate",), ("gelu_gate", "residual"), ("gelu_tanh",)],
    ids="+".join,
)
def test_epilogues_at_every_m_and_in_place(device, steps, m):
    """What the emulator takes by their exact results, the GPU's fast functions; y over the residual, call after call."""
    weight = ladder.types["int4"].grouped(128, zero="integer")
    for n, k, launch in ((4096, 1024, "pdl"), (1180, 520, "plain")):
        op = ladder.matmul(None, n, k, activation="float16", weight=weight, epilogue=steps)
        rng = np.random.default_rng(m)
        q = ladder.quantize(rng.standard_normal((n, k), np.float32) / np.sqrt(k), weight)
        x = rng.standard_normal((m, k)).astype(np.float16)
        added = rng.standard_normal((m, op.out_n)).astype(np.float16) if op.residual else None
        kernel = ladder.compile(ladder.schedule(op, device, launch=launch))
        packed = kernel.pack(q).to("cuda:0")
        y, want = kernel(x, packed, residual=added), op.reference(x, q, residual=added)
        assert np.linalg.norm(y - want) <= error_bar(op) * np.linalg.norm(want)
        if added is not None:
            there = partial(DeviceBuffer.of, cuda_driver(), 0)
            memory = there(added)
            kernel(there(x), packed, residual=memory, out=memory)
            np.testing.assert_array_equal(memory.numpy(), y)
