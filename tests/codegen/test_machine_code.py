"""Serialised warpgroup products fail the build of a kernel."""

from __future__ import annotations

import pytest

from ladder.codegen import machine_code as module
from ladder.codegen.machine_code import compile_kernel, serialised
from ladder.codegen.toolchain import Cubin, Toolchain, compile_cuda
from ladder.errors import ToolchainError

#: a warpgroup's product with the accumulators written between the products, or only before and after them
SOURCE = """
extern "C" __global__ void products(float *y, unsigned *a, unsigned long long b) {
  float d[4] = {0.f, 0.f, 0.f, 0.f};
  unsigned r[4];
  for (int i = 0; i < 4; i++) r[i] = a[threadIdx.x * 4 + i];
  #pragma unroll
  for (int k = 0; k < 4; k++) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %9, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, 1, 0; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "l"(b), "r"(1) : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    BETWEEN
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; i++) asm volatile("" : "+f"(d[i]) :: "memory");
  for (int i = 0; i < 4; i++) y[threadIdx.x * 4 + i] = d[i];
}
"""
OVERLAPPING = SOURCE.replace("BETWEEN", "")
SERIALISED = SOURCE.replace("BETWEEN", "d[0] *= y[k];")

#: ptxas 13.0 on kernels of early plans, and what stands around such notes
LOG = """\
ptxas info    : (C7517) warpgroup.wait is injected in around line 72 by compiler to allow use of registers in function 'k'
ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register \
resources for the wgmma pipeline in the function 'k'
ptxas info    : (C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma instructions \
defining accumulator registers of a wgmma between start and end of the pipeline stage in function 'k'
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Used 168 registers, used 1 barriers, 400 bytes cmem[0]
"""


@pytest.fixture
def toolchain() -> Toolchain:
    found = Toolchain.available()
    if not found:
        pytest.skip("no CUDA compiler on this machine")
    return found[0]


def test_the_reasons_are_read_from_the_log() -> None:
    assert serialised(LOG) == (
        "insufficient register resources for the wgmma pipeline (C7511)",
        "non wgmma instructions defining accumulator registers of a wgmma between start and end of the pipeline stage (C7515)",
    )
    assert serialised(LOG * 2) == serialised(LOG)
    quiet = "\n".join(line for line in LOG.splitlines() if "Potential" not in line)
    assert "C7517" in quiet
    assert serialised(quiet) == ()


def test_what_ptxas_serialises_is_no_kernel(toolchain: Toolchain) -> None:
    assert compile_cuda(SERIALISED, "sm_90a", toolchain=toolchain).code  # for ptxas it is a note
    with pytest.raises(ToolchainError, match="serialised the wgmma products") as caught:
        compile_kernel(SERIALISED, "sm_90a", toolchain=toolchain)
    assert str(toolchain) in caught.value.what
    assert "(C75" in caught.value.what
    assert "sm_90a" in caught.value.at
    assert 'compute="mma"' in caught.value.hint


def test_products_that_overlap_are_a_kernel(toolchain: Toolchain) -> None:
    cubin = compile_kernel(OVERLAPPING, "sm_90a", toolchain=toolchain)
    assert cubin.code[:4] == b"\x7fELF"
    assert serialised(cubin.log) == ()


def test_a_recorded_note_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Cubin(b"elf", LOG, 168, 0, 0, 0.1, "nvrtc 13.0.88")
    monkeypatch.setattr(module, "compile_cuda", lambda *_, **__: noted)
    with pytest.raises(ToolchainError) as caught:
        compile_kernel("", "sm_90a")
    assert caught.value.at == "sm_90a, 168 registers a thread"
    assert caught.value.what.count("(C75") == 2
