"""The four primitives of tile transformation: slice, pad, map, convert (Ladder, OSDI'24, section 3.2)."""

from __future__ import annotations

from ladder.primitives.base import Cost, NoInverse, Primitive, Step, chain
from ladder.primitives.convert import Convert, fidelity
from ladder.primitives.map import Axes, Map
from ladder.primitives.pad import Pad, pad_groups
from ladder.primitives.slice import Slice

PRIMITIVES = (Slice, Pad, Map, Convert)

__all__ = [
    "PRIMITIVES",
    "Axes",
    "Convert",
    "Cost",
    "Map",
    "NoInverse",
    "Pad",
    "Primitive",
    "Slice",
    "Step",
    "chain",
    "fidelity",
    "pad_groups",
]
