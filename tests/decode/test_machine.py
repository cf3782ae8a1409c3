from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.decode import machine
from ladder.decode.derive import derive
from ladder.decode.lanes import BFLOAT16, FLOAT16, SHORT_FORMATS
from ladder.decode.program import LANE_ADDRESS, Op, Table
from ladder.errors import DecodeError

WORD = st.integers(0, 2**32 - 1)
RECORD = json.loads((Path(__file__).parent / "h200.json").read_text())


def words(*values):
    return [np.array([v], np.uint32) for v in values]


@given(WORD, WORD, WORD, st.integers(0, 255))
def test_lop3_follows_its_truth_table(a, b, c, table):
    got = int(machine.lop3(*words(a, b, c), table)[0])
    for bit in range(32):
        row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1
        assert got >> bit & 1 == table >> row & 1


@given(WORD, st.integers(0, 31))
def test_rotation_moves_each_bit(a, n):
    got = int(machine.rotate_left(*words(a), n)[0])
    assert [got >> (i + n) % 32 & 1 for i in range(32)] == [a >> i & 1 for i in range(32)]


@given(WORD, WORD, WORD)
def test_prmt_picks_bytes_and_replicates_signs(a, b, selector):
    source = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    want = 0
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = source[nibble & 7]
        want |= (byte if nibble < 8 else 255 * (byte >> 7)) << 8 * i
    assert int(machine.prmt(*words(a, b, selector))[0]) == want


def exact_fma(x, y, z, fmt):
    """The value of x*y + z rounded once, in rational numbers."""
    total = Fraction(x) * Fraction(y) + Fraction(z)
    if total == 0:
        return 0.0
    magnitude = abs(total)
    e = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    e -= magnitude < Fraction(2) ** e
    quantum = Fraction(2) ** (max(e, 1 - fmt.bias) - fmt.mantissa)
    steps, rest = divmod(magnitude, quantum)
    steps += rest * 2 > quantum or (rest * 2 == quantum and steps % 2)
    size = float(steps * quantum)
    size = np.inf if size > fmt.max else size
    return size if total > 0 else -size


@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16], ids=str)
def test_fma_rounds_once(fmt):
    rng = np.random.default_rng(3)
    finite = np.flatnonzero(np.isfinite(fmt.table)).astype(np.uint32)
    near_one = np.arange(fmt.pattern(Fraction(1, 4)), fmt.pattern(Fraction(4)), dtype=np.uint32)
    for pool in (finite, near_one):
        x, y, z = (rng.choice(pool, 4000) for _ in range(3))
        got = fmt.values(machine.fma(x, y, z, fmt))
        for i in range(len(x)):
            want = exact_fma(*(float(fmt.table[p[i]]) for p in (x, y, z)), fmt)
            assert got[i] == want, (hex(x[i]), hex(y[i]), hex(z[i]))


def test_fma_halves_do_not_meet():
    a, b, c = words(0x3C00_4000, 0x4000_3C00, 0xBC00_3C00)
    assert int(machine.fma(a, b, c, FLOAT16)[0]) == 0x3C00_4200


@pytest.mark.parametrize(
    "row", RECORD["rows"], ids=lambda r: "-".join(map(str, list(r.values())[:-1]))
)
def test_results_are_those_of_an_h200(row):
    x = np.arange(1 << 16, dtype=np.uint32)
    if row["operation"] == "fma":
        fmt = SHORT_FORMATS[row["format"]]
        factor, addend = words(int(row["factor"], 16), int(row["addend"], 16))
        got = machine.fma(x, factor, addend, fmt) & np.uint32(0xFFFF)
    else:
        got = machine.cvt(x, 0, row["format"]) >> np.uint32(16 * row["half"])
    assert hashlib.sha256(got.astype("<u2").tobytes()).hexdigest() == row["sha256"]


@pytest.mark.parametrize("source, name", [("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2")])
def test_cvt_is_exact_for_every_byte(source, name):
    byte = np.arange(256, dtype=np.uint8)
    want = byte.view(np.dtype(getattr(ml_dtypes, name))).astype(np.float64)
    x = byte.astype(np.uint32)
    for half in (0, 1):
        low = machine.cvt(x << np.uint32(16 * half), half, source)
        high = machine.cvt(x << np.uint32(16 * half + 8), half, source)
        np.testing.assert_array_equal(FLOAT16.values(low), want)
        np.testing.assert_array_equal(FLOAT16.values(high >> np.uint32(16)), want)


def test_loads_stay_in_the_lanes_own_column():
    table = Table((11, 22), 128)
    lane = machine.lane_addresses()
    assert set(machine.lds(lane + np.uint32(128), table, lane).tolist()) == {22}
    for address in (lane + np.uint32(4), lane + np.uint32(256), lane[::-1].copy()):
        with pytest.raises(DecodeError, match="own column"):
            machine.lds(address, table, lane)


def test_a_load_without_a_table_is_refused(catalog):
    program = derive(catalog["int4"], "float16")
    loading = replace(program, ops=(*program.ops, Op("lds", 99, (LANE_ADDRESS,))))
    with pytest.raises(DecodeError, match="without a table"):
        machine.execute(loading, np.zeros((program.words, 32), np.uint32))
