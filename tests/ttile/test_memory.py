from __future__ import annotations

import pytest

from ladder.errors import DeviceError
from ladder.ttile import Granule, MemoryLevel, Tile

LINE = Tile((32,), Granule(1))


def test_a_level_says_whether_its_rate_was_measured() -> None:
    assert str(MemoryLevel("dram", 10, 4.65e12, LINE, measured=True)) == (
        "dram: 10 B, 4.65 TB/s (measured)"
    )
    assert "(published)" in str(MemoryLevel("dram", 10, 1e12, LINE))


@pytest.mark.parametrize("nbytes,rate", [(0, 1.0), (1, 0.0), (-1, 1.0)])
def test_sizes_and_rates_are_positive(nbytes: int, rate: float) -> None:
    with pytest.raises(
        DeviceError,
        match=r"is (0|-1|0.0), not (an integer >= 1|a finite number > 0)\n  at: level l2",
    ):
        MemoryLevel("l2", nbytes, rate, LINE)
