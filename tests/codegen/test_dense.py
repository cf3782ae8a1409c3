"""Dense weights: operator = plan = emulated kernel in every family, on odd and even shapes, and what ptxas makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ladder
from ladder.codegen.lower import lower
from ladder.codegen.machine_code import compile_kernel
from ladder.codegen.toolchain import Toolchain
from ladder.emulator.matrix import FAMILIES, Problem, schedules
from ladder.errors import TypeDeclarationError
from ladder.scheduler import Tiling
from tests.codegen.conftest import DTYPES
from tests.codegen.test_kernels import BFLOAT16_ERROR, FLOAT16_ERROR, relative

BARS = {"float16": FLOAT16_ERROR, "bfloat16": BFLOAT16_ERROR}
NAMES = pytest.mark.parametrize("name", BARS)

#: decisions -> (m, n, k): K slices, clusters, wide tiles, several tiles a CTA, blocks that turn together, other products
ARRANGEMENTS: tuple[tuple[dict[str, Any], tuple[int, int, int]], ...] = (
    *((fixed, shape) for fixed, shape in FAMILIES.values() if "scale" not in fixed),
    ({"family": "skinny", "access": "scalar"}, (16, 77, 131)),
    ({"family": "ring", "lookahead": True}, (65, 77, 512)),
    ({"family": "ring", "convert": "shared"}, (9, 33, 200)),
    ({"family": "specialised", "tiling": Tiling(1, 4, 1, 1, 32), "depth": 2}, (65, 77, 648)),
    ({"family": "specialised", "tiling": Tiling(1, 8, 1, 1, 8), "split": 2}, (77, 136, 520)),
    ({"family": "specialised", "tiling": Tiling(2, 4, 1, 1, 2), "depth": 4}, (9, 64, 776)),
    ({"family": "specialised", "launch": "pdl"}, (17, 64, 768)),
)


@NAMES
@pytest.mark.parametrize("fixed, shape", ARRANGEMENTS)
def test_every_family_multiplies(
    name: str, fixed: dict[str, Any], shape: tuple[int, int, int]
) -> None:
    m, n, k = shape
    op = ladder.matmul(m, n, k, activation=name, weight=name, out=name, bias=True)
    problem = Problem.planned(ladder.schedule(op, "h200", **fixed), m)
    assert relative(problem.reference, problem.exact) <= BARS[name]
    # a race is one on any schedule; the types differ in what is multiplied
    for kind, seed in schedules(1) if name == "float16" else [("random", 0)]:
        y, _ = problem.run(problem.lowered.listing, kind, seed)
        assert relative(y, problem.exact) <= BARS[name]
        # products of one order of steps are rounded alike, whatever the arrangement
        assert relative(y, problem.reference.astype(np.float64)) <= BARS[name] / 10


@NAMES
@pytest.mark.parametrize("n, k", [(77, 131), (64, 192)])
def test_one_kernel_takes_any_m(name: str, n: int, k: int) -> None:
    kernel = ladder.compile(
        ladder.schedule(ladder.matmul(None, n, k, activation=name, weight=name, out=name))
    )
    rng = np.random.default_rng(0)
    weights = ladder.quantize(rng.standard_normal((n, k)), name)
    packed = kernel.pack(weights)
    assert kernel.unpack(packed) == weights
    for m in (0, 1, 65, 77):
        x = rng.standard_normal((m, k)).astype(DTYPES[name])
        y = kernel(x, packed, device="emulator")
        assert (y.shape, y.dtype) == ((m, n), x.dtype)
        if m:
            assert relative(y, kernel.plan.op.reference(x, weights)) <= BARS[name]


def test_words_of_large_tiles_are_fragments_that_nobody_copies() -> None:
    """The whole point of the packing: a block of 64 k is two loads and two products for each k32, and no spill."""
    if not Toolchain.available():
        pytest.skip("no CUDA compiler on this machine")
    op = ladder.matmul(4096, 8192, 8192, activation="bfloat16", weight="bfloat16", out="bfloat16")
    plan = ladder.schedule(op, "h200")
    assert (plan.family, plan.tiling.tokens, plan.packing.geometry.block_k) == (
        "specialised",
        256,
        64,
    )
    lowered = lower(plan)
    cubin = compile_kernel(lowered.source, "sm_90a")  # refuses products that ptxas serialises
    assert (cubin.spill_bytes, cubin.stack_bytes) == (0, 0)
    assert abs(cubin.registers - plan.registers) <= 8


def test_weights_of_another_type_are_refused() -> None:
    for name, other in (("float16", "bfloat16"), ("bfloat16", "float16")):
        with pytest.raises(TypeDeclarationError, match=f"of {other} is multiplied with") as caught:
            ladder.matmul(1, 8, 8, activation=name, weight=other)
        assert f"activations of {other}" in caught.value.hint


@NAMES
def test_plans_are_written_in_few_words(name: str) -> None:
    plan = ladder.schedule(ladder.matmul(64, 64, 192, activation=name, weight=name))
    text = plan.to_json()
    assert type(plan).from_json(text) == plan
    assert len(text) < 131_072  # nearly all of it is the device: no table of 65,536 values
    assert "identity in register: nothing per 8 codes" in str(plan)
