"""The grid holds what was promised, each case once, and filters take parts of it."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.bench import groups
from benchmarks.grid import (
    ACTIVATIONS,
    SHAPES,
    TOKENS,
    WEIGHTS,
    Case,
    chosen,
    grid,
    parse_filter,
    select,
)

PROMISED = ("int4", "nf4", "mxfp4", "int8", "fp8_e4m3fn", "int3", "int2", "int1")


def test_every_promised_case_occurs_once():
    cases = list(grid())
    assert len(set(cases)) == len(cases) == len({case.name for case in cases})
    plain = {case for case in cases if case.launch == "plain"}
    wanted = itertools.product(
        PROMISED,
        ((4096, 4096), (8192, 8192), (8192, 28672)),
        (1, 16, 64, 256),
        ("float16", "bfloat16"),
    )
    assert plain == {Case(weight, n, k, m, act) for weight, (n, k), m, act in wanted}
    assert {case.m for case in cases if case.launch == "pdl"} == {1, 16}


@pytest.mark.parametrize(
    "weight,group,scale,zero",
    [
        ("int4", 128, "float16", "integer"),
        ("nf4", 64, "float16", None),
        ("mxfp4", 32, "e8m0", None),
        ("int8", 128, "float16", None),
        ("fp8_e4m3fn", 128, "float16", None),
        ("int3", 128, "float16", None),
        ("int2", 128, "float16", None),
        ("int1", 128, "float16", None),
    ],
)
def test_the_weight_types_are_those_that_the_rows_say(weight, group, scale, zero):
    wt = WEIGHTS[weight]()
    assert (wt.group, wt.scale, wt.zero) == ((1, group), scale, zero)
    assert wt.element.name == {"mxfp4": "fp4_e2m1"}.get(weight, weight)


def test_cases_with_one_weight_are_neighbours():
    found = list(groups(list(grid())))
    assert len(found) == len(WEIGHTS) * len(SHAPES) * len(ACTIVATIONS)
    assert all({case.m for case in group} == set(TOKENS) for group in found)


def test_a_case_is_planned_with_its_launch_and_types():
    case = Case("int4", 256, 512, 1, "bfloat16", "pdl")
    plan = case.plan("h200")
    assert plan.launch == "pdl"
    assert plan.op.out.name == plan.op.activation.name == "bfloat16"
    assert plan.op.weight == case.type


def test_filters_all_hold():
    cases = select(tuple(grid()), parse_filter(["weight=int4,nf4", "m=1", "n=4096"]))
    assert {case.weight for case in cases} == {"int4", "nf4"}
    assert {case.m for case in cases} == {1}
    assert {case.n for case in cases} == {4096}


def test_quick_is_a_small_part_that_filters_narrow_further():
    quick = chosen([], quick=True)
    assert 0 < len(quick) < len(list(grid())) / 10
    assert {case.m for case in chosen(["m=256"], quick=True)} == {256}


@pytest.mark.parametrize("term", ["int4", "colour=red", "m="])
def test_a_filter_that_means_nothing_is_refused(term):
    with pytest.raises(ValueError, match="no filter"):
        parse_filter([term])
