"""Programs without operations: proven over all 65,536 codes, and a bijection between codes and words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ladder.decode.derive import derive
from ladder.decode.identity import identity
from ladder.decode.prove import prove
from ladder.decode.reference import decode_atom, pack_atom, unpack_atom
from ladder.decode.serial import dump, load
from ladder.errors import DecodeError
from ladder.ttype import DENSE, TType

NAMES = pytest.mark.parametrize("name", DENSE)


def test_it_is_proven() -> None:
    program = derive(DENSE["float16"], "float16")
    assert program.is_identity
    assert program.pipes() == {"alu": 0, "fma": 0, "lsu": 0}
    # codes that mean NaN are among those that the proof counts: they decode to NaN
    assert prove(program, DENSE["float16"]) == 2 * 8 * 65536


def test_a_wrong_place_is_seen() -> None:
    program = derive(DENSE["float16"], "float16")
    (a, b, c, d), other = program.outputs
    with pytest.raises(DecodeError, match="belongs to another code"):
        prove(replace(program, outputs=((b, a, c, d), other)), DENSE["float16"])


@NAMES
def test_words_are_pairs_of_codes_in_fragment_order(name: str) -> None:
    program = derive(DENSE[name], name)
    codes = np.random.default_rng(0).permutation(65536).astype(np.uint16)
    codes = codes.reshape(-1, 16, 32)
    words = pack_atom(program, codes)
    assert words.shape == (128, 8, 32)
    for lane in (0, 1, 7, 31):  # PTX ISA, fragment A of mma.m16n8k16
        g, t = divmod(lane, 4)
        for step in range(2):
            for i in range(4):
                row, k = g + 8 * (i & 1), 16 * step + 2 * t + 8 * (i >> 1)
                low, high = codes[:, row, k].astype(np.uint32), codes[:, row, k + 1]
                assert np.array_equal(words[:, 4 * step + i, lane], low | high.astype("u4") << 16)
    assert np.array_equal(unpack_atom(program, words), codes)
    with np.errstate(invalid="ignore"):
        numbers = codes.view(DENSE[name].compute.dtype).astype(np.float64)
    assert np.array_equal(decode_atom(program, words), numbers, equal_nan=True)


@NAMES
def test_it_is_written_in_a_few_words(name: str) -> None:
    program = derive(DENSE[name], name)
    data = dump(program)
    assert load(data) == program
    assert data["relabels"] == [65536]
    assert hash(load(data)) == hash(program)


def test_another_table_has_none() -> None:
    assert identity(DENSE["float16"], "bfloat16") is None
    assert identity(TType("pair", 1, [-1, 1]), "float16") is None
    with pytest.raises(DecodeError, match="16-bit codes have no decode"):
        derive(DENSE["float16"], "bfloat16")
