"""From decoded registers to a program, for all kinds of decode alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ladder.decode.build import Builder, packed_bits
from ladder.decode.form import Field, Form
from ladder.decode.fragment import Decoded, arrange
from ladder.decode.geometry import WORDS, steps_of
from ladder.decode.lanes import Lanes
from ladder.decode.program import Const, DecodeProgram, Op, Slot, Table
from ladder.decode.values import ValueSet
from ladder.errors import DecodeError

F = TypeVar("F", bound=Lanes)


@dataclass(frozen=True, slots=True)
class Target(Generic[F]):
    """What a program is made for: the values, the lane format, and whether the values are the declared ones."""

    values: ValueSet
    fmt: F
    lossless: bool = True

    @property
    def bits(self) -> int:
        """Width of a code."""
        return self.values.bits


def program_of(
    target: Target[Any],
    name: str,
    builder: Builder,
    registers: Sequence[Decoded],
    relabels: tuple[tuple[int, ...], ...],
    carried: frozenset[int] = frozenset(),
    table: Table | None = None,
) -> DecodeProgram:
    """The program of finished registers.

    Raises:
        DecodeError: the deferred maps of the registers fit no fragment.
    """
    fragment = arrange(registers)
    if fragment is None:
        raise DecodeError(
            "registers with equal factors do not come in pairs", at=target.values.name
        )
    return DecodeProgram(
        element=target.values.name,
        bits=target.bits,
        compute=target.fmt.name,
        form=name,
        words=WORDS[target.bits],
        steps=steps_of(target.bits, target.fmt.count),
        ops=needed(builder.ops, fragment.outputs),
        outputs=fragment.outputs,
        slots=fragment.slots,
        relabels=relabels,
        step_class=fragment.step_class,
        affine=fragment.affine,
        table=table,
        undefined=tuple(c for c in target.values.others if c not in carried),
        lossless=target.lossless,
    )


def needed(ops: Sequence[Op], outputs: Sequence[Sequence[int]]) -> tuple[Op, ...]:
    """The operations that some output rests on: where all codes have one value, no register that selects is read."""
    wanted = {register for step in outputs for register in step}
    kept = []
    for op in reversed(ops):
        if op.dst in wanted:
            kept.append(op)
            wanted |= {arg for arg in op.args if isinstance(arg, int)}
    return tuple(reversed(kept))


def mask_program(target: Target[Any], name: str, fields: Sequence[Field]) -> DecodeProgram:
    """The program of placed mask forms, with their fma where they have one."""
    builder = Builder(WORDS[target.bits], target.fmt.bits)
    builder.expect(fields)
    relabels = tuple(dict.fromkeys(field.form.stored for field in fields))
    registers = []
    for field in fields:
        register, places = builder.gather(field, Const(builder.spread(field.form.constant)))
        if field.form.fma:
            factor, addend = (Const(builder.spread(x)) for x in field.form.fma)
            register = builder.emit("fma", register, factor, addend, fmt=target.fmt.short)
        slots = lane_slots(field.form, places, relabels.index(field.form.stored), target.fmt.bits)
        registers.append(Decoded(register, slots, field.form.deferred, field.form.bare))
    carried = frozenset.intersection(*(frozenset(field.form.carried) for field in fields))
    return program_of(target, name, builder, registers, relabels, carried)


def lane_slots(
    form: Form, places: list[tuple[int, int]], relabel: int, lane_bits: int = 16
) -> tuple[Slot, ...]:
    """Slots of the codes of a register whose lanes are treated alike."""
    return tuple(
        Slot(packed_bits(places, form.positions, first), relabel)
        for first in range(0, 32, lane_bits)
    )
