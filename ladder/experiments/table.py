"""Rows in files: CSV, or Parquet where pyarrow is installed; and sums over some of their columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from ladder.checks import PATH, accept, one_of, shown
from ladder.errors import ExperimentError
from ladder.experiments.row import COLUMNS, Row

PARQUET, CSV = ".parquet", ".csv"

#: column -> kinds of its values
_KINDS = {name: get_args(kind) or (kind,) for name, kind in get_type_hints(Row).items()}


def write(rows: Iterable[Row], file: str | Path) -> Path:
    """Write rows to a ``.csv`` or ``.parquet`` file, one line a point.

    Raises:
        ExperimentError: the file's name ends in something else, it cannot be written, or pyarrow is missing.
    """
    path = _path(file)
    found = list(rows)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == PARQUET:
            pyarrow, parquet = _arrow()
            parquet.write_table(pyarrow.table(_columns(found), schema=_schema(pyarrow)), path)
        else:
            path.write_text(as_csv(found), encoding="utf-8")
    except OSError as error:
        raise ExperimentError(
            f"rows cannot be written: {error}", at=str(path), hint="choose another file"
        ) from error
    return path


def read(file: str | Path) -> list[Row]:
    """Read what :func:`write` wrote.

    Raises:
        ExperimentError: the file cannot be read, or holds other columns.
    """
    path = _path(file)
    try:
        if path.suffix == PARQUET:
            _, parquet = _arrow()
            return [Row(**record) for record in parquet.read_table(path).to_pylist()]
        text = path.read_text(encoding="utf-8")
        reader = csv.DictReader(io.StringIO(text), strict=True)
        return [Row(**{name: _value(name, word) for name, word in line.items()}) for line in reader]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, csv.Error) as error:
        raise ExperimentError(
            f"rows cannot be read: {type(error).__name__}: {error}",
            at=str(path),
            hint="give a file that `ladder experiment --out` wrote",
        ) from error


def as_csv(rows: Iterable[Row]) -> str:
    """Rows as text, with a header; nothing where a value is None."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(row.as_dict())
    return text.getvalue()


def totals(
    rows: Iterable[Row], over: Sequence[str], value: str = "modelled_us"
) -> dict[tuple[Any, ...], float | None]:
    """Sums of a column: values of the columns ``over`` -> total; None where a row has no value.

    >>> totals(rows, ("device", "element", "m"))   # the layers of a model together

    Raises:
        ExperimentError: there is no such column.
    """
    unknown = [shown(name) for name in (*over, value) if not one_of(COLUMNS).fits(name)]
    if unknown:
        raise ExperimentError(
            f"rows have no column {', '.join(unknown)}", at="totals", hint=", ".join(COLUMNS)
        )
    found: dict[tuple[Any, ...], float | None] = {}
    for row in rows:
        key = tuple(getattr(row, name) for name in over)
        one, sofar = getattr(row, value), found.get(key, 0.0)
        found[key] = None if one is None or sofar is None else sofar + one
    return found


def _path(file: str | Path) -> Path:
    path = accept(file, PATH, "file", at="experiment", error=ExperimentError)
    if path.suffix not in (CSV, PARQUET):
        raise ExperimentError(
            f"rows are kept in {CSV} or {PARQUET} files", at=str(path), hint="name such a file"
        )
    return path


def _value(name: str, word: str) -> Any:
    kinds = _KINDS[name]
    if word == "" and type(None) in kinds:
        return None
    return next(kind for kind in kinds if kind is not type(None))(word)


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    return {name: [getattr(row, name) for row in rows] for name in COLUMNS}


def _schema(pyarrow: Any) -> Any:
    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    types = {field.name: _KINDS[field.name] for field in fields(Row)}
    return pyarrow.schema(
        [(name, next(kinds[kind] for kind in types[name] if kind in kinds)) for name in COLUMNS]
    )


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ExperimentError(
            f"Parquet files need pyarrow: {error}",
            at="ladder.experiments",
            hint="pip install 'ladder[parquet]', or name a .csv file",
        ) from error
    return pa, parquet
