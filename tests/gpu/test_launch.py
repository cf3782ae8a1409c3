"""Launching on a real GPU, with a kernel written for this test alone: a plain loop, no tensor core."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from ladder.codegen.kernel import CeilDiv, Launch, LoweredKernel, Parameter
from ladder.codegen.toolchain import compile_cuda
from ladder.errors import LaunchError
from ladder.runtime.artifact import Artifact
from ladder.runtime.driver import cuda_driver
from ladder.runtime.kernel import Kernel
from ladder.runtime.load import kernel_of
from ladder.runtime.variant import Variant

pytestmark = pytest.mark.gpu

N, K = 96, 64
#: past the 48 KiB that a kernel gets without asking
SHARED_BYTES = 64 * 1024
HOST_MICROSECONDS = 15.0

SOURCE = """
#include <cuda_fp16.h>
extern "C" __global__ void plain(float *y, const half *x, int m, const unsigned *w, const half *s, long long sm, int sk) {
  extern __shared__ float row[];
  int n = blockIdx.y * blockDim.x + threadIdx.x;
  row[SHARED / 4 - 1] = 1.0f;
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  for (int i = blockIdx.x * 16; i < min(m, blockIdx.x * 16 + 16); i++) {
    float sum = 0.0f;
    for (int k = 0; k < 64; k++) sum += __half2float(x[i * sm + k * sk]) * float(w[n * 64 + k]);
    y[i * 96 + n] = sum * __half2float(s[n]);
  }
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
""".replace("SHARED", str(SHARED_BYTES))


@dataclass(frozen=True)
class PlainPacking:
    version: int = 1

    def shapes(self):
        return {"weight": ((N, K), "uint32"), "scales": ((N,), "float16")}

    def pack(self, weights):
        scales = np.linspace(0.5, 1.5, N).astype(np.float16)
        return {"weight": weights.astype(np.uint32), "scales": scales}

    def unpack(self, arrays):
        return arrays["weight"].astype(np.uint8)

    def to_json(self):
        return {"format": "plain.packing/1"}


@dataclass(frozen=True)
class PlainPlan:
    m_range: tuple = (0, None)
    access: str = "scalar"

    @property
    def op(self):
        half, single = SimpleNamespace(name="float16"), SimpleNamespace(name="float32")
        return SimpleNamespace(n=N, k=K, activation=half, out=single, bias=False)

    def to_json(self):
        return {"format": "plain.plan/1"}


def lowered(arch):
    parameters = (
        Parameter("y", "buffer", "float32", "y"),
        Parameter("x", "buffer", "float16", "x"),
        Parameter("m", "scalar", "int32", "m"),
        Parameter("w", "buffer", "uint32", "weight"),
        Parameter("s", "buffer", "float16", "scales"),
        Parameter("sm", "scalar", "int64", "x_stride_m"),
        Parameter("sk", "scalar", "int32", "x_stride_k"),
    )
    attributes = ("pdl",) if arch >= "sm_90" else ()
    launch = Launch((CeilDiv(16), N // 32, 1), (32, 1, 1), SHARED_BYTES, attributes)
    return LoweredKernel("plain", SOURCE, parameters, launch, None, arch)


@pytest.fixture(scope="module")
def kernel():
    major, minor = cuda_driver().compute_capability(0)
    arch = f"sm_{major}{minor}"
    cubins = {arch: compile_cuda(SOURCE, arch)}
    return Kernel([Variant(PlainPlan(), lowered(arch), cubins)], PlainPlan(), PlainPacking())


@pytest.fixture(scope="module")
def weights():
    return np.random.default_rng(0).integers(0, 16, (N, K)).astype(np.uint8)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


def reference(x, weights):
    scales = np.linspace(0.5, 1.5, N).astype(np.float16).astype(np.float64)
    product = (x.astype(np.float64) @ weights.astype(np.float64).T) * scales
    assert np.abs(product).max() > 1
    return product


def close(found, x, weights):
    expected = reference(x, weights)
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error <= 1e-5  # float32 sums of 64 products


def activations(shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float16)


@pytest.mark.parametrize("m", [0, 1, 16, 17, 300])
def test_numpy_goes_to_the_gpu_and_back(kernel, weights, m):
    x = activations((m, K))
    found = kernel(x, kernel.pack(weights))
    assert found.shape == (m, N)
    if m:
        close(found, x, weights)


def test_a_kernel_without_code_is_compiled_on_the_device(kernel, weights):
    (variant,) = kernel.variants
    text = Kernel([Variant(variant.plan, variant.lowered, {})], kernel.plan, kernel.packing)
    x = activations((5, K))
    close(text(x, text.pack(weights)), x, weights)


def test_a_saved_kernel_runs(kernel, weights, tmp_path):
    folder = kernel.save(tmp_path / "plain")
    back = kernel_of(
        Artifact.load(folder),
        read_plan=lambda data: PlainPlan(),
        read_packing=lambda data: PlainPacking(),
    )
    x = activations((3, K))
    close(back(x, back.pack(weights)), x, weights)


@pytest.mark.parametrize(
    "make",
    [
        lambda torch: torch.randn(33, K, device="cuda", dtype=torch.float16),
        lambda torch: torch.randn(2, 3, K, device="cuda", dtype=torch.float16),
        lambda torch: torch.randn(K, 7, device="cuda", dtype=torch.float16).T,
        lambda torch: torch.randn(7, K + 5, device="cuda", dtype=torch.float16)[:, :K],
        lambda torch: torch.randn(1, K, device="cuda", dtype=torch.float16).expand(9, K),
    ],
    ids=["rows", "batch", "transposed", "padded", "stride 0"],
)
def test_torch_tensors_are_read_as_they_lie(kernel, weights, torch, make):
    """C46, C47 on the device."""
    x = make(torch)
    packed = kernel.pack(weights).to(x.device)
    for _ in range(3):  # plain, then overlapping launches
        found = kernel(x, packed)
    assert found.shape == (*x.shape[:-1], N)
    close(found.cpu().numpy(), x.cpu().numpy(), weights)
    assert kernel.pack(weights) == packed


def test_the_current_stream_is_used(kernel, weights, torch):
    x = torch.zeros(4, K, device="cuda", dtype=torch.float16)
    packed = kernel.pack(weights).to(x.device)
    kernel(x, packed)
    torch.cuda.synchronize()
    value = torch.from_numpy(activations((4, K))).cuda()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # x gets its value late: only a kernel on this stream sees it
        x.copy_(value)
        found = kernel(x, packed)
    stream.synchronize()
    close(found.cpu().numpy(), value.cpu().numpy(), weights)


def test_a_bound_call_is_captured_into_a_graph(kernel, weights, torch):
    """B5, C62: no allocation, no synchronisation; replays read the inputs of their time."""
    x = torch.from_numpy(activations((8, K))).cuda()
    out = torch.empty(8, N, device="cuda", dtype=torch.float32)
    packed = kernel.pack(weights).to(x.device)
    step = kernel.bind(x, packed, out=out)
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
        kernel(x, packed, out=out)
    for seed in range(3):
        fresh = np.random.default_rng(seed).standard_normal((8, K)).astype(np.float16)
        x.copy_(torch.from_numpy(fresh))
        out.fill_(float("nan"))
        graph.replay()
        close(out.cpu().numpy(), fresh, weights)


def test_the_host_time_of_a_bound_call(kernel, weights, torch, record_property):
    """B5: at most 15 microseconds, median of 20 runs of 100 calls (fewer than the launch queue holds)."""
    x = torch.from_numpy(activations((1, K))).cuda()
    out = torch.empty(1, N, device="cuda", dtype=torch.float32)
    packed = kernel.pack(weights).to(x.device)
    step = kernel.bind(x, packed, out=out)
    times = {"bound": [], "checked": []}
    for name, call in (("bound", step), ("checked", lambda: kernel(x, packed, out=out))):
        for _ in range(20):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(100):
                call()
            times[name].append((time.perf_counter() - start) * 1e4)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    record_property("host_microseconds", medians)
    print(f"host time of a call in microseconds: {medians}")
    assert medians["bound"] <= HOST_MICROSECONDS


def test_tensors_of_the_cpu_are_refused_by_name(kernel, weights, torch):
    """C85: x on the CPU."""
    packed = kernel.pack(weights).to(torch.device("cuda", 0))
    with pytest.raises(LaunchError, match="weight is on cuda:0, x on cpu"):
        kernel(torch.zeros(1, K, dtype=torch.float16), packed)


def test_the_tensors_device_is_used_and_the_current_one_left(kernel, weights, torch):
    """C75, C85: two cards."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    x = torch.from_numpy(activations((4, K))).to("cuda:1")
    packed = kernel.pack(weights).to(x.device)
    torch.cuda.set_device(0)
    found = kernel(x, packed)
    assert torch.cuda.current_device() == 0
    close(found.cpu().numpy(), x.cpu().numpy(), weights)
    with pytest.raises(LaunchError, match="weight is on cuda:1, x on cuda:0"):
        kernel(x.to("cuda:0"), packed)
