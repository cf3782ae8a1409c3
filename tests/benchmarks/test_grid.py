"""The grid holds what was promised, each case once, and filters take parts of it."""

from __future__ import annotations

import itertools

import pytest
import typer

import ladder
from benchmarks.bench import groups
from benchmarks.grid import (
    ACTIVATIONS,
    BFLOAT16,
    DECODE_FORMATS,
    PREFILL_FORMATS,
    SHAPES,
    SUITES,
    TOKENS,
    Case,
    asked,
    chosen,
    grid,
    parse_filter,
    select,
)
from benchmarks.weights import WEIGHTS, weight_bytes

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
    found = list(groups(grid()))
    assert len(found) == len(PROMISED) * len(SHAPES) * len(ACTIVATIONS)
    assert all({case.m for case in group} == set(TOKENS) for group in found)


@pytest.mark.parametrize("suites", [*itertools.combinations(SUITES, 1), ("decode", "prefill")])
def test_neighbours_share_a_packed_weight_and_then_a_shape(suites):
    cases = grid(*suites)
    assert len({case.packed for case in cases}) == len(list(groups(cases)))
    shapes = [shape for shape, _ in itertools.groupby(cases, lambda case: (case.n, case.k))]
    assert len(shapes) == len(set(shapes))
    assert len({(case.suite, case.name) for case in cases}) == len(cases)
    assert {case.suite for case in cases} == set(suites)


def test_the_decode_suite_has_the_shapes_and_formats_of_the_memory_limit():
    cases = grid("decode")
    main = {case for case in cases if (case.weight, case.activation) == ("int4", "float16")}
    shapes = {(28672, 8192), (8192, 28672), (8192, 8192), (14336, 4096), (4096, 14336)}
    shapes |= {(4096, 4096), (1024, 8192)}
    wanted = itertools.product(shapes, (1, 8, 16, 32, 64), ("plain", "pdl"))
    assert {((case.n, case.k), case.m, case.launch) for case in main} == set(wanted)
    others = {case for case in cases if case.weight != "int4" and case.activation == "float16"}
    assert {(case.n, case.k) for case in others} == {(8192, 8192), (28672, 8192)}
    assert {case.m for case in others} == {1, 16, 64}
    assert {case.weight for case in others} == {*DECODE_FORMATS, "int4_g32", "int4_g64"}
    assert {case.weight for case in cases if case.activation == "bfloat16"} == set(BFLOAT16)


def test_the_prefill_suite_has_the_shapes_and_formats_of_the_tensor_core_limit():
    cases = grid("prefill")
    assert {case.launch for case in cases} == {"plain"}
    int4 = {case for case in cases if case.weight == "int4"}
    assert {case.m for case in int4} == {128, 256, 512, 1024, 2048, 4096}
    assert len({(case.n, case.k) for case in int4}) == 6
    others = [case for case in cases if case.weight != "int4"]
    assert len(others) == 3 * len(PREFILL_FORMATS)
    assert {(case.n, case.k) for case in others} == {(8192, 8192)}


def test_the_sweep_asks_one_operator_for_every_m():
    cases = grid("sweep")
    assert [case.m for case in cases] == [*range(1, 65), *range(72, 513, 8)]
    assert len({case.artifact for case in cases}) == 1
    assert cases[0].operator.m is None
    assert len({case.name for case in cases}) == len(cases)


def test_the_dense_suite_multiplies_each_type_by_itself():
    cases = grid("dense")
    assert all(case.weight == case.activation == case.operator.out.name for case in cases)
    assert {(case.n, case.k) for case in cases} == {(case.n, case.k) for case in grid("prefill")}
    assert {case.m for case in cases} == {1, 16, 64, 256, 1024, 4096}
    assert len(cases) == 72


def test_random_codebooks_are_the_same_at_every_call_and_in_no_catalogue():
    for name, bits in (("codebook4", 4), ("codebook3", 3)):
        first, second = WEIGHTS[name](), WEIGHTS[name]()
        assert first == second
        assert first.bits == bits
        assert len(set(first.element.values)) == 2**bits
        assert name not in ladder.types


def test_weight_bytes_count_codes_scales_and_float16_zeros():
    assert weight_bytes(WEIGHTS["int4"](), 64, 256) == 64 * 256 // 2 + 64 * 2 * (2 + 2)
    assert weight_bytes(WEIGHTS["mxfp4"](), 64, 256) == 64 * 256 // 2 + 64 * 8
    assert weight_bytes(WEIGHTS["nvfp4"](), 64, 256) == 64 * 256 // 2 + 64 * 16
    assert weight_bytes(WEIGHTS["codebook3"](), 64, 256) == 64 * 256 * 3 // 8 + 64 * 2 * 2


def test_a_case_is_planned_with_its_launch_and_types():
    case = Case("int4", 256, 512, 1, "bfloat16", "pdl")
    plan = case.plan("h200")
    assert plan.launch == "pdl"
    assert plan.op.out.name == plan.op.activation.name == "bfloat16"
    assert plan.op.weight == case.type


def test_filters_all_hold():
    cases = select(grid(), parse_filter(["weight=int4,nf4", "m=1", "n=4096"]))
    assert {case.weight for case in cases} == {"int4", "nf4"}
    assert {case.m for case in cases} == {1}
    assert {case.n for case in cases} == {4096}


def test_quick_is_a_small_part_that_filters_narrow_further():
    quick = chosen([], quick=True)
    assert 0 < len(quick) < len(grid()) / 10
    assert {case.m for case in chosen(["m=256"], quick=True)} == {256}
    for suite in SUITES:
        assert 0 < len(chosen([], quick=True, suites=[suite])) < len(grid(suite)) / 4


def test_suites_are_chosen_together_and_filtered_by_name():
    both = chosen([], quick=False, suites=["prefill", "decode"])
    assert len(both) == len(grid("prefill")) + len(grid("decode"))
    assert chosen(["suite=decode"], quick=False, suites=["prefill", "decode"]) == select(
        both, {"suite": ("decode",)}
    )


def test_a_suite_that_is_unknown_and_a_choice_of_nothing_are_refused():
    with pytest.raises(ValueError, match="no suite 'dekode': one of base, decode"):
        chosen([], quick=False, suites=["dekode"])
    with pytest.raises(typer.BadParameter, match="no case of sweep fits m=1000"):
        asked(["m=1000"], quick=False, suites=["sweep"])
    with pytest.raises(typer.BadParameter, match="no filter"):
        asked(["colour=red"], quick=False, suites=["base"])


@pytest.mark.parametrize("term", ["int4", "colour=red", "m="])
def test_a_filter_that_means_nothing_is_refused(term):
    with pytest.raises(ValueError, match="no filter"):
        parse_filter([term])


def test_the_epilogue_suite_times_each_epilogue_beside_the_product_alone():
    cases = grid("epilogue")
    found = {(case.n, case.k, case.epilogue) for case in cases}
    gate, down = (57344, 8192), (8192, 28672)
    assert found == {(*gate, ""), (*gate, "silu_gate"), (*down, ""), (*down, "residual")}
    assert {case.m for case in cases} == {1, 32, 4096}
    assert {case.operator.out_n for case in cases if case.n == 57344} == {57344, 28672}
    assert len({case.artifact for case in cases}) == len(cases) == 20
    assert Case("int4", 64, 64, 1, "float16", epilogue="silu_gate+residual").operator.residual
