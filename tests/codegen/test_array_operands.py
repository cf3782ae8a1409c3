"""Accumulators of warpgroup products as arrays: the text is shorter, what it means to the compiler is not another thing."""

from __future__ import annotations

import re

import pytest

import ladder
from ladder.codegen import tvm_api
from ladder.codegen.array_operands import pass_arrays
from ladder.codegen.lower import lower
from ladder.codegen.toolchain import compile_cuda
from ladder.errors import ToolchainError
from ladder.scheduler import Plan, Tiling

#: the number format of activations -> how a kernel keeps its sums
SUMS = {"float16": "float", "int8": "uint32_t"}
FUNCTION = """\
__forceinline__ __device__ void tvm_builtin_ptx_wgmma_k(float& __d0, float& __d1, uint32_t __a) {
  asm volatile("product {%0, %1}, %2;" : "+f"(__d0), "+f"(__d1) : "r"(__a) : "memory");
}
"""


def plan(activation: str) -> Plan:
    op = ladder.matmul(256, 256, 512, activation=activation, weight="int4", out="float32")
    found = ladder.schedule(op, "h200", family="specialised", tiling=Tiling(1, 4, 1, 1, 4))
    assert isinstance(found, Plan)
    return found


@pytest.mark.parametrize("activation", SUMS)
def test_products_take_one_array(activation: str) -> None:
    source = lower(plan(activation)).source
    assert f"({SUMS[activation]} (&__d)[16], " in source
    assert re.search(r"tvm_builtin_ptx_wgmma_\w+\(acc_ptr, ", source)


@pytest.mark.parametrize("activation", SUMS)
def test_the_machine_code_is_that_of_references(
    activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = lower(plan(activation)).source
    monkeypatch.setattr(tvm_api, "pass_arrays", lambda source: source)
    references = lower(plan(activation)).source
    assert arrays != references
    assert compile_cuda(arrays, "sm_90a").code == compile_cuda(references, "sm_90a").code


def test_the_function_and_its_calls_change_and_nothing_else() -> None:
    other = "void tvm_builtin_ptx_ld_vec_shared_v2(uint32_t& __d0, uint32_t& __d1) {\n  asm();\n}\n"
    call = "  tvm_builtin_ptx_wgmma_k({}, x[0]);\n"
    text = pass_arrays(FUNCTION + other + call.format("sum[0], sum[1]"))
    assert "wgmma_k(float (&__d)[2], uint32_t __a) {" in text
    assert '"+f"(__d[0]), "+f"(__d[1]) : "r"(__a)' in text
    assert text.endswith(other + call.format("sum"))


@pytest.mark.parametrize("registers", ["sum[1], sum[0]", "sum[0], more[1]", "sum[0], sum[1]"])
def test_registers_that_are_no_array_of_their_own_do_not_compile(registers: str) -> None:
    # the array of the last case has one register more than the product takes
    call = f"float sum[3] = {{}}, more[2] = {{}}; tvm_builtin_ptx_wgmma_k({registers}, 1u);"
    kernel = f'extern "C" __global__ void k() {{ {call} }}'
    with pytest.raises(ToolchainError, match="float"):
        compile_cuda(f"typedef unsigned int uint32_t;\n{pass_arrays(FUNCTION + kernel)}", "sm_90a")
