"""Every bar looks at rows that its suites measure, and says what the tracker says."""

from __future__ import annotations

import pytest

from benchmarks.bars import BARS
from benchmarks.grid import SUITES, grid
from benchmarks.verdicts import Table, judge

#: bars that look at rows of another suite too
BESIDE = {"prefill": ("decode", "prefill")}
#: peers that bars speak of
PEERS = ("cublas_fp16", "cublas_bf16", "cublaslt_fp8", "humming")


def test_every_suite_has_bars():
    assert set(BARS) == set(SUITES)


@pytest.fixture(scope="module")
def tables(made) -> dict[str, Table]:
    def table(suite: str) -> Table:
        cases = grid(*BESIDE.get(suite, (suite,)))
        return Table([made(case, 10.0, 8.0, **dict.fromkeys(PEERS, 10.0)) for case in cases])

    return {suite: table(suite) for suite in SUITES}


@pytest.mark.parametrize("suite", SUITES)
def test_no_bar_is_open_once_its_suites_were_measured(suite, tables):
    for bar in BARS[suite]:
        found = judge(bar, tables[suite])
        assert found.met is not None, bar.what
        assert found.measured == found.wanted, bar.what


def limits(suite: str, name: str) -> list[float]:
    return [bar.limit for bar in BARS[suite] if bar.name == name]


def test_limits_are_those_of_the_tracker():
    assert limits("decode", "B1")[::2] == [31.2, 31.2, 10.4, 9.6, 9.7, 3.2, 3.9]
    assert limits("decode", "B1")[1] == pytest.approx(1.06 * 32.57, abs=0.01)
    assert limits("decode", "B2") == [11.6, 35.5, 14.0, 42.0, 16.5, 50.0, 18.2, 56.0]
    assert sorted(set(limits("decode", "B3"))) == [1.0, 1.1, 1.25, 1.3, 1.9, 3.0]
    assert limits("prefill", "B1") == [1.03, 0.96, 1.03]
    assert set(limits("prefill", "B6")) == {1.10}
    assert set(limits("decode", "B5")) == {1.06, 1.10}


def test_lower_and_upper_limits_are_not_confused():
    for bars in BARS.values():
        for bar in bars:
            upper = "us" in bar.what.split(": ")[-1].split() or ": time" in bar.what
            assert bar.at_most is upper, bar.what
