"""Instructions of a device as data: operands, meaning, emitted form, rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from ladder.errors import DeviceError
from ladder.ttile.fragments import Fragment
from ladder.ttile.tile import Tile, type_name

Kind = Literal["load", "compute", "store"]
KINDS: tuple[Kind, ...] = ("load", "compute", "store")

#: ``weight`` and ``activation`` are the inputs of a product, ``accumulator`` its output; a copy has ``source``, ``target``
Role = Literal["weight", "activation", "accumulator", "source", "target"]


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand.

    Attributes:
        role: what it is to the instruction, see :data:`Role`.
        tile: shape and type; a weight is [rows, k], an activation [tokens, k], an accumulator [rows, tokens].
        level: memory level that it lies in.
        fragment: which lane holds what, for operands in registers.
    """

    role: Role
    tile: Tile
    level: str = "register"
    fragment: Fragment | None = None

    def __str__(self) -> str:
        return f"{self.role} {self.tile} in {self.level}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a warp or warpgroup.

    Attributes:
        name: name within the device, for example ``mma.m16n8k16.float16``.
        kind: ``load``, ``compute`` or ``store``.
        operands: operands, inputs before outputs.
        semantics: name of its NumPy meaning in the intrinsics table.
        emits: opcode in PTX.
        threads: threads that issue it together, 32 or 128.
        per_second: multiply and add operations (compute) or bytes (load, store) per second of the whole
            device, or None where the memory level alone limits it.
        measured: whether the rate was measured, or is published or derived.
        needs: features of the device that it needs.
    """

    name: str
    kind: Kind
    operands: tuple[Operand, ...]
    semantics: str
    emits: str
    threads: int = 32
    per_second: float | None = None
    measured: bool = False
    needs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DeviceError(
                f"kind {self.kind!r} is none of {', '.join(KINDS)}", at=f"instruction {self.name}"
            )
        roles = [operand.role for operand in self.operands]
        if len(set(roles)) != len(roles):
            raise DeviceError(f"operands repeat a role: {roles}", at=f"instruction {self.name}")
        if self.kind == "compute" and not {"weight", "activation", "accumulator"} <= set(roles):
            raise DeviceError(
                "a compute instruction has operands weight, activation and accumulator",
                at=f"instruction {self.name}: {roles}",
            )

    def operand(self, role: Role) -> Operand:
        """The operand of a role.

        Raises:
            DeviceError: the instruction has none.
        """
        for operand in self.operands:
            if operand.role == role:
                return operand
        raise DeviceError(f"no operand {role}", at=f"instruction {self.name}")

    def type_of(self, role: Role) -> str | None:
        """Type name of the operand of a role, or None without one."""
        return next((type_name(o.tile.dtype) for o in self.operands if o.role == role), None)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, tokens and k of a compute instruction (m, n, k of PTX)."""
        rows, k = self.operand("weight").tile.shape
        return rows, self.operand("activation").tile.shape[0], k

    @property
    def operations(self) -> int:
        """Multiply and add operations of one compute instruction."""
        rows, tokens, k = self.shape
        return 2 * rows * tokens * k

    def with_(self, **changes: Any) -> Instruction:
        """A copy with some fields replaced."""
        return replace(self, **changes)

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}): " + ", ".join(str(o) for o in self.operands)
