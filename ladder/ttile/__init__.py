"""Tiles, layouts and devices: where numbers lie, and what a machine moves and computes at once."""

from __future__ import annotations

from ladder.ttile.device import CostConstants, Device
from ladder.ttile.device_file import load_device
from ladder.ttile.fragments import Fragment
from ladder.ttile.instruction import Instruction, Operand
from ladder.ttile.layout import Layout
from ladder.ttile.memory import MemoryLevel
from ladder.ttile.tile import Granule, NumberType, Tile, type_bits, type_name

__all__ = [
    "CostConstants",
    "Device",
    "Fragment",
    "Granule",
    "Instruction",
    "Layout",
    "MemoryLevel",
    "NumberType",
    "Operand",
    "Tile",
    "load_device",
    "type_bits",
    "type_name",
]
