"""Checks of a call that depend on the kernel's launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ladder.codegen.kernel import CeilDiv
from ladder.errors import ShapeError
from ladder.runtime.arguments import Operands, check_call


def test_more_rows_than_one_grid_covers_are_refused_with_their_number(fakes, driver, weights):
    """As the plan has no upper limit, the call is the first to know."""
    kernel = fakes.kernel(driver, [fakes.Plan(m_range=(0, None))])
    variant, packed = kernel.variants[0], kernel.pack(weights)
    short = replace(
        variant.lowered, launch=replace(variant.lowered.launch, grid=(1, CeilDiv(1), 1))
    )
    variant = replace(variant, lowered=short)
    assert variant.takes_rows(65535)
    assert not variant.takes_rows(65536)
    x = np.broadcast_to(np.zeros(16, np.float16), (65536, 16))
    with pytest.raises(ShapeError) as caught:
        check_call((variant,), packed.key, Operands(x, packed))
    assert caught.value.what == "x has 65536 rows, the kernels take 0 to 65535"
    assert "at most 65535 rows at a time" in caught.value.hint
