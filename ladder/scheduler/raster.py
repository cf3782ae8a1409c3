"""The order in which a persistent kernel works through the output tiles of a matmul: channel by channel, or in groups.

    tile 0 .. :  token tiles 0 .. 3 of channel tile 0, the same of channel tile 1, ..; then token tiles 4 .. 7, ..

CTAs that run at once take tiles that follow each other. In groups they share the weights of a few channel tiles and the
activations of a few token tiles; channel by channel all have one token tile, and all weights pass through the L2 once for each.
Which is better depends on the width of a weight beside that of an activation. On an H200, 28672 x 8192, M = 4096, beside cuBLAS in
float16: float16 weights 0.92 x in groups, 0.85 x channel by channel (in pairs that share activations); int4 1.00 x in groups and, in another run, 1.02 x channel by channel, since
float16 activations are most of what it reads (benchmarks/results, order-of-tiles). Token tiles that fill no group come channel by channel: dividing by their number would cost registers that kernels
of 256 tokens do not have. Where CTAs load tokens for each other, neighbours have one token tile and channel tiles follow each
other: groups made no difference there (int8 activations: 1149 to 1151 us with groups of 1 to 16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ladder.scheduler.plan import Plan

#: token tiles of a group; on an H200 4 to 8 are alike, 16 cost 2 %
GROUP = 4

#: tiles come in groups where a weight has at least this part of an activation's bits
WIDE_PART = 0.5


def group_of(plan: Plan) -> int:
    """Token tiles of a group: 1 is channel by channel, as where there are never enough to fill one."""
    is_wide = plan.packing.element.bits >= WIDE_PART * plan.value_bits
    most = plan.m_range[1]
    fills = most is None or most > (GROUP - 1) * plan.tiling.tokens
    return GROUP if plan.persistent and plan.multicast == 1 and is_wide and fills else 1


def index_of(plan: Plan, rows: int, row: Any, column: Any) -> Any:
    """Places in the order of tiles (token tile ``row`` of ``rows``, channel tile ``column``), NumPy integers."""
    group, columns = group_of(plan), plan.channel_tiles
    first = row // group * group
    whole = first + group <= rows
    inside = np.where(whole, column * group + (row - first), (row - first) * columns + column)
    return first * columns + inside
