"""The pure-read floor's kernel: it reads a buffer once, 16 bytes a thread at a time, and does nothing else.

It is compiled where the other kernels are and travels with them, so that a machine with a GPU needs no compiler for it.
Sums are written only when they are checked; the loads are volatile, so that they stay when nothing is.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

from ladder.codegen.toolchain import compile_cuda

FILE = "read.cubin"
#: loads of a thread that are on their way together
UNROLLS = (4, 8)
#: threads that an SM holds (CUDA C++ guide, "Compute Capabilities"); of these, some shares are tried
THREADS_PER_SM = 2048

_TEXT = """
__device__ __forceinline__ uint4 load(const uint4* place) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(place));
  return v;
}
template <int N>
__device__ __forceinline__ void read(const uint4* words, long long count, unsigned* out, int write) {
  const long long step = (long long)gridDim.x * blockDim.x;
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  unsigned sum = 0;
  for (; i + (N - 1) * step < count; i += N * step) {
    uint4 v[N];
#pragma unroll
    for (int u = 0; u < N; ++u) v[u] = load(words + i + u * step);
#pragma unroll
    for (int u = 0; u < N; ++u) sum += v[u].x + v[u].y + v[u].z + v[u].w;
  }
  for (; i < count; i += step) {
    const uint4 v = load(words + i);
    sum += v.x + v.y + v.z + v.w;
  }
  if (write) atomicAdd(out, sum);
}
"""
_ENTRY = """
extern "C" __global__ void __launch_bounds__(1024) {name}(
    const uint4* words, long long count, unsigned* out, int write) {{
  read<{unroll}>(words, count, out, write);
}}
"""


@dataclass(frozen=True, slots=True)
class Reader:
    """A way to read: which kernel, and how many of its threads an SM gets.

    Attributes:
        unroll: loads of a thread on their way together.
        blocks: CTAs of each SM.
        threads: of a CTA.
    """

    unroll: int
    blocks: int
    threads: int

    @property
    def name(self) -> str:
        """Of the kernel."""
        return kernel_name(self.unroll)


#: which of these is fastest depends on the bytes: the floor is the best of them
READERS = tuple(
    Reader(*given)
    for given in product(UNROLLS, (1, 2, 4), (256, 512, 1024))
    if given[1] * given[2] <= THREADS_PER_SM
)


def kernel_name(unroll: int) -> str:
    """Name of the kernel with so many loads on their way."""
    return f"ladder_read_{unroll}"


def source() -> str:
    """CUDA text of all kernels."""
    entries = (_ENTRY.format(name=kernel_name(unroll), unroll=unroll) for unroll in UNROLLS)
    return _TEXT + "".join(entries)


def save(folder: Path, arch: str) -> None:
    """Compile the kernels into a folder of artifacts.

    Raises:
        ToolchainError: there is no CUDA compiler.
    """
    (folder / FILE).write_bytes(compile_cuda(source(), arch).code)
