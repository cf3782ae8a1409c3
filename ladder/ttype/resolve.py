"""From a name, or a type of another kind, to the kind of type that a place asks for."""

from __future__ import annotations

from ladder.errors import TypeDeclarationError
from ladder.registry import suggestion, types
from ladder.ttype.compute import COMPUTE_TYPES, ComputeType
from ladder.ttype.element import TType
from ladder.ttype.group import GroupedType


def element_type(given: TType | str) -> TType:
    """An element, also by name: ``"int4"``.

    Raises:
        TypeDeclarationError: unknown name, or no element.
    """
    found = types[given] if isinstance(given, str) else given
    if isinstance(found, TType):
        return found
    raise TypeDeclarationError(
        f"expected an element type, found {found}", hint="int4, nf4 and fp6_e3m2 are elements"
    )


def weight_type(given: GroupedType | TType | str) -> GroupedType:
    """A grouped type, also by name; an element becomes a weight without scales.

    Raises:
        TypeDeclarationError: unknown name, or nothing that weights can be made of.
    """
    found = types[given] if isinstance(given, str) else given
    if isinstance(found, GroupedType):
        return found
    if isinstance(found, TType):
        return GroupedType(found, scale=None)
    raise TypeDeclarationError(
        f"expected an element or a grouped type for a weight, found {found}",
        hint='for example ladder.types["int4"].grouped(128)',
    )


def compute_type(given: ComputeType | str) -> ComputeType:
    """A compute type, also by name; ``"int8"`` is the compute type here, not the element.

    Raises:
        TypeDeclarationError: unknown name, or another kind of type.
    """
    if isinstance(given, ComputeType):
        return given
    by_name = {compute.name: compute for compute in COMPUTE_TYPES}
    name = types.aliases.get(given, given)
    if name in by_name:
        return by_name[name]
    raise TypeDeclarationError(
        f"unknown compute type {given!r}", hint=suggestion(str(given), tuple(by_name))
    )
