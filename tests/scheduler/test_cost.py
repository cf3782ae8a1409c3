"""The cost model: its arithmetic by hand, and which way it moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import Plan, Tiling, choose_packing, default_epilogue, estimate
from ladder.scheduler.cost import SCHEDULERS, WARPGROUP_LATENCY, Bound
from ladder.scheduler.fit import FITS
from ladder.scheduler.work import LOOKAHEAD_SLOTS, work

H200 = devices["h200"]
W4 = types["int4"].grouped(128, zero="integer")
LARGE = Tiling(1, 4, 2, 2, 8)


def a_plan(m=None, n=8192, k=8192, family="ring", tiling=LARGE, **decisions) -> Plan:
    op = matmul(m, n, k, activation="float16", weight=decisions.pop("weight", W4))
    packing = choose_packing(op, H200.features)
    defaults = {"depth": 3, "epilogue": default_epilogue(op, packing), "m_range": (0, m)}
    return Plan(op, H200, packing, family, tiling, **{**defaults, **decisions})


def bound(cost, name: str) -> Bound:
    return next(b for b in cost.bounds if b.name == name)


def test_tensor_ceiling_is_the_operators_work_on_the_busiest_sm():
    cost = estimate(a_plan(zero="register"), m=4096)
    ctas = (8192 // 128) * (4096 // 128)
    assert cost.ctas == ctas == 2048
    per_cta = 2 * 128 * 128 * 8192
    assert bound(cost, "P tensor").amount == -(-ctas // 132) * per_cta
    assert bound(cost, "P tensor").per_us == pytest.approx(575e12 / 132 / 1e6)


def test_sums_of_activations_cost_one_product_for_each_row_tiles():
    plain, sums = (work(a_plan(zero=zero)).products for zero in ("register", "sums"))
    assert sums == plain * (1 + 1 / 2)  # two row tiles a warp share one product of ones
    wide = Tiling(1, 2, 4, 4, 4)
    assert work(a_plan(tiling=wide, zero="sums")).products == plain * (1 + 1 / 4)


def test_decode_is_repeated_for_every_warp_along_the_tokens_unless_it_goes_through_shared_memory():
    def grows(convert: str) -> float:
        one, two = (
            work(a_plan(tiling=Tiling(1, 4, m, 2, 4), convert=convert, zero="sums")).alu
            for m in (1, 2)
        )
        return two - one

    # scales are read by every warp in both placements; the decode of the tile is what differs
    decode = 128 * 8192 / 8 * a_plan().packing.program.pipes()["alu"]
    assert decode > 0
    assert grows("register") - grows("shared") == pytest.approx(decode)


def test_dram_ceiling_is_bytes_over_bandwidth():
    plan = a_plan(m=1, family="skinny", tiling=Tiling(8, 1, 1, 2, 1))
    cost = estimate(plan)
    nbytes = plan.packing.nbytes + 8192 * 2 + 8192 * 2
    assert bound(cost, "BW dram").amount == nbytes
    rate = FITS["skinny"].dram * 4.65e12
    assert bound(cost, "BW dram").us == pytest.approx(nbytes / rate * 1e6)


def test_littles_law_asks_for_bytes_in_flight():
    shallow, deep = (
        estimate(a_plan(m=1, family="skinny", tiling=Tiling(8, 1, 1, 2, 1), depth=d))
        for d in (2, 4)
    )
    late = FITS["skinny"].late
    assert 0 <= late < 2
    ratio = (4 - late) / (2 - late)
    assert deep.in_flight == pytest.approx(ratio * shallow.in_flight, rel=1e-6)
    longer = bound(shallow, "in flight").us / bound(deep, "in flight").us
    assert longer == pytest.approx(ratio, rel=1e-6)


def test_lookahead_trades_a_slot_in_flight_for_a_shorter_chain():
    plan = a_plan(m=1, family="skinny", tiling=Tiling(8, 1, 1, 2, 1), depth=4)
    plain, ahead = estimate(plan), estimate(replace(plan, lookahead=True))
    # of the slots that fill some part is late; lookahead keeps most of another from being on its way
    assert 0 < LOOKAHEAD_SLOTS <= 1
    filling = 4 - FITS["skinny"].late
    assert ahead.in_flight / plain.in_flight == pytest.approx(
        (filling - LOOKAHEAD_SLOTS) / filling, rel=1e-4
    )
    assert bound(ahead, "a warp's chain").us < bound(plain, "a warp's chain").us


def by_warpgroups(warps_n: int = 8, token_tiles: int = 16) -> Plan:
    tiling = Tiling(1, warps_n, 1, 1, token_tiles)
    return a_plan(tiling=tiling, compute="wgmma", lookahead=True, zero="register", depth=4)


def test_products_of_a_warpgroup_are_counted_whole():
    plan = by_warpgroups()
    # 64 channels x all tokens x 16 k each: two of them a k16 step for 128 channels, whatever the tokens
    assert work(plan).products == 2 * 8192 / 16
    assert work(by_warpgroups(token_tiles=32)).products == 2 * 8192 / 16
    assert work(by_warpgroups(warps_n=4)).products == 8192 / 16
    amount = bound(estimate(plan, m=4096), "P tensor").amount
    by_warps = replace(plan, compute="mma", tiling=LARGE)
    assert amount == bound(estimate(by_warps, m=4096), "P tensor").amount


@pytest.mark.parametrize("token_tiles, tera", [(2, 468), (4, 800), (8, 872), (16, 903), (32, 924)])
def test_rate_of_a_warpgroup_grows_with_its_tokens(token_tiles, tera):
    ceiling = bound(estimate(by_warpgroups(4, token_tiles), m=512), "P tensor")
    assert ceiling.per_us == pytest.approx(tera * 1e6 / 132)


def test_four_warps_issue_one_product_of_a_warpgroup_and_read_no_fragments():
    plan = by_warpgroups()
    counted, steps, blocks, warps = work(plan), 8192 // 16, 8192 // 128, 8
    fit = FITS["ring"]
    overhead = steps * warps * fit.step_other * 32 + blocks * warps * 32 * fit.block_other
    other = counted.alu + counted.fma + counted.lsu + overhead
    assert counted.issue - other == pytest.approx(counted.products * 4 * 32)
    assert counted.alu > blocks * warps * 32 * fit.block_alu
    by_warps = work(replace(plan, compute="mma"))
    # ldmatrix.x4: two token tiles of a k16 step, 32 lanes, in each of the 8 warps
    assert by_warps.lsu - counted.lsu == steps * 8 * 16 / 2 * 32
    # the tensor core reads 16 k of every token for each product instead
    assert by_warps.shared_bytes - counted.shared_bytes == (
        steps * 8 * 16 / 2 * 32 * 16 - counted.products * 128 * 16 * 2
    )


def test_chain_of_a_warpgroup_is_one_wait_a_block():
    plan = by_warpgroups()
    cost = estimate(plan, m=128)
    busy = sum(b.us for b in cost.bounds[:4]) / (8 / SCHEDULERS)  # one CTA of 8 warps on an SM
    chain = bound(cost, "a warp's chain")
    assert cost.ctas <= H200.sms
    waits = 8192 // 128 * WARPGROUP_LATENCY
    assert chain.amount == pytest.approx(waits + busy * FITS["ring"].stalls * H200.clock_hz / 1e6)


def test_weights_are_read_again_where_l2_cannot_keep_them():
    small, large = a_plan(n=8192), a_plan(n=65536)
    assert bound(estimate(small, m=4096), "BW dram").amount < 2 * small.packing.nbytes + 2e8
    assert bound(estimate(large, m=4096), "BW dram").amount > 30 * large.packing.nbytes


def test_waves_round_up_and_each_refills():
    plan = a_plan()
    one, two = estimate(plan, m=128), estimate(plan, m=384)
    assert (one.ctas, one.waves, one.refill_us) == (64, 1, 0)
    assert (two.ctas, two.waves) == (192, 2)
    assert two.refill_us == pytest.approx(H200.cost.dram_latency_us / two.resident)


def test_estimate_is_the_sum_of_its_parts():
    cost = estimate(a_plan(), m=512)
    assert cost.us == pytest.approx(cost.launch_us + cost.ramp_us + cost.work_us + cost.refill_us)
    overlap = FITS["ring"].overlap
    norm = sum(b.us**overlap for b in cost.bounds) ** (1 / overlap)
    assert cost.work_us == pytest.approx(norm)
    assert cost.work_us >= cost.limit.us


def test_more_tokens_never_cost_less():
    times = [estimate(a_plan(), m=m).us for m in (1, 64, 128, 129, 512, 4096)]
    assert times == sorted(times)


def test_programmatic_launch_saves_the_ramp():
    # a CTA an SM, which has no room for the next kernel's
    plan = a_plan(m=1, n=132 * 32, family="skinny", tiling=Tiling(8, 1, 1, 2, 1))
    saved = estimate(plan).us - estimate(replace(plan, launch="pdl")).us
    ramps = H200.cost.ramp_us - H200.cost.pdl_ramp_us
    assert saved == pytest.approx(ramps - FITS["skinny"].pdl_start_us)


@pytest.mark.parametrize("ctas, busiest", [(132, 132), (224, 264), (256, 264), (448, 528)])
def test_uneven_shares_of_sms_slow_memory_under_programmatic_launch(ctas, busiest):
    plan = a_plan(m=1, n=ctas * 32, family="skinny", tiling=Tiling(4, 1, 1, 2, 1))
    plain, pdl = (estimate(replace(plan, launch=launch)) for launch in ("plain", "pdl"))
    slower = bound(pdl, "BW dram").us / bound(plain, "BW dram").us
    assert slower == pytest.approx(1 + FITS["skinny"].uneven * (busiest / ctas - 1))


def test_activations_wait_behind_weights_that_are_asked_for_too_early():
    """A CTA an SM, 16 KB a block of its rings: 64 KB on their way are enough."""
    plan = a_plan(m=1, n=132 * 32, k=16 * 1024, family="skinny", tiling=Tiling(8, 1, 1, 2, 1))
    queues = {depth: estimate(replace(plan, depth=depth)).queue_us for depth in (2, 5, 6, 8)}
    assert queues[2] == queues[5] == 0
    excess = 132 * 16 * 1024 / H200.dram_bytes_per_second * 1e6
    assert queues[6] == pytest.approx(FITS["skinny"].crowding * excess)
    assert queues[8] == pytest.approx(3 * queues[6])


def test_sums_of_a_token_in_registers_take_one_product_for_eight_steps():
    plan = a_plan(m=1, k=1024, family="skinny", tiling=Tiling(1, 1, 1, 2, 1), zero="sums", depth=2)
    blocks, steps = 8, 64
    assert work(replace(plan, access="vector")).products == steps * (2 + 1)
    assert work(replace(plan, access="column")).products == steps * 2 + blocks


def test_uneven_k_slices_wait_for_the_longest():
    even, odd = (
        work(a_plan(k=k, tiling=Tiling(4, 2, 1, 2, 2), zero="sums")).products
        for k in (8 * 128, 9 * 128)
    )
    assert odd == even * 12 / 8


def test_m_defaults_to_the_operators_then_to_the_most_of_the_range():
    assert estimate(a_plan(m=5)).m == 5
    assert estimate(a_plan(m_range=(17, 64))).m == 64
    assert estimate(a_plan()).m == 4096
    assert estimate(a_plan(m=0)).m == 1


def test_printed_arithmetic_holds_all_ceilings():
    text = str(estimate(a_plan(), m=512))
    for name in ("P tensor", "P_D alu", "P_D fma", "P_D lsu", "P_D issue", "BW shared", "BW l2"):
        assert name in text
    assert "us at M=512 = launch" in text


def test_summing_over_a_cluster_costs_by_the_bytes_that_leave_a_cta():
    alone = a_plan(m=256, family="specialised", tiling=Tiling(1, 8, 1, 1, 32), compute="wgmma")
    two = replace(alone, split=2)
    fit = FITS["specialised"]
    added = estimate(two).launch_us - estimate(alone).launch_us
    assert added == pytest.approx(128 * 256 * 4 / 2 / fit.exchange)


def test_loading_for_each_other_saves_nothing_that_counts():
    alone = a_plan(m=4096, family="specialised", tiling=Tiling(1, 8, 1, 1, 32), compute="wgmma")
    pairs = replace(alone, multicast=2)
    assert bound(estimate(pairs), "BW l2").amount == bound(estimate(alone), "BW l2").amount


def test_ctas_that_share_an_sm_read_weights_together():
    """Two rows of 256 channel tiles run at once where an SM holds two CTAs, and read the weights once."""
    plan = a_plan(n=8192, k=16384, m=256, family="specialised", tiling=Tiling(1, 4, 1, 1, 16))
    plan = replace(plan, compute="wgmma", depth=2)
    cost = estimate(plan)
    rows = cost.ctas // plan.channel_tiles
    assert (rows, cost.resident) == (2, 2)
    weights = plan.packing.nbytes
    assert weights > 0.7 * H200.l2_bytes
    assert bound(cost, "BW dram").amount < 1.5 * weights
