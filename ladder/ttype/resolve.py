"""From a name, or a type of another kind, to the kind of type that a place asks for."""

from __future__ import annotations

from collections.abc import Mapping

from ladder.checks import TEXT, shown
from ladder.errors import TypeDeclarationError
from ladder.registry import suggestion, types
from ladder.ttype.compute import COMPUTE_TYPES, ComputeType
from ladder.ttype.dense import DENSE
from ladder.ttype.element import TType
from ladder.ttype.group import GroupedType

_FNUZ = (
    "not in the catalogue: its bias is one larger than that of the format without uz, so that the same byte is half as"
    " much; declare it: TType('my_fnuz', 8, encoding=Float({exponent}, {mantissa}, bias={bias}, specials='fnuz')),"
    " Float from ladder.ttype.encoding"
)
_FILES = "a file format, not a number format, and no reader is offered: give its codes to ladder.Quantized"

#: names that stand for something else than what they resemble -> why there is no such type
NOT_OFFERED: Mapping[str, str] = {
    "float8_e4m3fnuz": _FNUZ.format(exponent=4, mantissa=3, bias=8),
    "fp8_e4m3fnuz": _FNUZ.format(exponent=4, mantissa=3, bias=8),
    "float8_e5m2fnuz": _FNUZ.format(exponent=5, mantissa=2, bias=16),
    "fp8_e5m2fnuz": _FNUZ.format(exponent=5, mantissa=2, bias=16),
    **dict.fromkeys(("gptq", "awq", "gguf", "bitsandbytes"), _FILES),
    "onnx": "a file format, not a number format: ladder.from_onnx reads such models, and keeps the codes of their weights;"
    " codes of your own go to ladder.Quantized",
}


def element_type(given: TType | ComputeType | str) -> TType:
    """An element, also by name: ``"int4"``; a compute type of 16 bits is a dense element.

    Raises:
        TypeDeclarationError: unknown name, or no element.
    """
    found = _element_or_other(given)
    if isinstance(found, TType):
        return found
    raise TypeDeclarationError(
        f"expected an element type, found {_shown(found)}",
        at=f"type {_shown(given)}",
        hint="int4, nf4 and fp6_e3m2 are elements",
    )


def weight_type(given: GroupedType | TType | ComputeType | str) -> GroupedType:
    """A grouped type, also by name; an element becomes a weight without scales, and so does float16 or bfloat16.

    Raises:
        TypeDeclarationError: unknown name, or nothing that weights can be made of.
    """
    found = _element_or_other(given)
    if isinstance(found, GroupedType):
        return found
    if isinstance(found, TType):
        return GroupedType(found, scale=None)
    raise TypeDeclarationError(
        f"expected an element or a grouped type for a weight, found {_shown(found)}",
        at=f"type {_shown(given)}",
        hint='for example ladder.types["int4"].grouped(128), or float16 for weights that are not quantised',
    )


def _element_or_other(given: object) -> object:
    """What a name stands for; a compute type that weights can have is the element of such a weight."""
    found = types[given] if isinstance(given, str) else given
    return DENSE.get(found.name, found) if isinstance(found, ComputeType) else found


def compute_type(given: ComputeType | str) -> ComputeType:
    """A compute type, also by name; ``"int8"`` is the compute type here, not the element.

    Raises:
        TypeDeclarationError: unknown name, or another kind of type.
    """
    if isinstance(given, ComputeType):
        return given
    by_name = {compute.name: compute for compute in COMPUTE_TYPES}
    name = types.aliases.get(given, given) if TEXT.fits(given) else ""
    if name in by_name:
        return by_name[name]
    raise TypeDeclarationError(
        f"unknown compute type {_shown(given)}",
        at="compute type",
        hint=suggestion(given if TEXT.fits(given) else "", tuple(by_name)),
    )


def _shown(found: object) -> str:
    """A type by its own words, anything else by what it is."""
    return str(found) if isinstance(found, (TType, GroupedType, ComputeType)) else shown(found)
