"""Kernels that decode a weight into memory: bit for bit what the plan says, in the emulator, and small when compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ladder
from ladder.codegen.dequantize import lower_dequantize
from ladder.codegen.machine_code import compile_kernel
from ladder.codegen.toolchain import Toolchain
from ladder.emulator import run
from ladder.errors import EmulationError, PackingError
from ladder.scheduler.dequantize_plan import DequantizePlan
from tests.scheduler.test_dequantize_plan import TYPES, plan_of

POISON = 0x7FFF7FFF  # NaNs


def check(plan: DequantizePlan, seed: int = 0) -> None:
    """Compare the kernel with the plan, bit for bit; outputs are poisoned, and words beyond the weight are left alone."""
    op = plan.op
    q = ladder.quantize(np.random.default_rng(seed).standard_normal((op.n, op.k)), op.weight)
    lowered, packed = lower_dequantize(plan), plan.packing.pack(q)
    shape, _ = plan.target.shapes()["weight"]
    count = int(np.prod(shape))
    words = np.full(count + 4, POISON, np.uint32)
    arrays: dict[str, Any] = {name: array.reshape(-1) for name, array in packed.items()}
    arrays["y"] = words
    arguments = {p.name: arrays[p.role] for p in lowered.parameters}
    run(lowered.listing, arguments, lowered.launch.grid_for(0), lowered.launch.block, seed=seed)
    found = plan.target.unpack({"weight": words[:count].reshape(shape)})
    assert np.array_equal(found.codes, plan.run(q).view(np.uint16))
    assert (words[:count] != POISON).all()
    assert (words[count:] == POISON).all()


@pytest.mark.parametrize("compute", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", TYPES)
def test_kernels_are_what_the_plan_says(name: str, compute: str) -> None:
    check(plan_of(TYPES[name], compute=compute))


@given(
    name=st.sampled_from(["int4", "nf4", "int3 with zeros"]),
    n=st.integers(1, 80),
    k=st.integers(1, 320),
    warps=st.sampled_from([1, 3, 8]),
    atoms=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_every_way_to_share_atoms(name, n, k, warps, atoms, seed) -> None:
    check(plan_of(TYPES[name], n, k, warps=warps, atoms=atoms), seed)


def test_a_kernel_is_called_saved_and_loaded(tmp_path: Any) -> None:
    wt = TYPES["nf4"]
    q = ladder.quantize(np.random.default_rng(0).standard_normal((48, 128)), wt)
    decode = ladder.compile(plan_of(wt, 48, 128))
    assert isinstance(decode, ladder.DequantizeKernel)
    product = ladder.compile(
        ladder.schedule(ladder.matmul(3, 48, 128, activation="float16", weight="float16"))
    )
    x = np.random.default_rng(1).standard_normal((3, 128)).astype(np.float16)
    exact = x.astype(np.float64) @ q.dequantize().T
    packed = decode.pack(q)
    decode.save(tmp_path / "kernel")
    for found in (decode, ladder.load(tmp_path / "kernel")):
        assert found.plan == decode.plan
        dense = found(packed, device="emulator")
        assert dense == product.pack(decode.plan.dense(q))
        y = product(x, dense, device="emulator")
        assert np.linalg.norm(y - exact) <= 1e-3 * np.linalg.norm(exact)
    with pytest.raises(PackingError, match="another packing"):
        decode(dense, device="emulator")


def test_a_kernel_without_a_listing_says_so() -> None:
    from dataclasses import replace

    kernel = ladder.compile(plan_of(TYPES["int4"]))
    q = ladder.quantize(np.ones((50, 200)), TYPES["int4"])
    bare = replace(kernel.variants[0], lowered=replace(kernel.variants[0].lowered, listing=None))
    with pytest.raises(EmulationError, match="holds no instruction listing"):
        ladder.DequantizeKernel([bare], kernel.plan)(kernel.pack(q), device="emulator")


@pytest.mark.parametrize("device", ["h200", "a100", "rtx4090"])
@pytest.mark.parametrize("name", TYPES)
def test_a_kernel_does_not_spill(name: str, device: str) -> None:
    if not Toolchain.available():
        pytest.skip("no CUDA compiler on this machine")
    op = ladder.dequantize(8192, 8192, weight=TYPES[name])
    lowered = lower_dequantize(ladder.schedule(op, device))
    cubin = compile_kernel(lowered.source, lowered.device_arch)
    assert (cubin.spill_bytes, cubin.stack_bytes) == (0, 0)
    assert cubin.registers <= 64
