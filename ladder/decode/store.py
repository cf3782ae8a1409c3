"""Programs that come with the package, so that a known type costs no search.

``data/index.json`` leads from the digest of (values, compute type) to a file; a type of one's own with the
values of a shipped one finds it too. The files are written by ``python -m ladder.decode.generate``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ladder.decode.program import DecodeProgram
from ladder.decode.serial import FORMAT, load
from ladder.decode.values import ValueSet
from ladder.errors import DecodeError

DATA = Path(__file__).with_name("data")
INDEX = "index.json"
#: programs for the same words as another one: with one accumulator class, and for lanes that are scaled in registers
BESIDE = ("one_class", "scaled")

_HINT = "the installed package is damaged: install it anew, or run python -m ladder.decode.generate"


def digest(values: ValueSet, compute: str) -> str:
    """What a program depends on, as 20 hexadecimal digits."""
    parts = (
        str(values.bits),
        *(f"{code}={value}" for code, value in zip(values.codes, values.values, strict=True)),
        *(f"{code}={value}" for code, value in values.special),
        compute,
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


def shipped(values: ValueSet, compute: str) -> DecodeProgram | None:
    """The shipped program for these values, or None.

    Raises:
        DecodeError: the shipped data are damaged, or made by another version.
    """
    file = index().get(digest(values, compute))
    return None if file is None else load(read(DATA / file))


def shipped_beside(kind: str, values: ValueSet, compute: str) -> DecodeProgram | None:
    """The shipped program of a ``kind`` of :data:`BESIDE` for the words of the shipped program, or None."""
    file = index(kind).get(digest(values, compute))
    return None if file is None else load(read(DATA / file))


@lru_cache(maxsize=1 + len(BESIDE))
def index(kind: str = "programs") -> Mapping[str, str]:
    """Digest -> file below the data folder, of the ``programs`` or of a kind that stands beside them."""
    data = read(DATA / INDEX)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise DecodeError(
            f"shipped programs are not of format {FORMAT}", at=DATA / INDEX, hint=_HINT
        )
    programs: dict[str, str] = data[kind]
    return programs


def read(path: Path) -> Any:
    """The JSON of a data file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DecodeError(
            f"a shipped program cannot be read: {error}", at=path, hint=_HINT
        ) from error
