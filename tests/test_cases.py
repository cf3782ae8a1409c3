"""``tests/CASES.md`` and the tests' docstrings say the same: which test carries which case."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = (TESTS / "CASES.md").read_text(encoding="utf-8")
CASE = re.compile(r"\bC\d\d\b")
NODE = re.compile(r"`([\w/]+\.py)::(\w+)`")
ROWS = {row.split("|")[1].strip(): row for row in TABLE.splitlines() if re.match(r"\| C\d\d ", row)}


def carried() -> Iterator[tuple[str, str, str]]:
    """(case, file, test) of every test whose docstring names a case."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for case in CASE.findall(ast.get_docstring(node) or ""):
                    yield case, path.relative_to(TESTS).as_posix(), node.name


def test_the_table_lists_the_tests_that_carry_a_case_and_no_others() -> None:
    listed = {(case, *node) for case, row in ROWS.items() for node in NODE.findall(row)}
    assert listed == set(carried())


def test_a_case_without_a_test_says_why() -> None:
    for case, row in ROWS.items():
        _, _, state, where, *_ = (cell.strip() for cell in row.split("|"))
        assert state in {"tested", "refused", "elsewhere", "none"}, case
        assert bool(NODE.search(row)) == (state in {"tested", "refused"}), case
        assert len(where) > 20, case


def test_cases_stand_in_order_and_once() -> None:
    found = [row[2:5] for row in TABLE.splitlines() if re.match(r"\| C\d\d ", row)]
    assert found == sorted(set(found))
