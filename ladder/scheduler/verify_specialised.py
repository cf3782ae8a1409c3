"""Rules of the specialised family: a warp that loads, weights scaled in registers, K shared over a cluster.

Its warps wait for each other by mbarriers, so that some of the rules exclude kernels that would hang (deadlock).
"""

from __future__ import annotations

from collections.abc import Iterator

from ladder.scheduler.plan import Plan
from ladder.scheduler.problem import Problem

#: CTAs of a cluster that every device with clusters takes (CUDA C++ guide, "Thread Block Clusters")
CLUSTER_CTAS = 8

#: rows after which a 128-byte swizzle repeats
SWIZZLE_ROWS = 8

#: CTAs of a cluster with which clusters fill all SMs of a device (on an H200 66 of 2 run at once, but 30 of 4)
PERSISTENT_CTAS = 2


def specialised_is_kept(plan: Plan) -> Iterator[Problem]:
    """Specialised: warpgroups side by side along n, tensor maps, weights scaled before they are multiplied.

    And no deadlock: a K slice that waits for a slot which only it can free would hang.
    """
    if plan.family != "specialised":
        if plan.access == "tensor":
            yield Problem(
                "tensor maps fill the rings of the specialised family only", 'access="vector"'
            )
        return
    for name, value, wanted in (
        ("compute", plan.compute, "wgmma"),
        ("access", plan.access, "tensor"),
        ("convert", plan.convert, "register"),
        ("lookahead", plan.lookahead, False),
    ):
        if value != wanted:
            yield Problem(
                f"the specialised family has {name} = {wanted!r}, not {value!r}",
                f"{name}={wanted!r}, or another family",
            )
    # A slice frees a slot after it began the block of its next turn, which must have had a slot of its own. And a slot
    # belongs to one slice: another that waited for its second block while the first is still on its way, later than one
    # that was asked for after it, would take the parity of the phase before the first for it (PTX ISA, "mbarrier").
    share, slices = plan.packing.geometry.blocks // plan.split, plan.tiling.warps_k
    if slices > min(plan.depth - 1, share) or plan.depth % slices:
        yield Problem(
            f"{slices} K slices take turns at {plan.depth} slots and {share} blocks",
            "fewer K slices, or for each as many slots, two or more",
        )
    if plan.sum_sets:
        yield Problem("the specialised family keeps no activation sums", 'zero="register"')


def scales_are_applied_once(plan: Plan) -> Iterator[Problem]:
    """Scales in registers: there are scales, and accumulators that only the unit multiplies."""
    if plan.scale != "register":
        return
    if plan.family != "specialised":
        yield Problem(
            "scales are applied in registers by the specialised family only", 'scale="accumulator"'
        )
    if plan.packing.scale_dtype is None:
        yield Problem(f"{plan.op.weight} has no scales", 'scale="accumulator"')
    elif not plan.packing.has_unit:
        yield Problem(
            f"lanes of {plan.program.compute} hold codes, not scaled weights", 'scale="accumulator"'
        )


def split_is_even(plan: Plan) -> Iterator[Problem]:
    """CTAs of a cluster share the blocks of K and the token tiles that they finish."""
    if plan.split == 1:
        return
    if plan.family != "specialised":
        yield Problem("K is shared over a cluster by the specialised family only", "split=1")
    if plan.split > CLUSTER_CTAS:
        yield Problem(f"{plan.split} CTAs > {CLUSTER_CTAS} of a portable cluster", "fewer CTAs")
    if plan.tiling.token_tiles % plan.split:
        yield Problem(
            f"{plan.tiling.token_tiles} token tiles cannot be finished by {plan.split} CTAs alike",
            "a split that divides the token tiles",
        )
    if plan.packing.geometry.blocks < plan.split:
        yield Problem(
            f"{plan.split} CTAs share {plan.packing.geometry.blocks} blocks of K", "a smaller split"
        )


def multicast_is_even(plan: Plan) -> Iterator[Problem]:
    """CTAs of a cluster that share their tokens: as many channel tiles each, boxes of whole swizzles that M fills."""
    count, tokens = plan.multicast, plan.tiling.tokens
    if count == 1:
        return
    if plan.family != "specialised":
        yield Problem("the specialised family alone loads for several CTAs", "multicast=1")
    if plan.split > 1:
        yield Problem("a cluster shares its tokens or its K, not both", "split=1, or multicast=1")
    if count > (PERSISTENT_CTAS if plan.persistent else CLUSTER_CTAS):
        yield Problem(
            f"{count} CTAs load for each other, which is too large a cluster", "multicast=2"
        )
    if plan.channel_tiles % count:
        yield Problem(
            f"{plan.channel_tiles} channel tiles are no multiple of {count}", "multicast=1"
        )
    if tokens % (SWIZZLE_ROWS * count):
        yield Problem(
            f"a part of {tokens} tokens for each of {count} CTAs is no multiple of {SWIZZLE_ROWS} rows",
            "more token tiles",
        )
    if plan.m_range[0] < tokens // count:
        yield Problem(
            f"M from {plan.m_range[0]} on does not fill boxes of {tokens // count} tokens",
            "m_range from there on, or multicast=1",
        )


def persistent_is_kept(plan: Plan) -> Iterator[Problem]:
    """Persistent: one warpgroup or more beside each other has all K of a tile, and stores fragments beside the ring."""
    if not plan.persistent:
        return
    if plan.family != "specialised" or not plan.stores_fragments:
        yield Problem(
            "only the specialised family with outputs of at most two bytes works through several tiles",
            "persistent=False",
        )
    if plan.split > PERSISTENT_CTAS:
        yield Problem(
            f"clusters of {plan.split} do not fill a device, and a persistent kernel has a CTA for every SM",
            f"split <= {PERSISTENT_CTAS}",
        )
    if plan.tiling.warps_k > 1:
        yield Problem("warpgroups of a persistent CTA have all K of its tiles", "warps_k = 1")
    # One block leaves no loop; beside that over whole tiles ptxas finds no registers for its products (C7512).
    if plan.split > 1 and plan.packing.geometry.blocks < 2 * plan.split:
        yield Problem(
            f"{plan.split} CTAs share the {plan.packing.geometry.blocks} blocks of a tile beside whole ones, less than two each",
            "split=1, or persistent=False",
        )
