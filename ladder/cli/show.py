"""What commands print: tables by rich on a terminal, aligned plain text in a pipe, or one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from ladder.errors import LadderError

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Screen:
    """Where output goes and in which form.

    Attributes:
        as_json: whether exactly one JSON document is printed, and nothing for people.
        out: stream of results, or None for standard output as it is when something is printed.
    """

    as_json: bool = False
    out: TextIO | None = None

    @property
    def stream(self) -> TextIO:
        """The stream that results go to."""
        return self.out or sys.stdout

    @property
    def is_terminal(self) -> bool:
        """Whether a person is looking."""
        return not self.as_json and self.stream.isatty()

    def data(self, value: object) -> None:
        """Print a value as JSON, if that was asked for."""
        if self.as_json:
            self.stream.write(json.dumps(value, indent=2, allow_nan=False, default=plain) + "\n")

    def text(self, text: str = "") -> None:
        """Print lines for people as they are, never wrapped."""
        if not self.as_json:
            self.stream.write(f"{text}\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Print a table for people; numbers stand at the right."""
        if self.as_json:
            return
        cells = [[show(cell) for cell in row] for row in rows]
        right = [any(_is_number(row[i]) for row in rows) for i in range(len(columns))]
        if self.is_terminal:
            self._rich_table(columns, cells, right)
        else:
            self._plain_table(columns, cells, right)

    def _rich_table(
        self, columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]
    ) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for name, numeric in zip(columns, right, strict=True):
            table.add_column(name, justify="right" if numeric else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        Console(file=self.stream).print(table)

    def _plain_table(
        self, columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]
    ) -> None:
        lines = [list(columns), *cells]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        for line in lines:
            padded = (
                cell.rjust(width) if numeric else cell.ljust(width)
                for cell, width, numeric in zip(line, widths, right, strict=True)
            )
            self.stream.write("  ".join(padded).rstrip() + "\n")

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show that something takes a while; on a terminal only, and not in the results."""
        if not (self.is_terminal and sys.stderr.isatty()):
            yield
            return
        from rich.console import Console

        with Console(stderr=True).status(what):
            yield

    def done(self, what: str) -> None:
        """Say on standard error what is finished, where no terminal shows what goes on."""
        if not (self.is_terminal and sys.stderr.isatty()):
            sys.stderr.write(f"{what}\n")
            sys.stderr.flush()

    def error(self, error: LadderError) -> None:
        """Print an error to standard error: what, at and hint, or the same as JSON."""
        if self.as_json:
            fields = {
                "error": type(error).__name__,
                "what": error.what,
                "at": error.at,
                "hint": error.hint,
            }
            sys.stderr.write(json.dumps(fields) + "\n")
            return
        sys.stderr.write(f"{type(error).__name__}: {error}\n")


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def show(cell: Cell) -> str:
    """A cell as text: yes and no, six digits of a float, nothing for None."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def plain(value: Any) -> Any:
    """What JSON has no word for: arrays become lists, sets are sorted, other values are printed."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)
