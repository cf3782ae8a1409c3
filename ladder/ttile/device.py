"""tTile-device: a GPU as data. Levels, instructions, limits and rates; queries return data, never a yes to a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ladder.checks import (
    TEXT,
    TRUTH,
    Expected,
    accept,
    accept_fields,
    instance,
    integer,
    number,
    one_of,
    optional,
    refuse_unknown,
    several,
    shown,
)
from ladder.errors import DeviceError
from ladder.ttile.instruction import KINDS, Instruction, Kind
from ladder.ttile.memory import MemoryLevel
from ladder.ttile.tile import DType, type_name

#: level names that a device may have, outermost first
LEVELS = ("dram", "l2", "shared", "register")

#: most blocks of a grid along x, y, z on every device (CUDA C++ programming guide, "Compute Capabilities")
GRID_LIMITS = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostConstants:
    """Constants of the cost model that are fitted to a device, in microseconds.

    Attributes:
        launch_us: an empty kernel behind another one in a CUDA graph.
        ramp_us: what a plain launch adds before memory runs at its rate and after it stops.
        pdl_ramp_us: the same with programmatic dependent launch and weights prefetched.
        dram_latency_us: latency of one load from dram under load; latency x rate must be in flight.
        measured: whether they were measured on this device, or taken over from another one.
        refit: command that measures them again.
    """

    launch_us: float
    ramp_us: float
    pdl_ramp_us: float
    dram_latency_us: float
    measured: bool = False
    refit: str = ""

    def __post_init__(self) -> None:
        accept_fields(self, _CONSTANTS, at="CostConstants", error=DeviceError)


#: field -> what it has to be
_CONSTANTS: Mapping[str, Expected[Any]] = MappingProxyType(
    {
        **dict.fromkeys(("launch_us", "ramp_us", "pdl_ramp_us", "dram_latency_us"), number()),
        "measured": TRUTH,
        "refit": TEXT,
    }
)


def _pipes(value: Any) -> tuple[tuple[str, float], ...]:
    return tuple((pipe, rate) for pipe, rate in value)


def _are_pipes(value: object) -> bool:
    pair: tuple[Expected[Any], ...] = (TEXT, number(above_zero=True))
    return isinstance(value, (tuple, list)) and all(
        isinstance(item, (tuple, list))
        and len(item) == len(pair)
        and all(kind.fits(part) for kind, part in zip(pair, item, strict=True))
        for item in value
    )


KIND = optional(one_of(KINDS))
DTYPE: Expected[DType] = Expected(
    "a type or the name of one",
    lambda value: (
        value is None or isinstance(value, str) or isinstance(getattr(value, "name", None), str)
    ),
    lambda value: value,
)

#: field -> what it has to be
_DEVICE: Mapping[str, Expected[Any]] = MappingProxyType(
    {
        **dict.fromkeys(("name", "title", "arch"), TEXT),
        "capability": several(integer(0), "a pair of integers such as (9, 0)", 2),
        "clock_hz": number(above_zero=True),
        "levels": several(instance(MemoryLevel), "a tuple of MemoryLevel"),
        "instruction_set": several(instance(Instruction), "a tuple of Instruction"),
        "pipes": Expected(
            "a tuple of (name, lane instructions per clock and SM > 0)", _are_pipes, _pipes
        ),
        "features": Expected(
            "a set of texts",
            lambda value: (
                isinstance(value, (set, frozenset)) and all(isinstance(f, str) for f in value)
            ),
            frozenset,
            "ladder.ttile.isa.AMPERE, ADA and HOPPER are starting points",
        ),
        "cost": instance(CostConstants, "take those of the nearest shipped device"),
        **dict.fromkeys(
            (
                *("sms", "shared_bytes_per_block", "shared_bytes_per_sm", "warps_per_sm"),
                *("blocks_per_sm", "registers_per_sm", "registers_per_thread"),
                *("register_allocation", "threads_per_block"),
            ),
            integer(1, 2**40),
        ),
        "shared_bytes_reserved": integer(0, 2**40),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU.

    Attributes:
        name: registry name, for example ``h200``.
        title: name for people.
        arch: target of the CUDA compiler, for example ``sm_90a``.
        capability: compute capability, (9, 0).
        sms: streaming multiprocessors.
        clock_hz: clock that the rates were taken at.
        levels: memory levels, outermost first.
        instruction_set: all instructions, see :meth:`instructions`.
        pipes: ``(name, lane instructions per clock per SM)`` of alu, fma, lsu, tensor (m16n8k16), issue, ...
        features: what the architecture can do, for example ``cp.async``, ``wgmma``, ``cvt.e4m3x2``, ``pdl``.
        cost: fitted constants of the cost model.
        shared_bytes_per_block: most shared memory of one block, opted in.
        shared_bytes_per_sm: shared memory of one SM.
        shared_bytes_reserved: what the system takes of it for every block.
        registers_per_sm: 32-bit registers of one SM.
        registers_per_thread: most that one thread may have.
        register_allocation: registers are given to a warp in multiples of this.
        threads_per_block: most threads of one block.
        warps_per_sm: most resident warps of one SM.
        blocks_per_sm: most resident blocks of one SM.

    Raises:
        DeviceError: a field is of another kind, a limit is not positive, a level is unknown, repeated or out of
            order, names of instructions repeat, or an instruction needs a feature that the device lacks.
    """

    name: str
    title: str
    arch: str
    capability: tuple[int, int]
    sms: int
    clock_hz: float
    levels: tuple[MemoryLevel, ...]
    instruction_set: tuple[Instruction, ...]
    pipes: tuple[tuple[str, float], ...]
    features: frozenset[str]
    cost: CostConstants
    shared_bytes_per_block: int
    shared_bytes_per_sm: int
    warps_per_sm: int
    blocks_per_sm: int
    shared_bytes_reserved: int = 1024
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    register_allocation: int = 256
    threads_per_block: int = 1024

    def __post_init__(self) -> None:
        accept_fields(self, _DEVICE, at=f"device {self.name}", error=DeviceError)
        names = [level.name for level in self.levels]
        if names != [name for name in LEVELS if name in names]:
            raise DeviceError(
                f"levels {names} are not some of {list(LEVELS)} in that order",
                at=f"device {self.name}",
                hint="list each level once, outermost first",
            )
        known = [i.name for i in self.instruction_set]
        if repeated := sorted({n for n in known if known.count(n) > 1}):
            raise DeviceError(
                f"instructions repeat: {repeated}",
                at=f"device {self.name}",
                hint="list each instruction once",
            )
        for instruction in self.instruction_set:
            if missing := sorted(instruction.needs - self.features):
                raise DeviceError(
                    f"instruction {instruction.name} needs {', '.join(missing)}",
                    at=f"device {self.name}",
                    hint="add the feature to the device, or leave the instruction out",
                )
        if self.shared_bytes_per_block > self.shared_bytes_per_sm:
            raise DeviceError(
                f"a block may take {self.shared_bytes_per_block} B of "
                f"{self.shared_bytes_per_sm} B shared memory",
                at=f"device {self.name}",
                hint="shared_bytes_per_block is at most shared_bytes_per_sm",
            )

    # -- queries --------------------------------------------------------------------------------

    def level(self, name: str) -> MemoryLevel:
        """A memory level by name.

        Raises:
            DeviceError: the device has no such level.
        """
        for level in self.levels if TEXT.fits(name) else ():
            if level.name == name:
                return level
        raise DeviceError(
            f"no level {shown(name)}",
            at=f"device {self.name}",
            hint="levels: " + ", ".join(level.name for level in self.levels),
        )

    def instructions(
        self, *, kind: Kind | None = None, a: DType | None = None, w: DType | None = None
    ) -> tuple[Instruction, ...]:
        """Instructions of a kind whose activation has type ``a`` and whose weight has type ``w``, in listed order.

        Raises:
            DeviceError: the kind is none, or a type neither has a name nor is one.
        """
        at = f"device {self.name}"
        accept(kind, KIND, "kind", at=at, error=DeviceError)
        for name, dtype in (("a", a), ("w", w)):
            accept(dtype, DTYPE, name, at=at, error=DeviceError)
        wanted = {
            role: type_name(dtype)
            for role, dtype in (("activation", a), ("weight", w))
            if dtype is not None
        }
        return tuple(
            i
            for i in self.instruction_set
            if (kind is None or i.kind == kind)
            and all(i.type_of(role) == name for role, name in wanted.items())  # type: ignore[arg-type]
        )

    def instruction(self, name: str) -> Instruction:
        """An instruction by name.

        Raises:
            DeviceError: the device has no such instruction.
        """
        known = self.instruction_set if TEXT.fits(name) else ()
        for instruction in known:
            if instruction.name == name:
                return instruction
        raise DeviceError(
            f"no instruction {shown(name)}",
            at=f"device {self.name}",
            hint="instructions: " + ", ".join(i.name for i in self.instruction_set),
        )

    def has(self, *features: str) -> bool:
        """Whether the device has all of the features.

        Raises:
            DeviceError: a feature is no text.
        """
        if not all(isinstance(feature, str) for feature in features):
            raise DeviceError(
                f"features are texts, found {', '.join(map(shown, features))}",
                at=f"device {self.name}",
                hint='for example device.has("cp.async", "pdl")',
            )
        return self.features.issuperset(features)

    def pipe(self, name: str) -> float:
        """Lane instructions per clock per SM of a pipe.

        Raises:
            DeviceError: the device lists no such pipe.
        """
        for pipe, rate in self.pipes if TEXT.fits(name) else ():
            if pipe == name:
                return rate
        raise DeviceError(
            f"no pipe {shown(name)}",
            at=f"device {self.name}",
            hint="pipes: " + ", ".join(pipe for pipe, _ in self.pipes),
        )

    def pipe_per_second(self, name: str) -> float:
        """Lane instructions per second of a pipe on the whole device."""
        return self.pipe(name) * self.sms * self.clock_hz

    @property
    def dram_bytes_per_second(self) -> float:
        """Rate at which the whole device reads dram."""
        return self.level("dram").bytes_per_second

    @property
    def l2_bytes(self) -> int:
        """Bytes of the L2 cache."""
        return self.level("l2").nbytes

    def blocks_resident(self, *, threads: int, registers: int, shared_bytes: int) -> int:
        """Blocks that fit on one SM at once, 0 if one does not fit (CUDA occupancy rules).

        Args:
            threads: threads of a block.
            registers: registers of a thread.
            shared_bytes: shared memory of a block, static and dynamic.

        Raises:
            DeviceError: the block has no thread, or a count is no integer >= 0.
        """
        given = {"threads": threads, "registers": registers, "shared_bytes": shared_bytes}
        if not all(type(count) is int and count >= 0 for count in given.values()) or not threads:
            at = f"device {self.name}"
            for name, count in given.items():
                least = 1 if name == "threads" else 0
                accept(count, integer(least), name, at=at, error=DeviceError)
        warps = -(-threads // 32)
        if (
            threads > self.threads_per_block
            or registers > self.registers_per_thread
            or shared_bytes > self.shared_bytes_per_block
        ):
            return 0
        per_warp = _round_up(32 * max(registers, 1), self.register_allocation)
        # registers lie in four quarters of an SM, and a quarter takes whole warps
        warps_by_registers = self.registers_per_sm // 4 // per_warp * 4
        shared = _round_up(shared_bytes + self.shared_bytes_reserved, 128)
        return min(
            self.blocks_per_sm,
            self.warps_per_sm // warps,
            warps_by_registers // warps,
            self.shared_bytes_per_sm // shared,
        )

    def with_(self, **changes: Any) -> Device:
        """A copy with some fields replaced, checked again.

        Raises:
            DeviceError: a field is unknown, or the device contradicts itself.
        """
        known = self.__dataclass_fields__
        refuse_unknown(
            changes, known, "a device has no field", at="Device.with_", error=DeviceError
        )
        return replace(self, **changes)

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.title}, {self.arch}, {self.sms} SMs at {self.clock_hz / 1e9:.3g} GHz"
        ]
        lines += [f"  {level}" for level in self.levels]
        lines += [f"  {i.name}" for i in self.instruction_set]
        return "\n".join(lines)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
