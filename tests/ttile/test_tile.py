from __future__ import annotations

import pytest

from ladder.errors import ShapeError
from ladder.ttile import Granule, NumberType, Tile, type_bits, type_name
from ladder.ttype import TType, float16

TWO_BITS = TType("two_bits", bits=2, values=[-1, 0, 1, 2])


def test_a_tile_counts_elements_bits_and_bytes() -> None:
    tile = Tile((3, 5), TWO_BITS)
    assert (tile.ndim, tile.elements, tile.bits, tile.nbytes, tile.inner_bits) == (2, 15, 2, 4, 10)
    assert str(tile) == "two_bits[3, 5]"
    assert tile == Tile((3, 5), TWO_BITS)
    assert len({tile, Tile((3, 5), TWO_BITS)}) == 1


@pytest.mark.parametrize(
    "dtype,name,bits",
    [
        ("float16", "float16", 16),
        (float16, "float16", 16),
        (TWO_BITS, "two_bits", 2),
        (TWO_BITS.grouped(32), TWO_BITS.grouped(32).name, 2),
        (Granule(16), "16B", 128),
    ],
    ids=str,
)
def test_types_are_values_or_hardware_names(dtype: object, name: str, bits: int) -> None:
    assert type_name(dtype) == name
    assert type_bits(dtype) == bits


def test_the_protocol_covers_elements_compute_types_and_granules() -> None:
    assert isinstance(TWO_BITS, NumberType)
    assert isinstance(float16, NumberType)
    assert isinstance(Granule(4), NumberType)


def test_a_tile_in_granules() -> None:
    assert Tile((16, 16), "float16").in_granules(16) == Tile((16, 2), Granule(16))
    assert Tile((32,), Granule(1)).in_granules(16) == Tile((2,), Granule(16))
    with pytest.raises(ShapeError, match="80 bits is no multiple of 16 B"):
        Tile((16, 5), "float16").in_granules(16)


@pytest.mark.parametrize(
    "build,message",
    [
        (lambda: Tile((0, 3), "float16"), r"at least 1, not \[0, 3\]"),
        (lambda: Tile((3,), "float16", granularity=0), "granularity 0 B"),
        (lambda: type_bits("my_type"), "'my_type' are not known by name"),
    ],
)
def test_nonsense_is_refused(build: object, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        build()  # type: ignore[operator]
