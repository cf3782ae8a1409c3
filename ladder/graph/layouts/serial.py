"""Layouts as JSON's own types and back."""

from __future__ import annotations

from typing import Any

from ladder.graph.extent import Extent, Symbolic
from ladder.graph.layouts.arrangement import Arrangement, arranged
from ladder.graph.layouts.solution import Conversion, Layouts, Note, Placement
from ladder.ttile.layout import Layout

Json = Any


def layouts_to_json(layouts: Layouts | None) -> Json:
    """A record of every field; None stays None."""
    if layouts is None:
        return None
    return {
        "device": layouts.device,
        "stored": [[name, _arrangement(one)] for name, one in layouts.stored],
        "read": [[node, place, _arrangement(one)] for node, place, one in layouts.read],
        "conversions": [
            [c.value, _arrangement(c.stored), _arrangement(c.wanted), list(c.readers), c.us, c.why]
            for c in layouts.conversions
        ],
        "placements": [[one.node, one.place, one.why] for one in layouts.placements],
        "notes": [[one.kind, one.at, one.text] for one in layouts.notes],
        "before": list(layouts.before),
        "us": layouts.us,
    }


def layouts_from_json(record: Json) -> Layouts | None:
    """The inverse of :func:`layouts_to_json`."""
    if record is None:
        return None
    kernels, us = record["before"]
    return Layouts(
        record["device"],
        tuple((name, _read(one)) for name, one in record["stored"]),
        tuple((node, place, _read(one)) for node, place, one in record["read"]),
        tuple(
            Conversion(value, _read(stored), _read(wanted), tuple(readers), cost, why)
            for value, stored, wanted, readers, cost, why in record["conversions"]
        ),
        tuple(Placement(*one) for one in record["placements"]),
        tuple(Note(*one) for one in record["notes"]),
        (kernels, us),
        record["us"],
    )


def _arrangement(one: Arrangement) -> Json:
    swizzle = one.swizzle
    return {
        "cut": [[_extent(extent) for extent in pieces] for pieces in one.cut],
        "order": list(one.order),
        "swizzle": None if swizzle is None else {"ins": swizzle.ins, "outs": swizzle.outs, "basis": swizzle.basis},
    }  # fmt: skip


def _read(record: Json) -> Arrangement:
    swizzle = record["swizzle"]
    return arranged(
        tuple(tuple(_extent_of(extent) for extent in pieces) for pieces in record["cut"]),
        tuple(record["order"]),
        None
        if swizzle is None
        else Layout(
            tuple((name, bits) for name, bits in swizzle["ins"]),
            tuple((name, bits) for name, bits in swizzle["outs"]),
            tuple(swizzle["basis"]),
        ),
    )


def _extent(extent: Extent) -> Json:
    return extent if isinstance(extent, int) else [[list(names), f] for names, f in extent.terms]


def _extent_of(record: Json) -> Extent:
    if isinstance(record, int):
        return record
    return Symbolic(tuple((tuple(names), factor) for names, factor in record))
