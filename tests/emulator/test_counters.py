"""Counts of requests whose conflicts and sectors are known by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.emulator.counters import Counters, wavefronts

LANES = np.arange(32)


@pytest.mark.parametrize(
    "address, width, expected",
    [
        (LANES * 4, 4, 1),  # consecutive words
        (LANES * 0, 4, 1),  # one word for all: broadcast
        (LANES * 8, 4, 2),  # every other word
        (LANES * 128, 4, 32),  # one bank
        (LANES * 132, 4, 1),  # padded rows
        (LANES * 2, 2, 1),  # halves, two lanes a word
        (LANES // 2 * 4, 2, 1),
        (LANES * 8, 8, 2),  # 64 bits: two half warps
        (LANES * 16, 16, 4),  # 128 bits: four phases of eight lanes
        (LANES * 32, 16, 8),  # every other chunk: two-way in each phase
        (LANES * 128, 16, 32),  # rows of 128 bytes without a swizzle: eight-way
        ((LANES * 8 + LANES % 8) * 16, 16, 4),  # the same with chunks XORed by the row
    ],
)
def test_wavefronts_of_known_patterns(address, width, expected):
    assert wavefronts(address.astype(np.uint32), width) == expected


@pytest.mark.parametrize(
    "offset, width, sectors",
    [
        (LANES * 4, 4, 4),
        (LANES * 16, 16, 16),
        (LANES * 4 + 16, 4, 5),  # shifted by half a sector
        (LANES * 128, 4, 32),
        (LANES * 0, 4, 1),
        (LANES * 2, 2, 2),
    ],
)
def test_sectors_of_known_patterns(offset, width, sectors):
    counters = Counters()
    counters.memory("load", offset.astype(np.int64), width)
    assert counters.counts["global.load.sectors"] == sectors
    assert counters.counts["global.load.bytes"] == 32 * width


def test_straight_runs_are_counted_as_often_as_they_run(hand):
    """A loop of 5 with a branch that half the warps take, on 4 warps."""
    y = np.zeros(128, np.uint32)
    k = hand(128)
    out, s = k.array("y", y), k.shared("s", "uint32", 128)
    sync = ["eval", ["call", "cuda.cta_sync", ""]]
    zero = ["int", 0, "uint32"]
    branch = [
        "if",
        ["lt", k.tid, 64],
        k.store(s, k.tid, ["add", ["load", s, k.tid], ["int", 1, "uint32"]]),
        None,
    ]
    k.add(k.store(s, k.tid, zero), k.loop("i", 0, 5, lambda _i: [branch, sync]))
    k.add(k.store(out, k.tid, ["load", s, k.tid]))
    counts = k.run(counters=True).counters
    assert counts["op.bar.sync"] == 4 * 5
    assert counts["op.ld.shared.32"] == 2 * 5 + 4
    assert counts["op.st.shared.32"] == 4 + 2 * 5
    assert counts["op.st.global.32"] == 4
    assert counts["shared.load.requests"] == 14
    assert counts["shared.load.wavefronts"] == 14
    assert counts["global.store.sectors"] == 16
    assert (y[:64] == 5).all()
    assert (y[64:] == 0).all()


def test_partial_warps_count_their_lanes_only(hand):
    k = hand(32)
    out = k.array("y", np.zeros(32, np.uint32))
    k.add(["if", ["lt", k.tid, 3], k.store(out, k.tid, ["int", 1, "uint32"]), None])
    counts = k.run(counters=True).counters
    assert counts["global.store.bytes"] == 12
    assert counts["global.store.sectors"] == 1


def test_counting_changes_no_result(hand):
    k = hand(64)
    y = np.zeros(64, np.uint32)
    out = k.array("y", y)
    k.add(k.store(out, k.tid, ["cast", "uint32", ["mul", k.tid, 3]]))
    assert k.run().counters == {}
    k.run(counters=True)
    assert (y == 3 * np.arange(64)).all()


def test_instructions_count_on_their_pipe(hand):
    """Logic of three operands is one instruction, of four two; 32-bit integer arithmetic of addresses is left out."""
    k = hand(32)
    source = np.arange(32, dtype=np.uint32)
    x, y = k.array("x", source), k.array("y", np.zeros(32, np.uint32))
    words = k.registers("w", "uint32", 1)
    k.add(k.store(words, 0, ["load", x, k.tid]))
    w, mask = ["load", words, 0], ["int", 15, "uint32"]
    three = ["bitor", ["bitand", w, mask], ["int", 64, "uint32"]]
    four = ["bitxor", three, w]
    k.add(["stage", "decode", k.store(y, k.tid, ["add", four, ["shr", w, ["int", 2, "uint32"]]])])
    counts = k.run(counters=True).counters
    assert counts["pipe.alu.decode"] == 2 + 1
    assert not [name for name in counts if name.startswith("pipe.fma")]


def test_what_comes_before_an_instruction_for_some_lanes_is_counted_on_its_own(hand):
    """A guarded instruction runs for a lane in the second turn only; what stands before it runs in both."""
    k = hand(32)
    out = k.array("y", np.zeros(32, np.uint32))
    lop = "lop3.b32"
    d = k.registers("d", "uint32", 1)
    number = len(k.opcodes)
    operands = [["load", d, 0], *[["int", v, "uint32"] for v in (1, 2, 3)], 0xEA]

    def body(turn):
        plain = k.ptx(lop, *operands)
        guarded = k.ptx(lop, *operands, guard=["and", ["eq", turn, 1], ["eq", k.tid, 0]])
        return [plain, guarded]

    k.add(k.loop("turn", 0, 2, body), k.store(out, k.tid, ["load", d, 0]))
    assert number == 0
    assert k.run(counters=True).counters[f"op.{lop}"] == 2 + 1
