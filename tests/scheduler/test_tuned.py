"""Measured plans are used where they fit, and announced and passed over where they do not."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field, replace

import pytest

from ladder.errors import ScheduleError
from ladder.graph.matmul import MatMul, matmul
from ladder.registry import devices, types
from ladder.scheduler import Plan, PlanSet, TunedPlan, choose_packing, rank, schedule, shortlist
from ladder.scheduler import tuned as module
from ladder.scheduler.tuned import decisions_of, identity, packing_identity, version
from ladder.ttype import TType

H200 = devices["h200"]
W4 = types["int4"].grouped(128, zero="integer")


def operator(m: int | None = 1, n: int = 512, k: int = 1024, **more) -> MatMul:
    return matmul(m, n, k, **{"activation": "float16", "weight": W4, **more})


def entry(op: MatMul, plan: Plan, **changed) -> TunedPlan:
    given = {
        "operator": identity(op),
        "device": plan.device.name,
        "arch": plan.device.arch,
        "version": version(),
        "packing": packing_identity(plan.packing),
        "decisions": decisions_of(plan),
        "us": 1.0,
        "source": "table.json",
    }
    return TunedPlan(**{**given, **changed})


def slowest(op: MatMul) -> Plan:
    """A legal plan that the search would not take."""
    return rank(op, H200, choose_packing(op, H200.features), (op.m, op.m)).ranked[-1][0]


@dataclass
class Table:
    """A database in memory; ``asked`` lists what was looked up."""

    entries: dict[tuple[str, str], list[TunedPlan]] = field(default_factory=dict)
    ms: tuple[int, ...] = ()
    asked: list[int | None] = field(default_factory=list)

    def add(self, op: MatMul, found: TunedPlan, launch: str = "plain") -> Table:
        self.entries.setdefault((identity(op), launch), []).append(found)
        self.ms = (*self.ms, op.m)
        return self

    def lookup(self, op, device, launch):
        self.asked.append(op.m)
        return self.entries.get((identity(op), launch), ())

    def tokens(self, op, device, launch):
        return self.ms


def test_a_measured_plan_is_taken() -> None:
    op = operator()
    plan = slowest(op)
    assert plan != schedule(op)
    assert schedule(op, tuned=Table().add(op, entry(op, plan))) == plan


def test_the_first_entry_that_fits_is_taken() -> None:
    op = operator()
    plan = slowest(op)
    table = Table().add(op, entry(op, plan, version="tuned/0")).add(op, entry(op, plan))
    with pytest.warns(RuntimeWarning, match="another version"):
        assert schedule(op, tuned=table) == plan


def test_without_an_entry_the_search_chooses_in_silence() -> None:
    op = operator()
    assert schedule(op, tuned=Table()) == schedule(op)


FOREIGN = {
    "operator": ("0" * 32, "another operator"),
    "device": ("h100", "another device: h100, here h200"),
    "arch": ("sm_90", "another architecture: sm_90, here sm_90a"),
    "version": ("tuned/1 plan/0 packing/1", "another version"),
    "packing": ("0" * 32, "another packing"),
    "decisions": ("{", "cannot be read"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_entry_is_a_miss_and_says_so(name: str) -> None:
    """C69: a config from another GPU, arch suffix or version is never used."""
    value, words = FOREIGN[name]
    op = operator()
    table = Table().add(op, entry(op, slowest(op), **{name: value}))
    with pytest.warns(RuntimeWarning, match="a tuned entry is not used") as caught:
        assert schedule(op, tuned=table) == schedule(op)
    (warning,) = caught
    assert words in str(warning.message)
    assert "table.json" in str(warning.message)
    assert warning.filename == __file__


def test_the_winner_of_k_128_is_not_used_for_k_126() -> None:
    """C69: vector copies are illegal for K = 126; the entry is refused by the shape at hand, not by its name."""
    weight = types["int4"].grouped("channel")
    wide, odd = operator(8, k=128, weight=weight), operator(8, k=126, weight=weight)
    winner = schedule(wide)
    assert winner.access == "vector"
    assert schedule(odd).access == "scalar"
    own_packing = packing_identity(schedule(odd).packing)
    for changed in ({}, {"operator": identity(odd), "packing": own_packing}):
        table = Table().add(odd, entry(wide, winner, **changed))
        with pytest.warns(RuntimeWarning, match="multiple of 8, not 126|another operator"):
            assert schedule(odd, tuned=table) == schedule(odd)


def test_m_7_does_not_get_the_entry_of_m_8() -> None:
    """C69: no rounding of M; 8 hits, 7 and 9 are chosen by the search."""
    eight = operator(8)
    table = Table().add(eight, entry(eight, slowest(eight)))
    assert schedule(eight, tuned=table) != schedule(eight)
    for m in (7, 9):
        assert schedule(operator(m), tuned=table) == schedule(operator(m))


def test_a_config_of_a_big_device_is_checked_against_the_limits_of_a_small_one() -> None:
    """C69: an entry that needs more shared memory than the device has is refused."""
    op = operator(256, 4096, 4096)
    ranked = rank(
        op, H200, choose_packing(op, H200.features), (256, 256), {"compute": "mma"}
    ).ranked
    small = devices["rtx4090"]
    large = next(plan for plan, _ in ranked if plan.shared_bytes > small.shared_bytes_per_block)
    packing = packing_identity(choose_packing(op, small.features))
    forged = entry(op, large, device=small.name, arch=small.arch, packing=packing)
    with pytest.warns(RuntimeWarning, match=r"shared \d+ B > \d+ B of a block"):
        assert schedule(op, small, tuned=Table().add(op, forged)) == schedule(op, small)


BAD_DECISIONS = {
    "unknown name": lambda d: {**d, "magic": 1},
    "missing name": lambda d: {k: v for k, v in d.items() if k != "tiling"},
    "wrong kind": lambda d: {**d, "depth": "four"},
    "not offered": lambda d: {**d, "family": "fast"},
    "no tiling": lambda d: {**d, "tiling": 3},
    "negative tiling": lambda d: {**d, "tiling": {**d["tiling"], "warps_k": -1}},
    "huge tiling": lambda d: {**d, "tiling": {**d["tiling"], "token_tiles": 10**9}},
    "unknown class": lambda d: {**d, "tiling": {"$": "os.system"}},
}


@pytest.mark.parametrize("name", BAD_DECISIONS)
def test_decisions_that_were_changed_by_hand_are_a_miss(name: str) -> None:
    """C69: a validator with hand-made bad entries."""
    op = operator()
    bad = json.dumps(BAD_DECISIONS[name](json.loads(decisions_of(slowest(op)))))
    with pytest.warns(RuntimeWarning, match="a tuned entry is not used"):
        found = schedule(op, tuned=Table().add(op, entry(op, slowest(op), decisions=bad)))
    assert found == schedule(op)


@pytest.mark.parametrize("text", ["[]", "null", "3", '"x"', ""])
def test_decisions_that_are_no_object_are_a_miss(text: str) -> None:
    op = operator()
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        schedule(op, tuned=Table().add(op, entry(op, slowest(op), decisions=text)))


def test_what_the_caller_fixed_wins() -> None:
    op = operator()
    plan = slowest(op)
    table = Table().add(op, entry(op, plan))
    other = {"skinny": "ring", "ring": "skinny"}[plan.family]
    assert schedule(op, tuned=table, family=other) == schedule(op, family=other)
    assert schedule(op, tuned=table, family=plan.family) == plan
    assert schedule(op, tuned=table, placement="shared").convert == "shared"
    assert schedule(op, tuned=table, epilogue=()) == schedule(op, epilogue=())


def test_entries_are_for_one_kind_of_launch() -> None:
    op = operator()
    plan = slowest(op)
    table = Table().add(op, entry(op, plan))
    assert schedule(op, tuned=table, launch="pdl") == schedule(op, launch="pdl")
    early = replace(plan, launch="pdl")
    table.add(op, entry(op, early), launch="pdl")
    assert schedule(op, tuned=table, launch="pdl") == early


def test_for_any_m_an_entry_ends_a_range() -> None:
    one = operator(1)
    plan = slowest(one)
    table = Table().add(one, entry(one, plan))
    found = schedule(operator(None), tuned=table)
    assert isinstance(found, PlanSet)
    assert [p.m_range for p in found][:2] == [(0, 1), (2, 8)]
    assert found.plan_for(1) == replace(plan, op=operator(None), m_range=(0, 1))
    plain = schedule(operator(None))
    assert decisions_of(found.plan_for(2)) == decisions_of(plain.plan_for(2))
    assert found.packing == plain.packing


def test_an_entry_must_be_legal_for_its_whole_range() -> None:
    """A skinny plan covers M with one CTA of 8 tokens: forged into an entry of M = 2048 it breaks that rule."""
    big = operator(2048)
    forged = entry(big, schedule(operator(1)), operator=identity(big))
    with pytest.warns(RuntimeWarning, match="skinny"):
        found = schedule(operator(None), tuned=Table().add(big, forged))
    assert found.plan_for(2048).check() == ()
    assert found.plan_for(2048).family == "specialised"


def test_measured_ranges_that_agree_share_a_kernel() -> None:
    table = Table()
    for m in (1, 4, 8):
        op = operator(m)
        table.add(op, entry(op, schedule(operator(8))))
    found = schedule(operator(None), tuned=table)
    assert found.plans[0].m_range[0] == 0
    assert found.plans[0].m_range[1] >= 8


def test_types_of_one_name_and_other_values_are_other_operators() -> None:
    one, other = (
        TType("mine", bits=3, values=[*range(7), last]).grouped(64) for last in (7.0, 8.0)
    )
    assert identity(operator(weight=one)) != identity(operator(weight=other))
    assert identity(operator(weight=one)) == identity(operator(weight=one))


@pytest.mark.parametrize(
    "changed", [{"m": 2}, {"n": 511}, {"k": 1152}, {"bias": True}, {"out": "float32"}]
)
def test_everything_about_an_operator_is_part_of_its_identity(changed: dict) -> None:
    assert identity(operator(**changed)) != identity(operator())


def test_the_shortlist_begins_with_the_untuned_choice_and_reads_one_packing() -> None:
    for m in (1, 16, 64, 256):
        op = operator(m, 4096, 4096)
        found = [plan for plan, _ in shortlist(op, "h200", 12)]
        assert found[0] == schedule(op)
        assert len(set(found)) == len(found) == 12
        assert {plan.packing for plan in found} == {schedule(operator(None, 4096, 4096)).packing}
        costs = [cost.us for _, cost in shortlist(op, "h200", 12)][1:]
        assert costs == sorted(costs)
    assert shortlist(op, "h200", 3) == shortlist(op, "h200", 12)[:3]
    assert {p.launch for p, _ in shortlist(op, "h200", 4, launch="pdl")} == {"pdl"}


@pytest.mark.parametrize("m, count", [(None, 12), (1, 0)])
def test_a_shortlist_is_for_one_m(m: int | None, count: int) -> None:
    with pytest.raises(ScheduleError, match="one M"):
        shortlist(operator(m), "h200", count)


def test_a_new_decision_of_a_plan_is_part_of_what_is_stored(monkeypatch) -> None:
    """Fields are derived from the plan, so that one that is added later is stored and compared, too."""
    stored = set(json.loads(decisions_of(slowest(operator()))))
    assert stored == set(Plan.__dataclass_fields__) - module.GIVEN
    assert "launch" in stored


def test_no_warning_where_nothing_is_wrong() -> None:
    op = operator()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule(op, tuned=Table().add(op, entry(op, slowest(op))))
