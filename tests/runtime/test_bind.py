"""A bound call keeps what it needs and makes nothing new, so that it can be captured and replayed."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import ladder
from ladder.codegen.kernel import BUFFER_ROLES


def test_a_bound_call_allocates_nothing_and_sees_new_inputs(
    fakes, driver, weights, x, torch, reference, monkeypatch
):
    """C62: memory is reserved by bind; replays read the inputs of their time."""
    kernel = fakes.kernel(driver)
    tensor = torch.on(x)
    step = kernel.bind(tensor, kernel.pack(weights).to(torch.device("cuda", 0)))
    gc.collect()  # nothing else holds the packed weights
    monkeypatch.setattr(driver, "allocate", None)
    monkeypatch.setattr(torch, "empty", None)
    for factor in (1, 2, 3):
        tensor.array[...] = x * factor
        np.testing.assert_allclose(step().array, reference(x * factor), rtol=1e-2, atol=1e-2)
    first, *others = driver.launches
    assert all(launch.values == first.values for launch in others)


@pytest.mark.parametrize("m", [1, 16, 64, 4096])
@pytest.mark.parametrize("n, k", [(1, 1), (16, 8192), (8192, 8192)])
def test_no_kernel_has_a_workspace(m, n, k):
    """C62: K is split within a block and summed in shared memory, so there is no size to get wrong."""
    assert not any("work" in role or "scratch" in role for role in BUFFER_ROLES)
    op = ladder.matmul(
        m=m, n=n, k=k, activation="float16", weight=ladder.types["int4"].grouped(128)
    )
    plan = ladder.schedule(op, "h200")
    assert plan.shared_bytes <= plan.device.shared_bytes_per_block
    channels = 16 * plan.tiling.row_tiles * plan.tiling.warps_n
    assert plan.channel_tiles * channels >= n
