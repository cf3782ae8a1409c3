"""The arena: outputs that live at the same time never share a byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ladder.torch.memory import ALIGNMENT, Lifetime, arrange

LIFETIMES = st.builds(
    lambda nbytes, first, span: Lifetime(nbytes, first, first + span),
    st.integers(0, 5000),
    st.integers(0, 12),
    st.integers(0, 6),
)


@given(st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), LIFETIMES, max_size=14))
def test_no_two_share_memory_while_both_live(outputs):
    arena = arrange(outputs)
    places = {
        name: range(arena.offsets[name], arena.offsets[name] + one.nbytes)
        for name, one in outputs.items()
    }
    for name, one in outputs.items():
        assert arena.offsets[name] % ALIGNMENT == 0
        assert places[name].stop <= arena.nbytes
        for other, two in outputs.items():
            if name < other and one.overlaps(two) and one.nbytes and two.nbytes:
                mine, theirs = places[name], places[other]
                assert mine.stop <= theirs.start or theirs.stop <= mine.start


def test_a_chain_takes_two_buffers():
    size = 4 * ALIGNMENT
    chain = {str(n): Lifetime(size, n, n + 1) for n in range(8)}
    assert arrange(chain).nbytes == 2 * size


def test_small_ones_fill_the_gap_that_a_large_one_leaves():
    outputs = {
        "large": Lifetime(8 * ALIGNMENT, 0, 1),
        "one": Lifetime(4 * ALIGNMENT, 2, 3),
        "two": Lifetime(4 * ALIGNMENT, 2, 3),
    }
    assert arrange(outputs).nbytes == 8 * ALIGNMENT
