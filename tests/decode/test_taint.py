from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.decode.machine import execute
from ladder.decode.program import LANE_ADDRESS, Affine, Const, DecodeProgram, Op, Slot, Table
from ladder.decode.taint import analyse
from ladder.errors import DecodeError

WORDS = 2
NARROW = st.sampled_from([0x0F0F0F0F, 0x00FF00FF, 0xFFFF0000, 0x80008000, 0x6420, 0x5140, 0xBA98])


def program_of(ops, table=None):
    slot = Slot((0,))
    return DecodeProgram(
        "t", 4, "float16", "none", WORDS, 1, tuple(ops), ((0, 0, 0, 0),), (((slot, slot),) * 4,),
        (tuple(range(16)),), (0,), ((Affine(), Affine()),), table,
    )  # fmt: skip


@st.composite
def programs(draw):
    """Straight-line programs of random operations on two words."""
    ops = []
    for dst in range(WORDS, WORDS + draw(st.integers(1, 6))):
        operand = st.integers(0, dst - 1) | NARROW.map(Const) | st.integers(0, 2**32 - 1).map(Const)
        kind = draw(st.sampled_from(["lop3", "shf", "shl", "shr", "prmt", "fma", "cvt"]))
        args = tuple(draw(operand) for _ in range(3 if kind in ("lop3", "prmt", "fma") else 1))
        imm = {"lop3": 255, "shf": 31, "shl": 31, "shr": 31, "cvt": 1}.get(kind, 0)
        fmt = {"fma": draw(st.sampled_from(["f16", "bf16"])), "cvt": "e4m3"}.get(kind, "")
        ops.append(Op(kind, dst, args, draw(st.integers(0, imm)), fmt))
    return program_of(ops)


@given(programs(), st.integers(0, 2**32 - 1))
def test_a_bit_outside_the_bound_never_matters(program, seed):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**32, (WORDS, 32), dtype=np.uint32)
    before = execute(program, words)
    bounds = analyse(program)
    for bit in rng.choice(32 * WORDS, 8, replace=False):
        changed = words.copy()
        changed[bit // 32] ^= np.uint32(1 << bit % 32)
        after = execute(program, changed)
        for register, bound in bounds.items():
            differs = int(np.bitwise_or.reduce(before[register] ^ after[register]))
            for i in range(32):
                if differs >> i & 1:
                    assert bound.sources[i] >> int(bit) & 1, (register, i, bit)


@given(programs(), st.integers(0, 2**32 - 1))
def test_known_bits_are_known(program, seed):
    words = np.random.default_rng(seed).integers(0, 2**32, (WORDS, 32), dtype=np.uint32)
    values = execute(program, words)
    for register, bound in analyse(program).items():
        for i, known in enumerate(bound.known):
            if known is not None:
                assert ((values[register] >> np.uint32(i) & np.uint32(1)) == known).all()
                assert bound.sources[i] == 0


def test_masks_cut_the_bound_down():
    bounds = analyse(program_of([Op("lop3", 2, (0, Const(0x000F000F), Const(0)), 0xC0)]))
    assert bounds[2].union(0, 16) == 0xF
    assert bounds[2].union(16, 16) == 0xF0000


def test_halves_of_an_fma_do_not_meet():
    bounds = analyse(program_of([Op("fma", 2, (0, Const(0), Const(0)), fmt="f16")]))
    assert bounds[2].sources[3] == 0xFFFF
    assert bounds[2].sources[19] == 0xFFFF0000


def test_an_equal_operand_is_one_operand():
    bounds = analyse(program_of([Op("lop3", 2, (0, 0, Const(0)), 0x3C)]))  # x ^ x
    assert bounds[2].known == (0,) * 32


def test_a_load_depends_on_the_index_bits_that_matter():
    low_half = tuple(i & 1 for i in range(4))
    high_half = tuple((i >> 1) << 16 for i in range(4))
    table = Table(tuple(a | b for a, b in zip(low_half, high_half, strict=True)))
    address = Op("lop3", 2, (0, Const(0x180), LANE_ADDRESS), 0xEA)
    bounds = analyse(program_of([address, Op("lds", 3, (2,))], table))
    assert bounds[3].union(0, 16) == 1 << 7
    assert bounds[3].union(16, 16) == 1 << 8


@pytest.mark.parametrize(
    "ops, what",
    [
        ([Op("shl", 2, (7,), 1)], "read before"),
        ([Op("shl", 2, (0,), 1), Op("shl", 2, (0,), 2)], "written twice"),
        ([Op("shl", 1, (0,), 1)], "written twice"),
        ([Op("lds", 2, (LANE_ADDRESS,))], "without a table"),
    ],
)
def test_broken_programs_are_refused(ops, what):
    with pytest.raises(DecodeError, match=what):
        analyse(program_of(ops))
