from __future__ import annotations

import importlib.util
import warnings

import pytest

from ladder.codegen import toolchain as module
from ladder.codegen.nvrtc_headers import SHIM, with_tensor_map
from ladder.codegen.toolchain import (
    Toolchain,
    compile_cuda,
    resources,
    toolchain_version,
)
from ladder.errors import ToolchainError
from ladder.settings import Settings

TINY = 'extern "C" __global__ void tiny(float *y) { y[threadIdx.x] = 2.0f; }\n'

#: as the code generator's prelude asks for them
TRAITS = """
#ifdef __CUDACC_RTC__
  #include <cuda/std/cstdint>
  #include <cuda/std/type_traits>
  namespace std { using cuda::std::is_same_v; using cuda::std::is_integral; using cuda::std::is_signed;
    using cuda::std::is_unsigned; using cuda::std::is_floating_point; using cuda::std::enable_if;
    using cuda::std::conditional; }
  using cuda::std::int64_t; using cuda::std::uint64_t; using cuda::std::uint8_t;
#else
  #include <cstdint>
  #include <type_traits>
#endif
#include <cuda_fp16.h>
static_assert(sizeof(int64_t) == 8 && sizeof(uint64_t) == 8 && sizeof(uint8_t) == 1, "");
static_assert(std::is_same_v<int, int> && !std::is_same_v<int, unsigned>, "");
static_assert(std::is_integral<int64_t>::value && std::is_integral<bool>::value, "");
static_assert(!std::is_integral<float>::value && std::is_floating_point<float>::value, "");
static_assert(std::is_signed<float>::value && std::is_signed<int>::value, "");
static_assert(std::is_unsigned<uint64_t>::value && !std::is_signed<uint64_t>::value, "");
static_assert(std::is_same_v<typename std::conditional<false, int, half>::type, half>, "");
template <class T> __device__ typename std::enable_if<std::is_integral<T>::value, T>::type twice(T x) { return x + x; }
extern "C" __global__ void traits(half *y) { y[threadIdx.x] = half(float(twice(int(threadIdx.x)))); }
"""

TENSOR_MAP = """
#ifndef __CUDACC_RTC__
#include <cuda.h>
#endif
static_assert(alignof(CUtensorMap) == 128 && sizeof(CUtensorMap) == 128, "");
extern "C" __global__ void mapped(const __grid_constant__ CUtensorMap m, float *y) { *y = *(const float *)&m; }
"""

HOPPER = """
extern "C" __global__ void hopper(float *y) {
  asm volatile("wgmma.fence.sync.aligned;");
  *y = 1.0f;
}
"""


def found(name):
    names = [toolchain.name for toolchain in Toolchain.available()]
    if name not in names:
        pytest.skip(f"no {name} on this machine")
    return next(toolchain for toolchain in Toolchain.available() if toolchain.name == name)


@pytest.fixture(params=["nvrtc", "nvcc"])
def toolchain(request):
    return found(request.param)


@pytest.mark.parametrize("source", [TINY, TRAITS, TENSOR_MAP], ids=["tiny", "traits", "tensor map"])
def test_text_becomes_machine_code(toolchain, source):
    cubin = compile_cuda(source, "sm_90a", toolchain=toolchain)
    assert cubin.code[:4] == b"\x7fELF"
    assert cubin.registers > 0
    assert (cubin.spill_bytes, cubin.stack_bytes) == (0, 0)
    assert cubin.compiler == str(toolchain)
    assert cubin.seconds < 5


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a"])
def test_every_supported_target_compiles(toolchain, arch):
    assert compile_cuda(TINY, arch, toolchain=toolchain).code


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_feature_that_the_target_lacks_is_an_error_of_the_build(toolchain, arch):
    """C87: never a kernel that does nothing."""
    assert compile_cuda(HOPPER, "sm_90a", toolchain=toolchain).code
    with pytest.raises(ToolchainError, match="wgmma") as caught:
        compile_cuda(HOPPER, arch, toolchain=toolchain)
    assert arch in caught.value.at
    assert "features" in caught.value.hint


def test_an_error_shows_the_compilers_lines_as_the_text_counts_them(toolchain):
    with pytest.raises(ToolchainError, match=r"kernel\.cu\(3\): error.*\n +nonsense;") as caught:
        compile_cuda(f"// CUtensorMap\n{TINY}nonsense;\n", "sm_80", toolchain=toolchain)
    assert str(toolchain) in str(caught.value)


def test_further_options_reach_the_compiler(toolchain):
    source = TINY.replace("2.0f", "VALUE")
    assert compile_cuda(source, "sm_80", ["-DVALUE=3"], toolchain=toolchain).code
    with pytest.raises(ToolchainError):
        compile_cuda(source, "sm_80", toolchain=toolchain)


def test_a_product_and_a_sum_round_each(toolchain):
    """The text's meaning is the machine's: nothing but fma is one."""
    text = 'extern "C" __global__ void k(float *y, float a, float b, float c) {{ *y = {}; }}'
    plain, twice, once = (
        compile_cuda(text.format(value), "sm_90a", toolchain=toolchain).code
        for value in ("a * b + c", "__fadd_rn(__fmul_rn(a, b), c)", "__fmaf_rn(a, b, c)")
    )
    assert plain == twice != once


def test_spills_are_reported(toolchain):
    source = """
extern "C" __global__ void __launch_bounds__(1024, 2) spill(float *y, int n) {
  float v[96];
  #pragma unroll
  for (int i = 0; i < 96; i++) v[i] = y[i * 32 + threadIdx.x];
  for (int j = 0; j < n; j++) {
    #pragma unroll
    for (int i = 0; i < 96; i++) v[i] = v[i] * v[(i * 7 + 5) % 96] + y[j];
  }
  #pragma unroll
  for (int i = 0; i < 96; i++) y[i * 32 + threadIdx.x] = v[i];
}
"""
    cubin = compile_cuda(source, "sm_80", toolchain=toolchain)
    assert cubin.spill_bytes > 0
    assert cubin.registers <= 32
    assert "B spilled" in str(cubin)


def test_equal_text_gives_equal_code(toolchain):
    first, second = (compile_cuda(TINY, "sm_80", toolchain=toolchain) for _ in range(2))
    assert first.code == second.code


def test_the_report_is_the_worst_kernel():
    log = """ptxas info    : Compiling entry function 'a' for 'sm_90a'
ptxas info    : Function properties for a
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers
ptxas info    : Function properties for b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 400 bytes cmem[0]
"""
    assert resources(log) == (168, 16, 8)
    assert resources("") == (0, 0, 0)


@pytest.mark.parametrize("arch", ["90a", "sm90", "sm_90x", "compute_90", "", "sm_90a "])
def test_what_is_no_target_is_refused(arch):
    with pytest.raises(ToolchainError, match="is no architecture"):
        Toolchain("nvcc", "13.0").command(arch)


def test_the_command_names_the_target_with_its_features():
    assert "--gpu-architecture=sm_90a" in Toolchain("nvrtc", "13").command("sm_90a")
    nvcc = Toolchain("nvcc", "13").command("sm_120f", ["-O1"])
    assert nvcc[0] == "--generate-code=arch=compute_120f,code=sm_120f"
    assert nvcc[-1] == "-O1"


def only(monkeypatch, **answers):
    """Let the probes answer as given."""
    probes = {
        name: lambda settings, name=name: answers.get(name, f"{name}: not there")
        for name in ("nvrtc", "nvcc")
    }
    monkeypatch.setattr(module, "PROBES", probes)


NVRTC, NVCC = Toolchain("nvrtc", "13.0.88", "13.0.96"), Toolchain("nvcc", "13.0.88", program="/x")


def test_nvrtc_is_preferred_and_the_settings_decide(monkeypatch):
    only(monkeypatch, nvrtc=NVRTC, nvcc=NVCC)
    assert Toolchain.available() == (NVRTC, NVCC)
    assert Toolchain.choose(Settings()) == NVRTC
    assert Toolchain.choose(Settings(toolchain="nvcc")) == NVCC
    assert toolchain_version(Settings(toolchain="nvcc")) == "nvcc 13.0.88"
    assert toolchain_version(Settings()) == "nvrtc 13.0.88 headers 13.0.96"
    with pytest.raises(ToolchainError, match="no compiler is called 'clang'"):
        Toolchain.choose(Settings(toolchain="clang"))


def test_without_any_compiler_one_error_says_what_was_tried_and_how_to_install(monkeypatch):
    """C76: what is missing, what was tried, how to set it."""
    only(monkeypatch)
    assert toolchain_version(Settings()) == "none"
    with pytest.raises(ToolchainError) as caught:
        compile_cuda(TINY, "sm_90a")
    assert str(caught.value) == (
        "no CUDA compiler (nvrtc or nvcc): nvrtc: not there; nvcc: not there\n"
        "  at: compiling CUDA text\n"
        "  hint: pip install 'ladder[cuda]', or put nvcc on PATH (or its toolkit in CUDA_HOME)"
    )


def test_a_compiler_that_was_asked_for_is_not_replaced(monkeypatch):
    only(monkeypatch, nvrtc=NVRTC)
    with pytest.raises(ToolchainError, match=r"no CUDA compiler \(nvcc\): nvcc: not there"):
        Toolchain.choose(Settings(toolchain="nvcc"))


def test_an_empty_path_hides_nvcc_and_cuda_home_shows_it(tmp_path):
    """C76: PATH and CUDA_HOME emptied."""
    hidden = module.PROBES["nvcc"](Settings(path="/nowhere"))
    assert hidden == "nvcc: not on PATH and not in CUDA_HOME (unset)"
    program = tmp_path / "bin" / "nvcc"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.9, V12.9.41'\n")
    program.chmod(0o755)
    shown = module.PROBES["nvcc"](Settings(path="/nowhere", cuda_home=str(tmp_path)))
    assert shown == Toolchain("nvcc", "12.9.41", program=str(program))
    program.write_text("#!/bin/sh\nexit 3\n")
    assert "does not run" in module.PROBES["nvcc"](
        Settings(path="/nowhere", cuda_home=str(tmp_path))
    )


def test_missing_bindings_are_one_line(monkeypatch):
    def absent():
        raise ImportError("No module named 'cuda'\nlong path noise")

    monkeypatch.setattr(module, "_nvrtc", absent)
    answer = module.PROBES["nvrtc"](Settings())
    assert answer == "nvrtc: ImportError: No module named 'cuda'"


def test_a_name_that_the_short_headers_lack_is_found_in_the_full_ones_with_a_warning(monkeypatch):
    nvrtc = found("nvrtc")
    monkeypatch.setattr(module, "_has_cccl", lambda toolchain: True)
    monkeypatch.setattr(module, "SHIM", {**SHIM, "cuda/std/type_traits": "#error too short\n"})
    tried = []
    real = module._run_nvrtc

    def run(source, options, headers):
        tried.append(bool(headers))
        # this machine may lack the full headers: the short ones stand in for them
        return real(source, options, headers or SHIM)

    monkeypatch.setattr(module, "_run_nvrtc", run)
    with pytest.warns(RuntimeWarning, match="compiled with CCCL's headers.*too short"):
        assert compile_cuda(TRAITS, "sm_80", toolchain=nvrtc).code
    assert tried == [True, False]


def test_the_first_log_is_shown_where_the_full_headers_do_not_help(monkeypatch):
    nvrtc = found("nvrtc")
    monkeypatch.setattr(module, "_has_cccl", lambda toolchain: True)
    with warnings.catch_warnings(), pytest.raises(ToolchainError, match="nonsense"):
        compile_cuda(TRAITS + "nonsense;", "sm_80", toolchain=nvrtc)


def test_the_tensor_map_is_declared_only_where_it_is_named():
    assert with_tensor_map(TINY) == TINY
    assert with_tensor_map("CUtensorMap m;").endswith("#line 1\nCUtensorMap m;")


def test_versions_come_from_the_packages():
    if importlib.util.find_spec("cuda") is None:
        pytest.skip("cuda-bindings is not installed")
    nvrtc = found("nvrtc")
    assert nvrtc.version.count(".") >= 1
    assert nvrtc.include
    assert "/" not in str(nvrtc)  # keys must not change with the place of the environment
