"""Arguments of public functions, checked in one way: kinds as data, and an error that says what was found instead.

    DEPTH = integer(2)
    depth = accept(given, DEPTH, "depth", at="schedule(depth=...)", error=ScheduleError)
    # '3' -> ScheduleError: depth is '3', not an integer >= 2; numpy.int64(3) -> 3

A kind says whether a value is one of it, and turns such a value into Python's own form (an integer of NumPy into an int,
a list into a tuple), so that everything behind the check meets one form only.
"""

from __future__ import annotations

import math
import os
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from ladder.errors import LadderError

T = TypeVar("T")

#: bits of an integer that is still printed in digits (Python refuses to print some thousands of digits)
PRINTED_BITS = 256
LARGEST = sys.float_info.max
#: characters of a value that an error quotes
QUOTED = 60


@dataclass(frozen=True, slots=True)
class Expected(Generic[T]):
    """What an argument has to be.

    Attributes:
        wanted: in words, for example ``an integer >= 2``.
        fits: whether a value is one.
        form: such a value in Python's own form.
        hint: what to do where it is not.
    """

    wanted: str
    fits: Callable[[Any], bool]
    form: Callable[[Any], T]
    hint: str = ""


def accept(
    given: object,
    kind: Expected[T],
    name: str,
    *,
    at: object,
    error: type[LadderError],
    hint: str = "",
) -> T:
    """``given`` in the form of its kind.

    Args:
        given: what the caller passed.
        kind: what it has to be.
        name: of the argument, as the caller spells it.
        at: where it was passed.
        error: type of the error.
        hint: in place of the kind's own; without either, the error asks for what is wanted.

    Raises:
        LadderError: (of type ``error``) it is something else.
    """
    if not kind.fits(given):
        raise error(
            f"{name} is {shown(given)}, not {kind.wanted}",
            at=at,
            hint=hint or kind.hint or f"give {kind.wanted}",
        )
    return kind.form(given)


def accept_fields(
    value: object, kinds: Mapping[str, Expected[Any]], *, at: object, error: type[LadderError]
) -> None:
    """Bring the fields of a frozen dataclass into the forms of their kinds; for its ``__post_init__``.

    Raises:
        LadderError: (of type ``error``) a field is something else.
    """
    for name, kind in kinds.items():
        found = accept(getattr(value, name), kind, name, at=at, error=error)
        object.__setattr__(value, name, found)


def refuse_unknown(
    given: Iterable[object],
    known: Iterable[str],
    what: str,
    *,
    at: object,
    error: type[LadderError],
) -> None:
    """Refuse names that are not known: ``a plan has no decision colour``.

    Raises:
        LadderError: (of type ``error``) with all unknown names, and the known ones.
    """
    names = list(known)
    unknown = sorted(str(name) for name in given if name not in names)
    if unknown:
        raise error(f"{what} {', '.join(unknown)}", at=at, hint=f"there are: {', '.join(names)}")


def shown(value: object) -> str:
    """A value in a few words, whatever it is: quoted where it is short, else by type and shape."""
    if isinstance(value, int) and value.bit_length() > PRINTED_BITS:
        return f"an integer of {value.bit_length()} bits"
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return _clipped(repr(value))
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape == () and not hasattr(value, "__setitem__"):  # a scalar of NumPy
        return _clipped(repr(value))
    if isinstance(shape, tuple) and dtype is not None:
        array = f"{dtype}{list(shape)}"
        kind = _type_name(value)
        return array if kind == "numpy.ndarray" else f"a {kind} {array}"
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return f"a {type(value).__name__} {_clipped(reprlib.repr(value))}"
    if is_dataclass(value) and len(text := repr(value)) <= 2 * QUOTED:
        return text
    return f"a {_type_name(value)}"


def _type_name(value: object) -> str:
    module, _, _ = type(value).__module__.partition(".")
    name = type(value).__qualname__
    return name if module in ("builtins", "ladder", "__main__") else f"{module}.{name}"


def _clipped(text: str) -> str:
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 3]}..."


# -- kinds ----------------------------------------------------------------------------------------------------------


def is_integer(value: object) -> bool:
    """Whether a value counts as a whole number: int and NumPy's integers, but no truth value."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def integer(least: int | None = None, most: int | None = None) -> Expected[int]:
    """Whole numbers from ``least`` to ``most``, both included; None sets no limit."""
    limits = {
        (False, False): "an integer",
        (True, False): f"an integer >= {least}",
        (False, True): f"an integer <= {most}",
        (True, True): f"an integer in {least} .. {most}",
    }
    return Expected(
        limits[least is not None, most is not None],
        lambda value: (
            is_integer(value)
            and (least is None or value >= least)
            and (most is None or value <= most)
        ),
        int,
    )


def _is_number(value: object) -> bool:
    if is_integer(value):
        return abs(int(cast("int", value))) <= LARGEST  # compared: no float may hold it
    return type(value) is not bool and isinstance(value, Real) and math.isfinite(value)


def number(*, above_zero: bool = False) -> Expected[float]:
    """Finite real numbers, or those above zero; a Python number stays as it is."""
    return Expected(
        "a finite number > 0" if above_zero else "a finite number",
        lambda value: _is_number(value) and (not above_zero or value > 0),
        lambda value: value if type(value) in (int, float) else float(value),
    )


def _is_truth(value: object) -> bool:
    kind = type(value)
    # NumPy's truth value is no bool, and called bool_ before NumPy 2
    return kind is bool or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"))


TRUTH: Expected[bool] = Expected("True or False", _is_truth, bool)


def text(hint: str = "") -> Expected[str]:
    """Any text."""
    return Expected("a text", lambda value: isinstance(value, str), str, hint)


TEXT = text()


def _is_path(value: object) -> bool:
    if not isinstance(value, (str, os.PathLike)):
        return False
    path = os.fspath(value)
    return isinstance(path, str) and path != "" and "\0" not in path


PATH: Expected[Path] = Expected(
    "the path of a file or folder", _is_path, Path, "a text such as 'k_proj', or a pathlib.Path"
)


def one_of(offered: Iterable[str]) -> Expected[str]:
    """One of some texts."""
    names = tuple(offered)
    return Expected(
        f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in names, str
    )


def instance(cls: type[T], hint: str = "") -> Expected[T]:
    """Values of a class of the package, taken as they are."""
    return Expected(
        f"a {cls.__name__}", lambda value: isinstance(value, cls), lambda value: value, hint
    )


def optional(kind: Expected[T]) -> Expected[T | None]:
    """None, or a value of a kind."""
    return Expected(
        f"{kind.wanted} or None",
        lambda value: value is None or kind.fits(value),
        lambda value: None if value is None else kind.form(value),
        kind.hint,
    )


def several(kind: Expected[T], wanted: str, count: int | None = None) -> Expected[tuple[T, ...]]:
    """A tuple or list of values of a kind, of a length or of any."""
    return Expected(
        wanted,
        lambda value: (
            isinstance(value, (tuple, list))
            and (count is None or len(value) == count)
            and all(kind.fits(item) for item in value)
        ),
        lambda value: tuple(kind.form(item) for item in value),
        kind.hint,
    )


MAPPING: Expected[Mapping[str, Any]] = Expected(
    "a mapping from name to array",
    lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value),
    lambda value: value,
    "kernel.pack(q) makes one",
)
