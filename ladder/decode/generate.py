"""Write the shipped programs anew: ``python -m ladder.decode.generate``.

Every element type of the catalogue is searched for both compute types; each program is proven before it is written.
Types whose values overflow a compute type have no program for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ladder.decode.derive import search_program
from ladder.decode.lanes import LANE_FORMATS
from ladder.decode.prove import prove
from ladder.decode.serial import FORMAT, dump
from ladder.decode.store import DATA, INDEX, digest
from ladder.decode.values import ValueSet
from ladder.errors import LosslessError
from ladder.registry import types
from ladder.ttype import TType


def elements() -> tuple[TType, ...]:
    """The element types of the catalogue, in its order."""
    return tuple(value for value in types.values() if isinstance(value, TType))


def write(folder: Path) -> int:
    """Write index and programs below ``folder``; returns the number of programs."""
    known: dict[str, str] = {}
    for element in elements():
        values = ValueSet.of(element)
        for compute in LANE_FORMATS:
            try:
                program = search_program(values, compute)
            except LosslessError:
                continue
            prove(program, element)
            file = known.setdefault(digest(values, compute), f"{compute}/{element.name}.json")
            (folder / compute).mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(_text(dump(program)), encoding="utf-8")
    index = {"format": FORMAT, "programs": dict(sorted(known.items()))}
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    return len(known)


def _text(data: dict[str, Any]) -> str:
    """One field a line: short, and a changed field shows as one changed line."""
    lines = (
        f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}"
        for key, value in data.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    write(DATA)
