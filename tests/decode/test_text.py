from __future__ import annotations

from fractions import Fraction

import pytest

from ladder.decode import table
from ladder.decode.derive import derive
from ladder.decode.program import Affine
from ladder.decode.text import affine, deferred, listing, number, pipes


@pytest.mark.parametrize(
    "name, compute",
    [
        *(
            ("int4", "float16"),
            ("nf3", "float16"),
            ("fp8_e4m3fn", "bfloat16"),
            ("uint2", "float16"),
        ),
        *(("int4", "int8"), ("int4", "fp8_e4m3fn"), ("fp4_e2m1", "fp8_e4m3fn")),
    ],
)
def test_listings(catalog, golden, name, compute):
    program = derive(catalog[name], compute)
    assert str(program) == listing(program)
    golden(f"decode/{name}-{compute}.txt", str(program) + "\n")


def test_every_operation_has_a_line(catalog):
    for name, element in catalog.items():
        if name != "e8m0":
            program = derive(element, "float16", features=frozenset({"cvt.e4m3x2"}))
            lines = listing(program).splitlines()
            assert sum(line.startswith("  r") for line in lines) == len(program.ops)
            assert sum(line.startswith("  step") for line in lines) == program.steps


def test_numbers_read_as_people_write_them():
    assert number(Fraction(2) ** 24) == "2^24"
    assert number(Fraction(1, 8)) == "2^-3"
    assert [number(Fraction(x)) for x in (1, 2, 8, 12)] == ["1", "2", "8", "12"]
    assert affine(Affine(Fraction(2) ** 20, Fraction(-8))) == "2^20*lane - 8"
    assert affine(Affine(Fraction(1), Fraction(1, 2))) == "lane + 1/2"


def test_what_is_deferred(catalog):
    assert deferred(derive(catalog["int4"], "float16")) == "2^20, 2^24; zero 8"
    assert deferred(derive(catalog["fp8_e5m2"], "float16")) == "nothing"
    assert pipes(derive(catalog["nf4"], "float16")) == "7 ALU + 4 LSU"


def test_the_page_of_the_docs_is_up_to_date_and_has_a_row_for_every_program(monkeypatch):
    programs = list(table.rows())
    monkeypatch.setattr(table, "rows", lambda: iter(programs))
    page = table.text()
    assert table.TARGET.read_text(encoding="utf-8") == page, "run python -m ladder.decode.table"
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) - 2 == len(programs)
    assert sum("| cvt |" in row for row in rows) == 1
