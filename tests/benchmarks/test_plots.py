"""Plots show what the rows say: which points, which ceilings; and the same rows give the same file."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from benchmarks import plots, report
from benchmarks.grid import Case, chosen

SQUARE = (8192, 8192)


def case(m: int, launch: str = "plain", **other) -> Case:
    return Case("int4", *SQUARE, m, "float16", launch, **other)


@pytest.fixture
def some(made) -> list[dict]:
    return [
        made(case(16), 14.0, cublas_fp16=36.0),
        made(case(1), 12.0, cublas_fp16=38.0, humming=17.0),
        made(case(1, "pdl"), 10.0, cublas_fp16=38.0),
    ]


def test_series_are_in_order_of_m_and_peers_stand_once(some):
    found = plots.series(some, lambda _, us: us)
    assert found == {
        "plain": [(1, 12.0), (16, 14.0)],
        "pdl": [(1, 10.0)],
        "cublas_fp16": [(1, 38.0), (16, 36.0)],
        "humming": [(1, 17.0)],
    }


def test_ceilings_are_the_largest_bound_of_their_kind(some):
    found = plots.ceilings(some, lambda _, us: us)
    # the rows are made with memory at half, decode at most a third, tensor cores a hundredth of the time
    assert found["memory"] == [(1, 6.0), (16, 7.0)]
    assert found["decode"] == [(1, 4.0), (16, pytest.approx(14 / 3, abs=1e-3))]
    assert found["tensor cores"] == [(1, 0.12), (16, 0.14)]


def test_rates_count_two_operations_a_weight_and_token(some):
    assert plots.tera_ops(some[1], 12.0) == pytest.approx(2 * 8192 * 8192 / 12e-6 / 1e12)


def test_a_shape_with_one_m_has_no_curve(some, made):
    lone = made(Case("int4", 4096, 4096, 1, "float16"), 5.0)
    ranged = made(case(3, any_m=True), 5.0)
    assert list(plots.by_shape([*some, lone, ranged], any_m=False)) == [SQUARE]
    assert not plots.by_shape([*some, lone, ranged], any_m=True)


def test_shares_are_percent_of_the_bound_by_format_and_launch(some, made):
    other = made(Case("int8", *SQUARE, 1, "float16"), 30.0)
    found = plots.shares([*some, other], 1)
    assert set(found[SQUARE]) == {"int4", "int8"}
    assert found[SQUARE]["int4"]["pdl"] == pytest.approx(76.67, abs=0.01)
    assert not plots.shares(some, 16)


@pytest.mark.parametrize(
    "suite,names",
    [
        ("decode", ["roofline", "sweep", "formats"]),
        ("prefill", ["roofline", "sweep", "formats"]),
        ("sweep", ["sweep"]),
    ],
)
def test_a_suite_is_drawn_and_drawn_the_same(suite, names, made, tmp_path):
    pytest.importorskip("matplotlib")
    cases = chosen([], quick=True, suites=[suite])
    found = [made(each, 10.0 + each.m / 100, 9.0, cublas_fp16=30.0, humming=12.0) for each in cases]
    results = tmp_path / "h200.json"
    drawn = plots.draw(found, results)
    assert [path.name for path in drawn] == [f"h200-{name}.svg" for name in names]
    texts = [path.read_text() for path in drawn]
    assert all(ET.fromstring(text).tag.endswith("svg") for text in texts)
    written = report.write(results, found)
    assert [path.read_text() for path in written[1:]] == texts
    assert f"![h200-{names[0]}](h200-{names[0]}.svg)" in written[0].read_text()
