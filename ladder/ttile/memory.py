"""Memory levels of a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ladder.checks import TEXT, TRUTH, Expected, accept_fields, instance, integer, number
from ladder.errors import DeviceError
from ladder.ttile.tile import Tile

#: field -> what it has to be
_LEVEL: Mapping[str, Expected[Any]] = MappingProxyType(
    {
        "name": TEXT,
        "nbytes": integer(1),
        "bytes_per_second": number(above_zero=True),
        "transaction": instance(Tile),
        "measured": TRUTH,
    }
)


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """One level of the hierarchy.

    Attributes:
        name: ``dram``, ``l2``, ``shared`` or ``register``.
        nbytes: capacity; of the whole device for dram and l2, of one SM for shared and register.
        bytes_per_second: rate at which the whole device reads it.
        transaction: what one request moves; its dtype is the granularity.
        measured: whether the rate was measured, or is published or derived.
    """

    name: str
    nbytes: int
    bytes_per_second: float
    transaction: Tile
    measured: bool = False

    def __post_init__(self) -> None:
        accept_fields(self, _LEVEL, at=f"level {self.name}", error=DeviceError)

    def __str__(self) -> str:
        how = "measured" if self.measured else "published"
        return f"{self.name}: {self.nbytes} B, {self.bytes_per_second / 1e12:.3g} TB/s ({how})"
