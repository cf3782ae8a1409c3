"""The report says which bars are met, keeps launches apart, and names what is bad."""

from __future__ import annotations

import pytest

from benchmarks import report, rows
from benchmarks.grid import Case
from benchmarks.rows import Machine, failed

MACHINE = Machine("NVIDIA H200", "580.1", "nvrtc 13", "abc", "python -m x", "2026-01-01")
SQUARE, TALL = (8192, 8192), (28672, 8192)


def case(shape=SQUARE, m=1, launch="plain", weight="int4", suite="decode") -> Case:
    return Case(weight, *shape, m, "float16", launch, suite=suite)


@pytest.fixture
def decode(made) -> list[dict]:
    return [
        made(case(), 12.0, 9.7, cublas_fp16=36.0, humming=16.8),
        made(case(launch="pdl"), 10.0, 9.7, cublas_fp16=36.0, humming=16.8),
        made(case(TALL), 33.0, 29.6, cublas_fp16=110.0),
        made(case(TALL, launch="pdl"), 31.5, 29.6, cublas_fp16=110.0),
    ]


def test_bars_are_counted_and_shown_with_what_was_found(decode):
    lines = report.bars(decode).splitlines()
    assert lines[0].startswith("## Bars: ")
    text = "\n".join(lines)
    assert "| decode B1 | int4 8192x8192 M=1 pdl: us | <= 10.4 (here 10.34) | 10 |" in text
    missed = next(line for line in lines if "int4 28672x8192 M=1 pdl: us" in line)
    assert missed.endswith("| 1/1 | NOT MET |")
    opened = next(line for line in lines if "33 MB and up" in line and "M=64" in line)
    assert opened.endswith("| 0/3 | open |")


def test_a_limit_that_this_gpu_reaches_is_said_to_be(made):
    slow = [made(case(TALL, launch="pdl"), 33.0, 1.1 * 29.63)]
    line = next(
        line for line in report.bars(slow).splitlines() if "int4 28672x8192 M=1 pdl" in line
    )
    assert "<= 31.2 (here 34.3)" in line
    assert line.endswith("NOT MET (met here) |")


def test_bars_are_those_of_the_suites_of_the_rows(made):
    found = [made(case(suite="prefill", m=256), 50.0, cublas_fp16=55.0)]
    assert {suite for suite, _ in report.verdicts(found)} == {"prefill"}


def test_means_are_over_shapes_and_say_how_many_had_a_value(decode):
    text = report.summary(decode)
    line = next(line for line in text.splitlines() if line.startswith("| int4 | float16 | plain"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:5] == ["int4", "float16", "plain", "1", "2"]
    assert float(cells[5]) == pytest.approx((3.0 * 110 / 33) ** 0.5, rel=2e-3)
    assert cells[6] == "1.4 (1)"


def test_launches_stand_in_tables_of_their_own_with_errors_and_floors(decode):
    text = report.summary(decode)
    plain = text.index("## decode, plain launches")
    pdl = text.index("## decode, pdl launches")
    assert plain < pdl
    row = next(line for line in text[plain:pdl].splitlines() if line.startswith("| int4 | 8192 "))
    wanted = "| int4 | 8192 | 8192 | 1 | float16 | 12.00 | 2.0e-04 | 1.0e-03 | 36.00 | 3.00 | 16.80 | 1.40 | 9.70 | 1.24 | 7.67 | 64 |"
    assert row.startswith(wanted)
    assert "| 35.65 | 7.67 | 9.70 | 79 |" in text


def test_the_summary_names_what_is_bad(decode):
    wrong = {**decode[0], "error": 0.5}
    text = report.summary([*decode[1:], wrong, failed(MACHINE, case(weight="nf4"), "no kernel")])
    assert "* 3 of 5 rows measured" in text
    assert "* int4 8192x8192 M=1 float16 plain: error above the bar" in text
    assert "* nf4 8192x8192 M=1 float16 plain: no kernel" in text
    assert report.summary([]) == "no rows\n"


def test_a_report_is_written_beside_its_results(decode, tmp_path, capsys):
    results = tmp_path / "h200.json"
    rows.write(results, decode)
    report.main(results, plots=False)
    assert (tmp_path / "h200.md").read_text() == report.summary(decode)
    assert capsys.readouterr().out == f"{results.with_suffix('.md')}\n"
