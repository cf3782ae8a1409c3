"""What commands print, on a terminal, in a pipe and as JSON."""

from __future__ import annotations

import io
import json

import ml_dtypes
import numpy as np
import pytest

from ladder.cli.show import Screen, show
from ladder.errors import ShapeError

ROWS = [["int4", 4, -8.0, True], ["nf4", 4, -1.0, False], ["[red]x", 10, None, None]]
COLUMNS = ("name", "bits", "min", "exact")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(*, as_json: bool = False, terminal: bool = False) -> str:
    out = Terminal() if terminal else io.StringIO()
    screen = Screen(as_json=as_json, out=out)
    screen.data({"rows": 3})
    screen.text("types")
    screen.table(COLUMNS, ROWS)
    return out.getvalue()


def test_a_pipe_gets_aligned_plain_text() -> None:
    assert printed() == (
        "types\n"
        "name    bits  min  exact\n"
        "int4       4   -8  yes\n"
        "nf4        4   -1  no\n"
        "[red]x    10\n"
    )


def test_a_terminal_gets_the_same_cells_drawn_by_rich() -> None:
    text = printed(terminal=True)
    for row in ROWS:
        assert str(row[0]) in text  # markup in a cell is no markup
    assert "yes" in text


def test_json_is_the_only_thing_printed() -> None:
    assert json.loads(printed(as_json=True)) == {"rows": 3}


def test_json_spells_arrays_and_scalars_of_numpy() -> None:
    out = io.StringIO()
    value = {
        "a": np.arange(3, dtype=np.uint8),
        "b": np.float16(0.5),
        "c": {3, 1},
        "d": np.array([1.5], ml_dtypes.bfloat16),
        "e": ShapeError,
    }
    Screen(as_json=True, out=out).data(value)
    read = json.loads(out.getvalue())
    assert (read["a"], read["b"], read["c"], read["d"]) == ([0, 1, 2], 0.5, [1, 3], [1.5])
    assert "ShapeError" in read["e"]


def test_json_never_holds_what_json_does_not_know() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Screen(as_json=True, out=io.StringIO()).data(float("nan"))


def test_errors_print_as_what_at_and_hint(capsys: pytest.CaptureFixture[str]) -> None:
    error = ShapeError("k is 7", at="matmul", hint="pad it")
    Screen().error(error)
    assert capsys.readouterr().err == "ShapeError: k is 7\n  at: matmul\n  hint: pad it\n"
    Screen(as_json=True).error(error)
    assert json.loads(capsys.readouterr().err) == {
        "error": "ShapeError",
        "what": "k is 7",
        "at": "matmul",
        "hint": "pad it",
    }


def test_cells() -> None:
    assert [show(c) for c in (None, True, 3, 1 / 3, "x")] == ["", "yes", "3", "0.333333", "x"]


def test_work_is_not_announced_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen().working("compiling"):
        pass
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
