"""Kinds of arguments: what fits, in which form it is handed on, and what an error says of the rest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ladder.checks import (
    MAPPING,
    PATH,
    TRUTH,
    Expected,
    accept,
    accept_fields,
    instance,
    integer,
    number,
    one_of,
    optional,
    refuse_unknown,
    several,
    shown,
    text,
)
from ladder.errors import PlanError, ShapeError


@pytest.mark.parametrize(
    "kind, given, form",
    [
        (integer(), 3, 3),
        (integer(0, 3), np.int64(3), 3),
        (integer(), np.uint8(255), 255),
        (number(), -1.5, -1.5),
        (number(above_zero=True), np.float32(0.5), 0.5),
        (number(), 7, 7),
        (TRUTH, np.bool_(True), True),
        (text(), "", ""),
        (PATH, "folder", Path("folder")),
        (PATH, Path(), Path()),
        (one_of(("a", "b")), "b", "b"),
        (optional(integer()), None, None),
        (optional(integer()), np.int8(1), 1),
        (several(integer(), "a pair", 2), [np.int64(1), 2], (1, 2)),
        (several(integer(), "integers"), (), ()),
        (instance(ShapeError), error := ShapeError("x"), error),
        (MAPPING, {"x": 1}, {"x": 1}),
    ],
)
def test_what_fits_is_handed_on_in_pythons_own_form(
    kind: Expected[object], given: object, form: object
) -> None:
    found = accept(given, kind, "x", at="here", error=PlanError)
    assert found == form
    assert type(found) is type(form)


@pytest.mark.parametrize(
    "kind, refused",
    [
        (integer(0, 3), (True, np.bool_(True), 1.0, "1", None, -1, 4, np.array(1), np.int64(4))),
        (number(), (True, float("nan"), float("inf"), "1", None, 1j, np.ones(2))),
        (number(above_zero=True), (0, -1, 0.0)),
        (TRUTH, (0, 1, None, "yes", np.ones(2), [])),
        (text(), (None, 3, b"x", np.array("x"), ["x"])),
        (PATH, ("", None, 3, "a\0b", b"x", ["x"])),
        (one_of(("a", "b")), ("c", None, ["a"], np.array(["a", "b"]))),
        (several(integer(), "a pair", 2), ((1,), (1, 2, 3), "12", {1, 2}, np.ones(2), (1, "2"))),
        (instance(ShapeError), (ShapeError, None, ValueError())),
        (MAPPING, (None, [], {1: 2}, "x")),
    ],
)
def test_what_does_not_fit_is_refused_with_what_was_found(
    kind: Expected[object], refused: tuple[object, ...]
) -> None:
    for given in refused:
        with pytest.raises(PlanError) as caught:
            accept(given, kind, "depth", at="here", error=PlanError)
        assert caught.value.what == f"depth is {shown(given)}, not {kind.wanted}"
        assert caught.value.at == "here"
        assert caught.value.hint


def test_the_hint_is_the_callers_the_kinds_or_asks_for_the_kind() -> None:
    def hint(kind: Expected[object], **given: str) -> str:
        with pytest.raises(PlanError) as caught:
            accept([], kind, "x", at="here", error=PlanError, **given)
        return caught.value.hint

    assert hint(text("one of a, b")) == "one of a, b"
    assert hint(text("one of a, b"), hint="read on") == "read on"
    assert hint(integer(1)) == "give an integer >= 1"


@pytest.mark.parametrize(
    "value, words",
    [
        (None, "None"),
        ("2", "'2'"),
        (True, "True"),
        (1 << 1000, "an integer of 1001 bits"),
        ("x" * 5000, "'" + "x" * 56 + "..."),
        (np.ones((2, 3), np.float16), "float16[2, 3]"),
        (np.float32(2), repr(np.float32(2))),
        ([1, 2, 3], "a list [1, 2, 3]"),
        (list(range(10**5)), "a list [0, 1, 2, 3, 4, 5, ...]"),
        (ShapeError, "the class ShapeError"),
        (Path("x"), f"a pathlib.{type(Path()).__name__}"),
        (len, "a builtin_function_or_method"),
    ],
)
def test_any_value_is_shown_in_a_few_words(value: object, words: str) -> None:
    assert shown(value) == words


@dataclass(frozen=True)
class Box:
    size: int
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds = {"size": integer(1), "names": several(text(), "texts")}
        accept_fields(self, kinds, at="Box", error=ShapeError)


def test_fields_of_a_frozen_value_are_brought_into_form() -> None:
    box = Box(np.int64(3), ["a"])  # type: ignore[arg-type]
    assert box == Box(3, ("a",))
    assert type(box.size) is int
    with pytest.raises(ShapeError, match="size is 0, not an integer >= 1"):
        Box(0)


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    refuse_unknown(["a"], ("a", "b"), "there is no", at="here", error=PlanError)
    with pytest.raises(PlanError) as caught:
        refuse_unknown(["z", "a", "y"], ("a", "b"), "there is no", at="here", error=PlanError)
    assert str(caught.value) == "there is no y, z\n  at: here\n  hint: there are: a, b"
