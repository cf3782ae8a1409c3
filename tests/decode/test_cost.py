"""Prices beside times: decodes of codebooks that were written by hand and measured on an H200."""

from __future__ import annotations

import pytest

from ladder.decode.cost import CYCLES, issue

#: cycles of ALU and LSU per 8 codes -> us of 28672 x 8192 with one token, each the best of many kernels around that decode
MEASURED = {
    3: {(13.5, 12): 27.06, (18.5, 12): 31.0, (22.5, 0): 32.6},
    4: {(8, 16): 29.83, (15, 12): 30.4, (15, 16): 30.8, (23, 8): 38.0, (38, 0): 49.6},
}


def price(alu: float, lsu: float) -> float:
    return issue({"alu": alu / CYCLES["alu"], "lsu": lsu / CYCLES["lsu"]})


@pytest.mark.parametrize("bits", MEASURED)
def test_codebooks_are_priced_in_the_order_of_their_times(bits):
    times = MEASURED[bits]
    assert sorted(times, key=lambda cycles: price(*cycles)) == sorted(times, key=times.__getitem__)
    # neither the sum of the pipes nor the busiest one does that for both
    assert not all(
        sorted(found, key=key) == sorted(found, key=found.__getitem__)
        for key in (sum, max)
        for found in MEASURED.values()
    )


def test_pipes_that_issue_in_order_add_up():
    assert issue({"alu": 5, "fma": 4}) == 14
    assert issue({"alu": 5, "fma": 4}, classes=2) == 15
    assert 14 < issue({"alu": 5, "fma": 4, "lsu": 1}) < 18
