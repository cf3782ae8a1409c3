"""Errors carry what, at and hint; they print, pickle and form one family."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from ladder import errors
from ladder.errors import LadderError, ShapeError

KINDS = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, LadderError)
]


def test_prints_what_at_and_hint_on_lines_of_their_own() -> None:
    error = ShapeError(
        "slice ends at 20 on axis 1, which has 16 elements",
        at="slice(start=(0, 4), shape=(8, 16)) on uint4[8, 16]",
        hint="pad the tile first, or shorten the slice",
    )
    assert str(error) == (
        "slice ends at 20 on axis 1, which has 16 elements\n"
        "  at: slice(start=(0, 4), shape=(8, 16)) on uint4[8, 16]\n"
        "  hint: pad the tile first, or shorten the slice"
    )


def test_leaves_out_the_lines_that_it_has_nothing_for() -> None:
    assert str(ShapeError("extents differ")) == "extents differ"
    assert str(ShapeError("extents differ", hint="pad")) == "extents differ\n  hint: pad"
    assert str(ShapeError("extents differ", at=(3, 4))) == "extents differ\n  at: (3, 4)"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_crosses_process_borders_whole(kind: type[LadderError], protocol: int) -> None:
    error = kind("what", at="where", hint="do")
    for other in (pickle.loads(pickle.dumps(error, protocol)), copy.deepcopy(error)):
        assert type(other) is kind
        assert (other.what, other.at, other.hint) == ("what", "where", "do")
        assert str(other) == str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_caught_as_a_ladder_error_and_says_what_it_is_for(
    kind: type[LadderError],
) -> None:
    with pytest.raises(LadderError):
        raise kind("what")
    assert kind.__doc__
    assert kind.__doc__ != LadderError.__doc__ or kind is LadderError


def test_the_family_is_flat_so_that_one_except_clause_means_one_kind() -> None:
    assert {kind.__base__ for kind in KINDS} == {LadderError, Exception}
    assert len(KINDS) == 20
