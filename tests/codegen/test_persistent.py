"""Persistent kernels: few CTAs work through many tiles, and clusters share the last ones; the sums stay the same.

The devices have 2 and 4 SMs, so that a small problem has several tiles for each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ladder
from ladder.scheduler import Plan, Tiling
from tests.codegen.conftest import DTYPES, Emulated

#: (type, groups, zero points, activations, M, N, K, warps along N, token tiles)
ALONE = (
    ("int4", 128, "integer", "float16", 40, 300, 512, 8, 2),
    ("nf4", 64, None, "bfloat16", 21, 192, 328, 4, 2),
    ("int8", "channel", None, "float16", 33, 136, 256, 4, 4),
    # a tile of 8 tokens, of which none is staged beside another
    ("int3", 128, None, "float16", 43, 136, 264, 4, 1),
    # groups of four token tiles, and three that fill none
    ("int8", 128, None, "float16", 83, 136, 136, 4, 1),
)
SHARED = (
    ("int4", 128, "integer", "float16", 40, 320, 512, 8, 2),
    ("nf4", 64, None, "bfloat16", 40, 192, 584, 4, 2),  # 5 blocks, for 2 CTAs
    ("int8", "channel", None, "float16", 33, 136, 512, 4, 4),
    # groups of four token tiles, and two that fill none
    ("fp8_e4m3fn", 128, None, "float16", 157, 300, 512, 8, 2),
)


def persistent(case: tuple[Any, ...], sms: int, split: int) -> Plan:
    name, groups, zero, activation, _, n, k, warps_n, token_tiles = case
    weight = ladder.types[name].grouped(groups, zero=zero)
    op = ladder.matmul(None, n, k, activation=activation, weight=weight, out=activation, bias=True)
    plans = ladder.schedule(
        op,
        device=replace(ladder.devices["h200"], sms=sms),
        m_range=(0, None),
        family="specialised",
        tiling=Tiling(1, warps_n, 1, 1, token_tiles),
        depth=3,
        split=split,
        persistent=True,
        **({} if groups == "channel" else {"scale": "register"}),
    )
    (plan,) = plans.plans
    return plan


def check(plan: Plan, m: int, emulated: Emulated) -> None:
    rng = np.random.default_rng(m)
    op = plan.op
    weights = ladder.quantize(rng.standard_normal((op.n, op.k)) * 0.1, op.weight)
    x = rng.standard_normal((m, op.k)).astype(DTYPES[op.activation.name])
    bias = rng.standard_normal(op.n).astype(DTYPES[op.out.name])
    wanted = plan.run(x, weights, bias)
    assert np.any(wanted != 0)
    np.testing.assert_array_equal(emulated(plan, x, weights, bias), wanted)


@pytest.mark.parametrize("case", ALONE, ids=lambda case: case[0])
def test_a_cta_works_through_several_tiles(case: tuple[Any, ...], emulated: Emulated) -> None:
    plan, m = persistent(case, sms=2, split=1), case[4]
    tiles = plan.channel_tiles * -(-m // plan.tiling.tokens)
    assert tiles > 2 * plan.persistent_ctas == 4
    check(plan, m, emulated)


@pytest.mark.parametrize("case", SHARED, ids=lambda case: case[0])
def test_a_cluster_shares_the_tiles_that_are_left_over(
    case: tuple[Any, ...], emulated: Emulated
) -> None:
    plan, m = persistent(case, sms=4, split=2), case[4]
    tiles = plan.channel_tiles * -(-m // plan.tiling.tokens)
    assert 0 < plan.shared_tiles(tiles) < tiles
    check(plan, m, emulated)


@pytest.mark.parametrize("m", [1, 8, 16, 17])
def test_fewer_tiles_than_ctas_and_every_remainder(m: int, emulated: Emulated) -> None:
    """The plan is for any M: of one tile a CTA, some without, and a last tile that is not whole."""
    check(persistent(SHARED[0], sms=4, split=2), m, emulated)
    check(persistent(ALONE[0], sms=2, split=1), m, emulated)
