"""Kernels of plans, lowered and run by the emulator, for the tests of the lowering."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import ladder
from ladder.codegen.lower import lower
from ladder.runtime.arguments import Operands
from ladder.runtime.emulate import emulate
from ladder.runtime.packed import Packed
from ladder.runtime.variant import Variant
from ladder.scheduler import Plan

DTYPES: dict[str, Any] = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
}

#: plan, x, weights, bias, x_scale, residual, out -> y of the kernel on the CPU
Emulated = Callable[..., NDArray[Any]]


def body(source: str) -> str:
    """The kernel without TVM's preamble, under a name that does not change with the plan's hash."""
    text = source[source.rindex('extern "C" __global__') :]
    return re.sub(r"_[0-9a-f]{12}_kernel", "_kernel", text)


@lru_cache(maxsize=16)
def _lowered(plan: Plan) -> Any:
    return lower(plan)


@pytest.fixture
def emulated() -> Emulated:
    """Run a plan's kernel in the emulator; the output is poisoned with NaN first."""

    def run(
        plan: Plan,
        x: NDArray[Any],
        weights: ladder.Quantized,
        bias: NDArray[Any] | None = None,
        x_scale: NDArray[Any] | None = None,
        residual: NDArray[Any] | None = None,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        packed = Packed(plan.packing, plan.packing.pack(weights))
        variant = Variant(plan=plan, lowered=_lowered(plan), cubins={})
        given = Operands(x, packed, bias, out, x_scale, residual)
        y: NDArray[Any] = emulate([variant], packed.key, given)
        return y

    return run
