from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ladder
from ladder.decode.derive import derive
from ladder.decode.lanes import LANE_FORMATS
from ladder.decode.reference import decode_atom, pack_atom, unpack_atom
from ladder.errors import PackingError

NAMES = ["int1", "ternary", "int3", "nf4", "int5", "fp6_e2m3", "int7", "fp8_e5m2"]


@settings(max_examples=40)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(list(LANE_FORMATS)),
    st.sampled_from([(), (3,), (2, 1), (0,)]),
    st.integers(0, 2**32 - 1),
)
def test_packing_is_undone_and_decodes_to_the_values(name, compute, lead, seed):
    element = ladder.types[name]
    program = derive(element, compute)
    rng = np.random.default_rng(seed)
    allowed = [c for c in range(1 << element.bits) if c not in program.undefined]
    codes = rng.choice(allowed, (*lead, 16, program.atom_k)).astype(np.uint8)
    words = pack_atom(program, codes)
    assert words.shape == (*lead, program.words, 32)
    assert words.dtype == np.uint32
    np.testing.assert_array_equal(unpack_atom(program, words), codes)
    want = element.values if program.lossless else LANE_FORMATS[compute].round(element.values)
    np.testing.assert_array_equal(decode_atom(program, words), want[codes])


@pytest.mark.parametrize("name", NAMES)
def test_every_word_is_a_packing_of_some_codes(catalog, name):
    program = derive(catalog[name], "float16")
    words = np.random.default_rng(5).integers(0, 2**32, (7, program.words, 32), dtype=np.uint32)
    np.testing.assert_array_equal(pack_atom(program, unpack_atom(program, words)), words)


def test_codes_land_where_the_slots_say(catalog):
    """One code at a time: the element's own lane changes and no other, in the bits of its slot."""
    program = derive(catalog["uint3"], "float16")
    empty = pack_atom(program, np.zeros((16, 64), np.uint8))
    for row, k in [(0, 0), (9, 5), (15, 63), (3, 18)]:
        codes = np.zeros((16, 64), np.uint8)
        codes[row, k] = 5
        lane = 4 * (row % 8) + k % 8 // 2
        step, register, half = k // 16, (row >= 8) + 2 * (k % 16 >= 8), k % 2
        slot = program.slots[step][register][half]
        changed = pack_atom(program, codes) ^ empty
        assert set(np.flatnonzero(changed.any(axis=0))) == {lane}
        bits = {32 * w + b for w in range(3) for b in range(32) if changed[w, lane] >> b & 1}
        difference = program.relabels[slot.relabel][5] ^ program.relabels[slot.relabel][0]
        assert bits == {p for i, p in enumerate(slot.bits) if difference >> i & 1}


def test_wrong_shapes_and_codes_are_refused(catalog):
    program = derive(catalog["int4"], "float16")
    with pytest.raises(PackingError, match=r"codes are \[..., 16, 64\], not \(16, 32\)"):
        pack_atom(program, np.zeros((16, 32), np.uint8))
    with pytest.raises(PackingError, match=r"words are \[..., 4, 32\]"):
        unpack_atom(program, np.zeros((3, 32), np.uint32))
    with pytest.raises(PackingError, match="code 16 does not fit 4 bits"):
        pack_atom(program, np.full((16, 64), 16, np.uint8))


def test_negative_nibbles_do_not_flood_their_neighbours(catalog):
    """C08: all pairs of neighbouring int4 codes, negative ones too, come back and decode as they went in."""
    element = catalog["int4"]
    program = derive(element, "float16")
    pairs = np.array([(a, b) for a in range(16) for b in range(16)], np.uint8)
    codes = np.zeros((16, program.atom_k), np.uint8)
    codes.reshape(-1)[: pairs.size] = pairs.reshape(-1)
    words = pack_atom(program, codes)
    np.testing.assert_array_equal(unpack_atom(program, words), codes)
    np.testing.assert_array_equal(decode_atom(program, words), codes.astype(int) - 16 * (codes > 7))
