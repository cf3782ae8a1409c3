"""The way from a declared element type to its decode program."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ladder.decode.build import Builder, lane_slot
from ladder.decode.form import Field, Form, Piece
from ladder.decode.fragment import Decoded, arrange
from ladder.decode.geometry import STEPS, WORDS
from ladder.decode.lanes import LANE_FORMATS
from ladder.decode.program import LANE_ADDRESS, Affine, Const, DecodeProgram, Table
from ladder.errors import DecodeError


def derive(element, compute, *, features=frozenset()):
    bits = element.bits
    values = [Fraction(float(v)) for v in element.values]
    order = sorted(range(len(values)), key=lambda c: values[c])
    step = values[order[1]] - values[order[0]]
    linear = all(values[c] == values[order[0]] + i * step for i, c in enumerate(order))
    if linear and bits in (4, 8):
        return _linear(element, compute, order, values[order[0]], step)
    if bits == 4:
        return _pair(element, compute)
    raise DecodeError("not built yet", at=element.name)


def _linear(element, compute, order, low, step):
    bits, fmt = element.bits, LANE_FORMATS[compute]
    stored = [0] * len(order)
    for s, c in enumerate(order):
        stored[c] = s
    fields, unit = [], Fraction(1, 1 << (fmt.bias + fmt.mantissa - 1))
    for w in range(WORDS[bits]):
        for p, r in [(0, 0), (4, 0), (0, 8), (4, 8)] if bits == 4 else [(0, 0), (0, 8)]:
            alpha = step / (unit * (1 << p))
            affine, fma = Affine(alpha, low), None
            down = max(Fraction(1), step / unit / (1 << 127))
            if compute == "bfloat16":
                affine = Affine(down)
                fma = fmt.pattern(alpha / down), fmt.pattern(low / down)
            P = tuple(range(p, p + bits))
            fields.append(Field(Form(P, 0, tuple(stored), affine, fma), (Piece(w, r, ((1 << bits) - 1) << p),)))
    b = Builder(WORDS[bits])
    b.prepare(fields)
    regs = []
    for f in fields:
        reg, where = b.gather(f, Const(0))
        if f.form.fma:
            reg = b.emit("fma", reg, Const(b.spread(f.form.fma[0])), Const(b.spread(f.form.fma[1])), fmt=fmt.short)
        regs.append(Decoded(reg, tuple(lane_slot(where, f.form.positions, h, 0) for h in (0, 1)), f.form.deferred))
    frag = arrange(regs)
    return DecodeProgram(element.name, bits, compute, "subnormal", WORDS[bits], STEPS[bits], tuple(b.ops), frag.outputs, frag.slots, (tuple(stored),), frag.step_class, frag.affine)


def _pair(element, compute):
    fmt = LANE_FORMATS[compute]
    pats = [int(x) for x in fmt.patterns(fmt.round(np.asarray(element.values)))]
    entries = tuple(pats[i & 15] | pats[i >> 4] << 16 for i in range(256))
    P = tuple(range(7, 15))
    form = Form(P, 0, tuple(range(16)), Affine())
    fields = [Field(form, (Piece(w, r, 0x7F80),)) for w in range(4) for r in (0, 8, 16, 24)]
    b = Builder(4, lane_bits=32)
    b.prepare(fields)
    regs = []
    from ladder.decode.program import Slot
    for f in fields:
        a, where = b.gather(f, LANE_ADDRESS)
        reg = b.emit("lds", a)
        bits = [32 * w + (p - d) % 32 for (w, d), p in zip(where, P)]
        regs.append(Decoded(reg, (Slot(tuple(bits[:4])), Slot(tuple(bits[4:]))), Affine()))
    frag = arrange(regs)
    exact = all(fmt.round(np.float64(v)) == v for v in element.values)
    return DecodeProgram(element.name, 4, compute, "pair table", 4, 4, tuple(b.ops), frag.outputs, frag.slots, (tuple(range(16)),), frag.step_class, frag.affine, Table(entries), (), exact)
