"""Extents: polynomials in symbols, in one normal form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import ShapeError
from ladder.graph.extent import (
    Symbolic,
    bind,
    broadcast,
    divided,
    product,
    shape_of,
    symbol,
    value_of,
)

B, S = symbol("batch"), symbol("seq")
SIZES = {"batch": 3, "seq": 5}


@st.composite
def extents(draw, depth=3):
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([B, S]) | st.integers(-4, 4))
    a, b = draw(extents(depth - 1)), draw(extents(depth - 1))
    return draw(st.sampled_from([a + b, a * b, a - b]))


def test_equal_polynomials_are_equal_values():
    assert (B + 1) * S == S * B + S
    assert (B + S) - S == B
    assert B - B == 0
    assert isinstance(B * 0, int)
    assert hash((B + 1) * S) == hash(S + S * B)


def test_printed():
    assert str(B * S * 2 + 1) == "2*batch*seq+1"
    assert str(S - 1) == "seq-1"


@given(extents(), extents())
def test_arithmetic_is_that_of_the_numbers(a, b):
    assert value_of(a + b, SIZES) == value_of(a, SIZES) + value_of(b, SIZES)
    assert value_of(a * b, SIZES) == value_of(a, SIZES) * value_of(b, SIZES)
    assert value_of(a - b, SIZES) == value_of(a, SIZES) - value_of(b, SIZES)


@given(extents(), st.sampled_from([B, S, B * S, 2 * B, 3]))
def test_dividing_undoes_a_product(a, b):
    assert divided(a * b, b) == a


def test_what_does_not_divide():
    assert divided(B, S) is None
    assert divided(B * 3, 2) is None
    assert divided(B + 1, B + 1) == 1


def test_binding_learns_symbols_and_refuses_other_sizes():
    sizes: dict[str, int] = {}
    bind((B, S, 4), (2, 7, 4), sizes, "x")
    assert sizes == {"batch": 2, "seq": 7}
    bind((S + 1,), (8,), sizes, "cache")
    with pytest.raises(ShapeError, match="expected"):
        bind((B,), (3,), sizes, "y")
    with pytest.raises(ShapeError, match="expected"):
        bind((B, 4), (2,), sizes, "y")
    with pytest.raises(ShapeError, match="is not known"):
        bind((symbol("t") * 2,), (8,), {}, "y")


def test_broadcast_and_products():
    assert broadcast([(B, 1, 4), (S, 4)], "here") == (B, S, 4)
    with pytest.raises(ShapeError, match="does not meet"):
        broadcast([(B,), (S,)], "here")
    assert product((B, 2, S)) == 2 * B * S
    assert isinstance(product((B, 2)), Symbolic)
    assert shape_of((B + S, 2), SIZES) == (8, 2)
