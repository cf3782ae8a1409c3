"""Tables of rows: they come back as they were, and add up."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ladder
from ladder.errors import ExperimentError
from ladder.experiments import Row, Sweep, read, rows, totals, write


@pytest.fixture(scope="module")
def some() -> list[Row]:
    """Rows of all kinds: done, refused, measured."""
    found = list(
        rows(
            Sweep(
                shapes=[(128, 128), (256, 128)],
                weights=["int4"],
                groups=[20],
                ms=[1],
                placements=["global", "register"],
            )
        )
    )
    assert {row.status for row in found} == {"ok", "refused"}
    measured = replace(
        found[-1], measured_us=3.5, measured_error=1e-4, note='a "note", two lines\n'
    )
    return [*found[:-1], measured]


def test_rows_come_back_from_csv(some, tmp_path) -> None:
    path = write(some, tmp_path / "new" / "rows.csv")
    assert read(path) == some
    header, *lines = path.read_text("utf-8").splitlines()
    assert header.startswith("experiment,device,n,k,m,weight,")
    assert len(lines) >= len(some)


def test_rows_come_back_from_parquet(some, tmp_path) -> None:
    pytest.importorskip("pyarrow")
    assert read(write(some, tmp_path / "rows.parquet")) == some
    assert read(write([], tmp_path / "none.parquet")) == []


def test_parquet_without_pyarrow_says_what_to_do(some, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ExperimentError, match="need pyarrow") as caught:
        write(some, tmp_path / "rows.parquet")
    assert ".csv" in caught.value.hint


@pytest.mark.parametrize(
    "content",
    [None, "", "a,b\n1,2\n", b"\xff\xfe", "experiment,device\nx\n"],
    ids=["missing", "empty", "other columns", "no text", "cut"],
)
def test_a_damaged_file_is_refused(content, tmp_path) -> None:
    path = tmp_path / "rows.csv"
    if isinstance(content, str):
        path.write_text(content, "utf-8")
    elif content is not None:
        path.write_bytes(content)
    if content == "":
        assert read(path) == []
        return
    with pytest.raises(ExperimentError, match="rows cannot be read") as caught:
        read(path)
    assert caught.value.hint


def test_a_number_that_is_none_is_refused(some, tmp_path) -> None:
    path = write(some[:1], tmp_path / "rows.csv")
    path.write_text(path.read_text("utf-8").replace(",128,128,", ",many,128,"), "utf-8")
    with pytest.raises(ExperimentError, match="many"):
        read(path)


def test_files_of_other_kinds_are_refused(some, tmp_path) -> None:
    with pytest.raises(ExperimentError, match=r"\.csv or \.parquet"):
        write(some, tmp_path / "rows.txt")
    with pytest.raises(ExperimentError, match="file is 3"):
        write(some, 3)
    (tmp_path / "file").touch()
    with pytest.raises(ExperimentError, match="rows cannot be written"):
        write(some, tmp_path / "file" / "rows.csv")


def test_totals_add_up_and_miss_what_a_row_misses(some) -> None:
    found = totals(some, ("placement",))
    register = [row.modelled_us for row in some if row.placement == "register"]
    assert found == {("global",): None, ("register",): pytest.approx(sum(register))}
    assert totals(some, ("n",), "weight_bytes")[128,] is None
    with pytest.raises(ExperimentError, match="no column 'colour'"):
        totals(some, ("colour",))


def test_version_is_that_of_the_package(some) -> None:
    assert {row.ladder for row in some} == {ladder.__version__}
