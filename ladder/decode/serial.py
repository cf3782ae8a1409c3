"""Decode programs as JSON and back: ``load(dump(program)) == program``.

The form is short, because a package full of them is read at run time: constants are hexadecimal strings, an operation is
``[kind, dst, args, imm, fmt]``, a slot ``[relabel, first bit, ..]``, an affine map ``[alpha, beta]`` as text, a relabelling
that changes nothing its length.
"""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from typing import Any

from ladder.decode.program import Affine, Const, DecodeProgram, Op, Operand, Slot, Table
from ladder.errors import DecodeError

#: raised whenever the form below changes its meaning
FORMAT = "ladder.decode/1"

#: written only where it is not the default, so that programs of before it are read and written alike
_OPTIONAL = frozenset({"exhausted"})
_FIELDS = frozenset(f.name for f in fields(DecodeProgram) if f.init) - _OPTIONAL


def dump(program: DecodeProgram) -> dict[str, Any]:
    """A program as JSON's own types."""
    return {
        "format": FORMAT,
        "element": program.element,
        "bits": program.bits,
        "compute": program.compute,
        "form": program.form,
        "words": program.words,
        "steps": program.steps,
        "ops": [
            [op.kind, op.dst, [_write(x) for x in op.args], op.imm, op.fmt] for op in program.ops
        ],
        "outputs": program.outputs,
        "slots": [
            [[[s.relabel, *s.bits] for s in lanes] for lanes in step] for step in program.slots
        ],
        "relabels": [len(t) if isinstance(t, range) else t for t in program.relabels],
        "step_class": program.step_class,
        "affine": [[[str(a.alpha), str(a.beta)] for a in pair] for pair in program.affine],
        "table": [program.table.stride, *program.table.entries] if program.table else None,
        "undefined": program.undefined,
        "lossless": program.lossless,
        **({} if program.exhausted else {"exhausted": False}),
    }


def load(data: Any) -> DecodeProgram:
    """The program of :func:`dump`'s data.

    Raises:
        DecodeError: the data have another format, or are no program.
    """
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise DecodeError(
            f"no decode program of format {FORMAT}, but {found!r}", hint="write the data anew"
        )
    if set(data) - {"format"} - _OPTIONAL != _FIELDS:
        wrong = sorted(_FIELDS ^ (set(data) - {"format"} - _OPTIONAL))
        raise DecodeError(f"fields {wrong} are missing or unknown", at=data.get("element", ""))
    try:
        return _read(data)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise DecodeError(f"a field has another form: {error}", at=data["element"]) from error


def _read(data: dict[str, Any]) -> DecodeProgram:
    return DecodeProgram(
        element=str(data["element"]),
        bits=int(data["bits"]),
        compute=str(data["compute"]),
        form=str(data["form"]),
        words=int(data["words"]),
        steps=int(data["steps"]),
        ops=tuple(
            Op(kind, dst, tuple(_operand(x) for x in args), imm, fmt)
            for kind, dst, args, imm, fmt in data["ops"]
        ),
        outputs=tuple((int(a), int(b), int(c), int(d)) for a, b, c, d in data["outputs"]),
        slots=tuple(tuple(tuple(map(_slot, lanes)) for lanes in step) for step in data["slots"]),
        relabels=tuple(range(t) if isinstance(t, int) else tuple(t) for t in data["relabels"]),
        step_class=tuple(data["step_class"]),
        affine=tuple(tuple(map(_affine, row)) for row in data["affine"]),
        table=Table(tuple(data["table"][1:]), int(data["table"][0])) if data["table"] else None,
        undefined=tuple(data["undefined"]),
        lossless=bool(data["lossless"]),
        exhausted=bool(data.get("exhausted", True)),
    )


def _write(operand: Operand) -> int | str:
    return str(operand) if isinstance(operand, Const) else operand


def _operand(x: int | str) -> Operand:
    return Const(int(x, 16)) if isinstance(x, str) else int(x)


def _slot(data: list[int]) -> Slot:
    return Slot(tuple(data[1:]), data[0])


def _affine(data: list[str]) -> Affine:
    alpha, beta = data
    return Affine(Fraction(alpha), Fraction(beta))
