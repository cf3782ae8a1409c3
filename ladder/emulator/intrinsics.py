"""Meanings of device functions: read from their own text, or from a table of names.

A device function whose text is one non-volatile PTX instruction means what that instruction means, so the text that the GPU runs
is the text that the emulator reads; of several instructions the name says what they do together:

    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));  -->  prmt(a, b, c)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ladder.codegen.semantics import MEANINGS
from ladder.emulator.alu import alu_function
from ladder.emulator.report import Fault


class Function(Protocol):
    """What a device function computes: one array over lanes for each argument -> the result over lanes."""

    def __call__(self, *arguments: Any) -> Any:
        """Compute; must not change its arguments."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """A function, and the dtype that each argument has to come in (None: as it is)."""

    function: Function
    carriers: tuple[str | None, ...] = ()


_ASM = re.compile(
    r'asm\s*(volatile)?\s*\(\s*"([^"]*)"\s*:([^:]*):([^:;]*)(?::[^;]*)?\)\s*;', re.DOTALL
)
_SIGNATURE = re.compile(r"(\w+)\s*\(([^)]*)\)\s*\{", re.DOTALL)
_BOUND = re.compile(r'"([=+]?)(\w)"\s*\(\s*([^)]+?)\s*\)')
#: constraint letter -> dtype that carries it
_LETTERS = {"r": "uint32", "h": "uint16", "f": "float32", "l": "uint64", "d": "float64"}


def meaning(name: str, text: str, table: Mapping[str, Function] | None = None) -> Meaning:
    """Return what device function ``name`` with CUDA text ``text`` computes.

    Args:
        name: of the function.
        text: its CUDA text.
        table: further meanings by name, asked first.

    Raises:
        Fault: ``unsupported`` when neither the text nor the name says it.
    """
    if table is not None and name in table:
        return Meaning(table[name])
    found, short = _ASM.search(text), name.removeprefix("ladder_")
    if found is not None and text.count("asm") == 1:
        body = found.group(2).strip()
        if not body:
            return Meaning(_same)
        if ";" not in body.rstrip(";") or short not in MEANINGS:
            return _from_asm(name, text, found)
    if short in MEANINGS:
        return Meaning(MEANINGS[short])
    raise Fault(
        f"unsupported: the text of device function {name!r} is not one PTX instruction",
        at=text[:200],
        hint="add its meaning to ladder/codegen/semantics.py under its name",
    )


def _same(value: Any) -> Any:
    """An empty instruction only keeps the compiler from moving code across it."""
    return value


def orders_only(text: str) -> bool:
    """Whether a device function's text is an empty instruction."""
    found = _ASM.search(text)
    return found is not None and text.count("asm") == 1 and not found.group(2).strip()


def _from_asm(name: str, text: str, found: re.Match[str]) -> Meaning:
    ptx = found.group(2).strip().rstrip(";").strip()
    if ";" in ptx:
        raise Fault(f"unsupported: device function {name!r} has several instructions", at=ptx)
    opcode, _, rest = ptx.partition(" ")
    function = alu_function(opcode)
    if function is None:
        raise Fault(f"unsupported: {opcode} in device function {name!r}", at=text[:200])
    bound = _BOUND.findall(found.group(3)) + _BOUND.findall(found.group(4))
    signature = _SIGNATURE.search(text)
    assert signature is not None
    order = [part.split()[-1].lstrip("*&") for part in signature.group(2).split(",") if part]
    sources = [_source(part.strip(), bound, order, name) for part in rest.split(",")[1:]]
    letters = {variable: letter for _, letter, variable in bound}
    carriers = tuple(_LETTERS.get(letters.get(argument, "")) for argument in order)
    return Meaning(_caller(function, sources), carriers)


def _source(
    part: str, bound: list[tuple[str, str, str]], order: list[str], name: str
) -> int | np.uint32:
    """An operand of the text: the position of an argument, or an immediate."""
    if part.startswith("%"):
        variable = bound[int(part[1:])][2]
        if variable in order:
            return order.index(variable)
    elif re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", part):
        number: np.uint32 = np.uint32(int(part.rstrip("U"), 0) & 0xFFFFFFFF)
        return number
    raise Fault(f"unsupported: operand {part} in device function {name!r}")


def _caller(function: Callable[..., Any], sources: list[int | np.uint32]) -> Callable[..., Any]:
    if sources == list(range(len(sources))) and all(isinstance(s, int) for s in sources):
        return function

    def call(*arguments: Any) -> Any:
        return function(*(arguments[s] if isinstance(s, int) else s for s in sources))

    return call
