from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ladder.errors import LayoutError
from ladder.ttile import Layout, f2

NAMES = ("a", "b", "c")


@st.composite
def coordinates(draw: st.DrawFn, bits: int) -> tuple[tuple[str, int], ...]:
    """A cut of ``bits`` into up to three coordinates, empty ones included."""
    cuts = sorted(draw(st.lists(st.integers(0, bits), min_size=2, max_size=2)))
    sizes = (cuts[0], cuts[1] - cuts[0], bits - cuts[1])
    order = draw(st.permutations(NAMES))
    return tuple(zip(order, sizes, strict=True))


@st.composite
def bijections(draw: st.DrawFn, bits: int = 5) -> Layout:
    """A product of transvections and a permutation: any bijection can come out."""
    images = [1 << i for i in draw(st.permutations(range(bits)))]
    for i, j in draw(st.lists(st.tuples(st.integers(0, bits - 1), st.integers(0, bits - 1)))):
        if i != j:
            images[i] ^= images[j]
    return Layout(draw(coordinates(bits)), draw(coordinates(bits)), tuple(images))


@given(bijections())
def test_a_bijection_reaches_every_point_once(layout: Layout) -> None:
    assert layout.is_bijective
    assert sorted(layout.points()) == list(range(32))


@given(st.lists(st.integers(0, 31), min_size=4, max_size=4))
def test_questions_agree_with_counting(basis: list[int]) -> None:
    layout = Layout((("a", 4),), (("b", 5),), tuple(basis))
    reached = {int(p) for p in layout.points()}
    assert 2**layout.rank == len(reached)
    assert layout.is_injective == (len(reached) == 16)
    assert not layout.is_surjective


@given(bijections())
def test_inverse_undoes_on_both_sides(layout: Layout) -> None:
    back = layout.inverse()
    assert (layout >> back).is_identity
    assert (back >> layout).is_identity
    assert back.inverse() == layout


@given(bijections(), bijections())
def test_composition_applies_one_after_the_other(first: Layout, second: Layout) -> None:
    second = second.as_(ins=first.outs)
    both = first >> second
    point = {
        name: (np.arange(32) >> shift) & ((1 << bits) - 1)
        for (name, bits), shift in zip(
            first.ins,
            (sum(b for _, b in first.ins[i + 1 :]) for i in range(len(first.ins))),
            strict=True,
        )
    }
    step = second.apply(**first.apply(**point))
    direct = both.apply(**point)
    assert all(np.array_equal(direct[name], step[name]) for name, _ in both.outs)


@given(bijections(), bijections(), st.data())
def test_composition_meets_by_name_in_any_order(
    first: Layout, second: Layout, data: st.DataObject
) -> None:
    second = second.as_(ins=tuple(data.draw(st.permutations(first.outs))))
    both = first >> second
    for index in np.ndindex(*(1 << bits for _, bits in first.ins)):
        point = {name: int(i) for (name, _), i in zip(first.ins, index, strict=True)}
        assert both.apply(**point) == second.apply(**first.apply(**point))


@given(bijections(), bijections(), bijections())
def test_composition_is_associative(a: Layout, b: Layout, c: Layout) -> None:
    b = b.as_(ins=a.outs)
    c = c.as_(ins=b.outs)
    assert (a >> b) >> c == a >> (b >> c)


@given(bijections(4))
def test_reordered_coordinates_keep_the_map_of_names(layout: Layout) -> None:
    turned = layout.reorder(
        ins=[n for n, _ in reversed(layout.ins)], outs=[n for n, _ in reversed(layout.outs)]
    )
    extents = [1 << bits for _, bits in layout.ins]
    for index in np.ndindex(*extents):
        point = {name: int(i) for (name, _), i in zip(layout.ins, index, strict=True)}
        assert layout.apply(**point) == turned.apply(**point)


@given(bijections(3), bijections(2))
def test_product_puts_the_inner_layout_into_the_low_bits(outer: Layout, inner: Layout) -> None:
    both = outer * inner
    assert both.is_bijective
    low_in, low_out = dict(inner.ins), dict(inner.outs)
    rng = np.random.default_rng(0)
    for _ in range(8):
        high = {n: int(rng.integers(1 << b)) for n, b in outer.ins}
        low = {n: int(rng.integers(1 << b)) for n, b in inner.ins}
        joined = {n: high[n] << low_in[n] | low[n] for n in high}
        top, bottom = outer.apply(**high), inner.apply(**low)
        assert both.apply(**joined) == {n: top[n] << low_out[n] | bottom[n] for n in top}


def test_the_first_named_coordinate_is_the_outermost() -> None:
    layout = Layout.row_major((("row", 2), ("column", 3)))
    rows, columns = np.arange(4)[:, None], np.arange(8)
    assert np.array_equal(layout.apply(row=rows, column=columns)["offset"], rows * 8 + columns)
    assert layout.basis == (1, 2, 4, 8, 16)


@pytest.mark.parametrize("count,low,high", [(3, 4, 7), (2, 4, 7), (1, 4, 7), (3, 0, 3)])
def test_xor_swizzle_is_the_shifted_xor(count: int, low: int, high: int) -> None:
    layout = Layout.xor_swizzle("byte", 11, count=count, low=low, high=high)
    address = np.arange(1 << 11)
    expected = address ^ (((address >> high) & ((1 << count) - 1)) << low)
    assert np.array_equal(layout.flat(address), expected)
    assert layout.inverse() == layout


def test_from_bits_names_the_sources_of_each_output_bit() -> None:
    layout = Layout.from_bits((("x", 2), ("y", 1)), (("p", 3),), {"p": "y.0 x.0^y.0 0"})
    assert [layout.apply(x=x, y=y)["p"] for x in range(4) for y in range(2)] == [
        (y | (x & 1 ^ y) << 1) for x in range(4) for y in range(2)
    ]
    assert not layout.is_injective


def test_flat_takes_a_number_or_an_array() -> None:
    layout = Layout.xor_swizzle("i", 4, count=2, low=0, high=2)
    assert layout.flat(12) == 12 ^ 3
    assert isinstance(layout.flat(12), int)
    assert layout.flat(np.array([[0, 12]])).tolist() == [[0, 15]]
    assert layout.flat(np.array([], dtype=np.int64)).size == 0


def test_a_layout_is_a_value() -> None:
    one, two = (Layout.identity((("a", 2), ("b", 1))) for _ in range(2))
    assert one == two
    assert len({one, two}) == 1
    with pytest.raises(AttributeError):
        one.basis = ()  # type: ignore[misc]


def test_a_layout_prints_its_bits_and_a_table() -> None:
    layout = Layout.xor_swizzle("i", 4, count=2, low=0, high=2).as_(
        ins=(("row", 2), ("column", 2)), outs=(("row", 2), ("chunk", 2))
    )
    assert str(layout) == (
        "(row:4, column:4) -> (row:4, chunk:4)\n"
        "  row = row.0 row.1\n"
        "  chunk = row.0^column.0 row.1^column.1"
    )
    assert layout.table("row", "column", "chunk") == (
        "row\\column | 0 1 2 3\n"
        "         0 | 0 1 2 3\n"
        "         1 | 1 0 3 2\n"
        "         2 | 2 3 0 1\n"
        "         3 | 3 2 1 0"
    )


@pytest.mark.parametrize(
    "build,message",
    [
        (lambda: Layout((("a", 1), ("a", 1)), (("b", 2),), (1, 2)), "repeat a name"),
        (lambda: Layout((("a", 2),), (("b", 2),), (1,)), "1 images for 2 input bits"),
        (lambda: Layout((("a", 1),), (("b", 1),), (2,)), "more than 1 bits"),
        (lambda: Layout((("a", -1),), (("b", 1),), ()), "negative bits"),
        (lambda: Layout((("a", 1),), (("b", 1),), (0,)).inverse(), "no inverse"),
        (lambda: Layout.identity((("a", 1),)).apply(a=2), "outside 0 .. 1"),
        (lambda: Layout.identity((("a", 1),)).apply(b=0), "do not name"),
        (lambda: Layout.identity((("a", 1),)).flat(-1), "outside 0 .. 1"),
        (lambda: Layout.identity((("a", 1),)) >> Layout.identity((("b", 1),)), "do not meet"),
        (lambda: Layout.identity((("a", 1),)).reorder(ins=["b"]), "no order of"),
        (lambda: Layout.identity((("a", 1),)).image("a", 1), "a.1 is no input bit"),
        (
            lambda: Layout.xor_swizzle("a", 4, count=2, low=1, high=2),
            "xor of bits 1..2 with 2..3 does not fit",
        ),
        (
            lambda: Layout.from_bits((("a", 1),), (("b", 1),), {"b": "c.0"}),
            "c.0 is no input bit",
        ),
        (
            lambda: Layout.from_bits((("a", 1),), (("b", 1),), {"b": "a.0 a.0"}),
            "b has 1 bits, 2 are given",
        ),
    ],
)
def test_nonsense_is_refused(build: object, message: str) -> None:
    with pytest.raises(LayoutError, match=message.replace(".", r"\.")):
        build()  # type: ignore[operator]


@given(bijections(4))
def test_any_linear_function_is_determined_by_its_basis(layout: Layout) -> None:
    points = layout.points()
    assume(len(points) == 16)
    assert [f2.apply(layout.basis, i) for i in range(16)] == points.tolist()
