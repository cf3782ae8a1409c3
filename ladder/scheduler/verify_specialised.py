"""Rules of the specialised family: a warp that loads, weights scaled in registers, K shared over a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from ladder.scheduler.plan import Plan
from ladder.scheduler.problem import Problem

#: CTAs of a cluster that every device with clusters takes (CUDA C++ guide, "Thread Block Clusters")
CLUSTER_CTAS = 8

#: CTAs of a cluster with which clusters fill all SMs of a device (on an H200 66 of 2 run at once, but 30 of 4)
PERSISTENT_CTAS = 2


def specialised_is_kept(plan: Plan) -> Iterator[Problem]:
    """Specialised: warpgroups side by side along n, tensor maps, weights scaled before they are multiplied."""
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
    # A slice frees a slot after it began the block of its next turn, which must have had a slot of its own.
    share = plan.packing.geometry.blocks // plan.split
    if plan.tiling.warps_k > min(plan.depth - 1, share):
        yield Problem(
            f"{plan.tiling.warps_k} K slices take turns at {plan.depth} slots and {share} blocks",
            "fewer K slices, or more slots than K slices",
        )
    if plan.sum_sets:
        yield Problem("the specialised family keeps no activation sums", 'zero="register"')


def scales_are_applied_once(plan: Plan) -> Iterator[Problem]:
    """Scales in registers: there are scales, one class of steps, and accumulators that only the unit multiplies."""
    if plan.scale != "register":
        return
    program = plan.program
    if plan.family != "specialised":
        yield Problem(
            "scales are applied in registers by the specialised family only", 'scale="accumulator"'
        )
    if plan.packing.scale_dtype is None:
        yield Problem(f"{plan.op.weight} has no scales", 'scale="accumulator"')
    elif not plan.packing.has_unit:
        yield Problem(
            f"lanes of {program.compute} hold codes, not scaled weights", 'scale="accumulator"'
        )
    if program.classes > 1:
        yield Problem(
            f"scales in registers take one class of steps, not {program.classes}",
            'scale="accumulator"',
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


def persistent_is_kept(plan: Plan) -> Iterator[Problem]:
    """Persistent: one warpgroup or more beside each other has all K of a tile, and stores fragments beside the ring."""
    if not plan.persistent:
        return
    if plan.family != "specialised" or not plan.stores_fragments:
        yield Problem(
            "only the specialised family with outputs of two bytes works through several tiles",
            "persistent=False",
        )
    if plan.split > PERSISTENT_CTAS:
        yield Problem(
            f"clusters of {plan.split} do not fill a device, and a persistent kernel has a CTA for every SM",
            f"split <= {PERSISTENT_CTAS}",
        )
    if plan.tiling.warps_k > 1:
        yield Problem("warpgroups of a persistent CTA have all K of its tiles", "warps_k = 1")


def multicast_is_whole(plan: Plan) -> Iterator[Problem]:
    """CTAs that share activations each bring as many whole tiles of 8 tokens, which all of M's range fills."""
    if plan.multicast == 1:
        return
    if plan.family != "specialised" or plan.split > 1:
        yield Problem(
            "activations are shared by CTAs of the specialised family that have all of K",
            "multicast=1, or split=1",
        )
    if plan.multicast > PERSISTENT_CTAS:
        yield Problem(
            f"clusters of {plan.multicast} do not fill a device", f"multicast <= {PERSISTENT_CTAS}"
        )
    if plan.tiling.token_tiles % plan.multicast:
        yield Problem(
            f"{plan.tiling.token_tiles} token tiles cannot be brought by {plan.multicast} CTAs alike",
            "a multicast that divides the token tiles",
        )
    part = plan.tiling.tokens // plan.multicast
    if plan.m_range[0] < part:
        yield Problem(
            f"each of {plan.multicast} CTAs brings {part} tokens, there may be {plan.m_range[0]}",
            "multicast=1 for few tokens",
        )
