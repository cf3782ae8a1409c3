"""Plans, packings and what they hold as JSON and back: ``load(dump(value)) == value``, and equal values give equal text.

Every frozen dataclass of the table :data:`CLASSES` becomes an object ``{"$": class name, field: value, ...}``; tuples
become lists; values that JSON lacks carry a tag too. A device travels by value, so that a plan for a user's own device can
be read where that device is unknown. Epilogue stages from outside the package go by module and name (``shop.Clamp``), are
found once their module is imported, and are read as the newest definition of that name: a module that is loaded again, or
a notebook's cell that is run again, defines them anew.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from ladder.checks import TEXT, accept, shown
from ladder.decode.program import Affine, Const, DecodeProgram, Op, Slot, Table
from ladder.errors import LadderError, PlanError
from ladder.graph.dequantize import Dequantize
from ladder.graph.epilogue import Activated, AddResidual, Coded, Gated
from ladder.graph.matmul import MatMul
from ladder.graph.quantize_activations import QuantizeActivations
from ladder.scheduler.dequantize_plan import DequantizePlan
from ladder.scheduler.epilogue import STAGES
from ladder.scheduler.packing import PACKING_VERSION, Packing
from ladder.scheduler.plan import Plan
from ladder.scheduler.planset import PlanSet
from ladder.scheduler.quantize_plan import QuantizePlan
from ladder.scheduler.single_plan import SinglePlan
from ladder.scheduler.stage import EpilogueStage
from ladder.scheduler.tiling import Tiling
from ladder.scheduler.verify import verify
from ladder.ttile import (
    CostConstants,
    Device,
    Fragment,
    Granule,
    Instruction,
    Layout,
    MemoryLevel,
    Operand,
    Tile,
)
from ladder.ttype import DENSE, ComputeType, Dense, GroupedType, TType

#: first line of the text; raised whenever a field changes its meaning
FORMATS = {
    Plan: "ladder.plan/1",
    PlanSet: "ladder.planset/1",
    Packing: "ladder.packing/1",
    QuantizePlan: "ladder.quantize_plan/1",
    DequantizePlan: "ladder.dequantize_plan/1",
}

_CLASSES: tuple[type, ...] = (
    *(Plan, PlanSet, Tiling, MatMul, Packing, DecodeProgram, Op, Const, Table, Slot, Affine),
    *(Device, CostConstants, MemoryLevel, Instruction, Operand, Fragment, Layout, Tile, Granule),
    *(GroupedType, ComputeType, Activated, Gated, AddResidual, Coded),
    *STAGES,
    *(QuantizeActivations, QuantizePlan, Dequantize, DequantizePlan),
)

#: dataclasses that may be written, by name
CLASSES: Mapping[str, type] = {cls.__name__: cls for cls in _CLASSES}

#: (class, field) -> the value with which a field is left out, so that texts of before it, and their digests, stay what they are
ADDED: Mapping[tuple[str, str], object] = {
    ("MatMul", "activation_scale"): False,
    ("MatMul", "epilogue"): (),
    ("Packing", "order"): "natural",
    ("Plan", "lookup"): "shared",
    ("Plan", "multicast"): 1,
}

TAG = "$"

WRITTEN = "give what to_json() wrote"
DAMAGED = "it was changed or damaged: write it again"

Json = Any
S = TypeVar("S", bound=SinglePlan)


def encode(value: Any) -> Json:
    """A value as JSON's own types.

    Raises:
        PlanError: a part of it has no form in JSON.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if np.isfinite(value) else _tagged("float", struct.pack(">d", value).hex())
        case tuple():
            return [encode(item) for item in value]
        case frozenset():
            return _tagged("set", [encode(item) for item in sorted(value)])
        case Fraction():
            return _tagged("fraction", str(value))
        case np.dtype():
            return _tagged("dtype", value.name)
        case range():
            return _tagged("range", len(value))
        case TType():
            return _encode_type(value)
    name = _name(type(value))
    if name is not None and is_dataclass(value):
        return _encode_device(value) if isinstance(value, Device) else _encode_fields(name, value)
    raise PlanError(
        f"{type(value).__name__} has no form in JSON",
        at=repr(value)[:80],
        hint="stages from outside are frozen dataclasses that derive from EpilogueStage",
    )


@lru_cache(maxsize=16)
def _encode_device(device: Device) -> Json:
    """Nine tenths of a plan's text, the same in every plan of a device; not to be written to."""
    return _encode_fields("Device", device)


def _encode_fields(name: str, value: Any, but: Container[str] = ()) -> Json:
    parts = {
        field.name: encode(getattr(value, field.name))
        for field in fields(value)
        if field.init
        and field.name not in but
        and not is_left_out(name, field.name, getattr(value, field.name))
    }
    return {TAG: name, **parts}


def is_left_out(cls: str, field: str, value: object) -> bool:
    """Whether a field was added after the first texts of its class, and holds what it meant before."""
    return (cls, field) in ADDED and ADDED[cls, field] == value


def decode(node: Json) -> Any:
    """The inverse of :func:`encode`.

    Raises:
        PlanError: a tag is unknown, or a class does not have the fields that were written.
    """
    if isinstance(node, list):
        return tuple(decode(item) for item in node)
    if not isinstance(node, dict):
        return node
    tag = str(node.get(TAG))
    if tag in _READ:
        return _READ[tag](node)
    cls = _class(tag)
    if cls is None:
        raise PlanError(
            f"unknown tag {tag!r}",
            at="plan JSON",
            hint="import the module that defines a stage of your own before reading its plans",
        )
    parts = {name: decode(part) for name, part in node.items() if name != TAG}
    if cls is Packing and parts.get("version") != PACKING_VERSION:
        raise PlanError(
            f"packing version {shown(parts.get('version'))}, this version packs by {PACKING_VERSION}",
            at="plan JSON",
            hint="schedule the operator again, and pack the weights again",
        )
    try:
        return cls(**parts)
    except (TypeError, LadderError) as error:
        what = error.what if isinstance(error, LadderError) else error
        raise PlanError(f"{tag} cannot be made: {what}", at="plan JSON", hint=DAMAGED) from error


def dump_plan(plan: Plan) -> str:
    """Stable text of a plan."""
    return _text(Plan, plan)


def load_plan(text: str) -> Plan:
    """Read :func:`dump_plan`'s text.

    Raises:
        PlanError: the text is no plan, or of another version.
    """
    plan: Plan = _value(Plan, text)
    with _reading(Plan):
        verify(plan)
    return plan


def dump_single(plan: SinglePlan) -> str:
    """Stable text of a plan of a kernel beside matmuls."""
    cls: type = type(plan)
    return _text(cls, plan)


def load_single(cls: type[S], text: str) -> S:
    """Read :func:`dump_single`'s text of a plan of one class.

    Raises:
        PlanError: the text is no such plan, or of another version.
    """
    plan: S = _value(cls, text)
    with _reading(cls):
        plan.verify()
    return plan


def dump_packing(packing: Packing) -> str:
    """Stable text of a packing."""
    return _text(Packing, packing)


def load_packing(text: str) -> Packing:
    """Read :func:`dump_packing`'s text.

    Raises:
        PlanError: the text is no packing, or of another version.
    """
    packing: Packing = _value(Packing, text)
    return packing


#: what all plans of a set share; written once
SHARED = ("op", "device", "packing")


def dump_planset(plans: PlanSet) -> str:
    """Stable text of a plan set: operator, device and packing once, then each plan's own decisions."""
    shared = {name: encode(getattr(plans, name)) for name in SHARED}
    own = [encode_own(plan) for plan in plans.plans]
    return json.dumps({"format": FORMATS[PlanSet], **shared, "plans": own}, separators=(",", ":"))


def load_planset(text: str) -> PlanSet:
    """Read :func:`dump_planset`'s text.

    Raises:
        PlanError: the text is no plan set, or of another version.
    """
    with _reading(PlanSet):
        document = _document(PlanSet, text)
        shared = {name: decode(document.get(name)) for name in SHARED}
        return PlanSet(tuple(decode_own(node, **shared) for node in document.get("plans", ())))


def encode_own(plan: Plan) -> Json:
    """A plan but for what it shares with other plans of its operator."""
    return _encode_fields("Plan", plan, but=SHARED)


def decode_own(node: Json, **shared: Any) -> Plan:
    """The plan that :func:`encode_own` wrote, of a given operator, device and packing.

    Raises:
        PlanError: the text is of another version, or the plan is not legal.
    """
    with _reading(Plan):
        plan: Plan = replace(decode({**node, **dict.fromkeys(SHARED)}), **shared)
        verify(plan)
    return plan


@lru_cache(maxsize=64)
def _text(cls: type, value: Any) -> str:
    return json.dumps({"format": FORMATS[cls], "value": encode(value)}, separators=(",", ":"))


def _value(cls: type, text: str) -> Any:
    with _reading(cls):
        value = decode(_document(cls, text).get("value"))
    if not isinstance(value, cls):
        raise PlanError(
            f"the text holds a {type(value).__name__}",
            at=f"reading a {cls.__name__}",
            hint=DAMAGED,
        )
    return value


#: what Python raises where a part of a text is of another kind than its class asks for
MISREAD = (
    TypeError,
    ValueError,
    KeyError,
    IndexError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    struct.error,
)


@contextmanager
def _reading(cls: type) -> Iterator[None]:
    """Turn whatever goes wrong in a text that was changed by hand into the one error that readers promise."""
    try:
        yield
    except MISREAD as error:
        raise PlanError(
            f"the text cannot be read: {type(error).__name__}: {error}",
            at=f"reading a {cls.__name__}",
            hint="it was changed or damaged: write it again; plan.with_(...) changes a plan",
        ) from error


def _document(cls: type, text: str) -> dict[str, Json]:
    accept(text, TEXT, "text", at=f"reading a {cls.__name__}", error=PlanError, hint=WRITTEN)
    try:
        document = json.loads(text)
    except ValueError as error:
        raise PlanError(
            f"the text is no JSON: {error}",
            at=f"reading a {cls.__name__}",
            hint=WRITTEN,
        ) from error
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMATS[cls]:
        raise PlanError(
            f"the text has format {found!r}, expected {FORMATS[cls]!r}",
            at=f"reading a {cls.__name__}",
            hint="write it again with this version",
        )
    return dict(document)


def _tagged(tag: str, of: str | int | list[Json]) -> Json:
    return {TAG: tag, "of": of}


def _encode_type(element: TType) -> Json:
    if isinstance(element, Dense):
        return _tagged("dense", element.name)
    values = [
        None if code in element.unused else encode(float(value))
        for code, value in enumerate(element.values)
    ]
    return {TAG: "type", "name": element.name, "bits": element.bits, "values": values}


def _decode_type(node: Json) -> TType:
    try:
        return TType(node["name"], node["bits"], [decode(value) for value in node["values"]])
    except (KeyError, TypeError, LadderError) as error:
        raise PlanError(
            f"the element type cannot be made: {error}",
            at="plan JSON",
            hint=DAMAGED,
        ) from error


def _decode_dtype(node: Json) -> np.dtype[Any]:
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, str(node["of"]), node["of"]))
    return dtype


_READ: Mapping[str, Any] = {
    "float": lambda node: struct.unpack(">d", bytes.fromhex(node["of"]))[0],
    "set": lambda node: frozenset(decode(item) for item in node["of"]),
    "fraction": lambda node: Fraction(node["of"]),
    "dtype": _decode_dtype,
    "range": lambda node: range(node["of"]),
    "dense": lambda node: DENSE[node["of"]],
    "type": _decode_type,
}


def _name(cls: type) -> str | None:
    """What a class is written as: by its name if it is in the table, an epilogue stage from outside with its module."""
    if CLASSES.get(cls.__name__) is cls:
        return cls.__name__
    return f"{cls.__module__}.{cls.__qualname__}" if issubclass(cls, EpilogueStage) else None


def _class(name: str) -> type | None:
    """A class of the table, or the newest epilogue stage of that module and name."""
    if name in CLASSES:
        return CLASSES[name]
    stages = [cls for cls in _subclasses(EpilogueStage) if _name(cls) == name]
    # Python lists the subclasses of a class in the order of their definitions.
    return stages[-1] if stages else None


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for derived in cls.__subclasses__():
        yield derived
        yield from _subclasses(derived)
