"""Write the shipped programs anew: ``python -m ladder.decode.generate``.

Every element type of the catalogue is searched for both compute types; each program is proven before it is written. Beside
a program with several accumulator classes goes the cheapest one with a single class that reads the same words, and beside one
that finishes lanes by an fma the one for lanes that are scaled in registers.
Types whose values overflow a compute type have no program for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ladder.decode.derive import search_program
from ladder.decode.lanes import LANE_FORMATS
from ladder.decode.program import DecodeProgram
from ladder.decode.prove import prove
from ladder.decode.scaled import search_scaled
from ladder.decode.serial import FORMAT, dump
from ladder.decode.single import search_one_class
from ladder.decode.store import BESIDE, DATA, INDEX, digest
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
    beside: dict[str, dict[str, str]] = {kind: {} for kind in BESIDE}
    for element in elements():
        values = ValueSet.of(element)
        for compute in LANE_FORMATS:
            try:
                program = search_program(values, compute)
            except LosslessError:
                continue
            prove(program, element)
            key = digest(values, compute)
            others = {} if key in known else _beside(values, program)
            for kind, other in others.items():
                prove(other, element)
                beside[kind][key] = f"{compute}/{element.name}.{kind}.json"
                _put(folder / beside[kind][key], other)
            file = known.setdefault(key, f"{compute}/{element.name}.json")
            _put(folder / file, program)
    index = {
        "format": FORMAT,
        "programs": dict(sorted(known.items())),
        **{kind: dict(sorted(files.items())) for kind, files in beside.items()},
    }
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    return len(known)


def _beside(values: ValueSet, program: DecodeProgram) -> dict[str, DecodeProgram]:
    """Other programs for the same words, by their kind of :data:`~ladder.decode.store.BESIDE`."""
    found = {
        "one_class": search_one_class(values, program) if program.classes > 1 else None,
        "scaled": search_scaled(values, program),
    }
    return {kind: other for kind, other in found.items() if other is not None}


def _put(path: Path, program: DecodeProgram) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(dump(program)), encoding="utf-8")


def _text(data: dict[str, Any]) -> str:
    """One field a line: short, and a changed field shows as one changed line."""
    lines = (
        f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}"
        for key, value in data.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    write(DATA)
