"""Hard cases of propagation: the result equals that of the plain graph, and the conversions are counted."""

from __future__ import annotations

import pytest

from ladder.errors import DeviceError, GraphError
from ladder.graph.layouts.access import Blocked
from ladder.graph.layouts.execute import run
from ladder.graph.operators import (
    Binary,
    Concat,
    Foreign,
    Linear,
    MatrixProduct,
    QuantizeTokens,
    RMSNorm,
    Slice,
    Unary,
)
from ladder.graph.rewrite import canonical
from ladder.graph.rules import Rule
from ladder.ttile.layout import Layout
from tests.graph.layouts.conftest import RNG, B, Build, S, check, data


@pytest.mark.parametrize("m, n", [(24, 48), (32, 32)])
def test_a_transpose_between_two_products(m, n):
    """C51: matmul -> transpose(0, 2, 1) -> matmul with inner sizes that differ, and with square ones."""
    b = Build()
    x, y, z = b.x(B, m, 16), b.x(B, 16, n, name="y"), b.x(B, m, 8, name="z")
    first = b.add(MatrixProduct(), (x, y), "first")
    second = b.add(MatrixProduct(), (b.turn(first, 0, 2, 1), z), "second")
    laid = check(b.done(second), 0, data(2, m, 16), data(2, 16, n), data(2, m, 8), before=1)
    assert laid.layouts.of["turn"].transposed((0, 2, 1)) == laid.layouts.of["first"]
    assert "cancelled  turn" in laid.explain()


@pytest.mark.parametrize("h, d", [(3, 16), (16, 16)])
def test_a_transpose_between_a_layer_and_a_layer(h, d):
    """C51: the second layer reads along what was the row axis, so the first one's kernel writes transposed."""
    b = Build()
    x = b.x(B, h, 16)
    first = b.linear(x, d, "first")
    second = (
        b.linear(b.turn(first, 0, 2, 1), 8, "second")
        if h % 8 == 0
        else b.linear(b.turn(first, 0, 2, 1), 8, "second", b.constant("w", RNG.normal(size=(8, h))))
    )
    laid = check(b.done(second), 0, data(2, h, 16), before=1)
    assert not laid.layouts.of["first"].is_row_major
    assert "linear writes" in laid.explain()


def test_reshape_to_heads_and_back():
    """C51: matmul -> reshape(B, S, H, D) -> transpose -> matmul, and back to a layer."""
    b = Build()
    x = b.x(B, S, 16)
    q, k, v = (b.turn(b.shape(b.linear(x, 32, name), B, S, 4, 8), 0, 2, 1, 3) for name in "qkv")
    scores = b.add(MatrixProduct(), (q, b.turn(k, 0, 1, 3, 2)), "scores")
    mixed = b.add(MatrixProduct(), (scores, v), "mixed")
    joined = b.shape(b.turn(mixed, 0, 2, 1, 3), B, S, 32)
    graph = canonical(b.done(b.linear(joined, 16, "out")))
    check(graph, 0, data(2, 5, 16), before=4)


def test_two_consumers_that_agree_share_what_the_source_writes():
    b = Build()
    x = b.x(B, S, 16)
    y = b.linear(x, 8, "y")
    turned = b.turn(y, 1, 0, 2)
    one = b.linear(turned, 8, "one")
    two = b.linear(b.add(Unary("silu"), (turned,), "act"), 8, "two")
    check(b.done(one, two), 0, data(2, 3, 16))


def test_two_consumers_that_disagree_cost_one_conversion():
    b = Build()
    x = b.x(B, 16, 8)
    y = b.linear(x, 24, "y")
    along = b.linear(y, 8, "along")  # reads along 24
    across = b.linear(b.turn(y, 0, 2, 1), 8, "across")  # reads along 16
    laid = check(b.done(along, across), 1, data(2, 16, 8), before=1)
    (conversion,) = laid.layouts.conversions
    assert conversion.value in ("y", "turn")
    assert "conversion" in laid.explain()


def test_readers_that_want_the_same_share_one_conversion():
    b = Build()
    x = b.x(B, 16, 8)
    turned = b.turn(x, 0, 2, 1)
    outs = [b.linear(turned, 8, name) for name in ("one", "two", "three")]
    laid = check(b.done(*outs), 1, data(2, 16, 8), before=1)
    assert "the caller gives it row-major" in str(laid.layouts) or laid.layouts.conversions


def test_a_residual_branch_does_not_stand_in_the_way():
    b = Build()
    x = b.x(B, S, 16)
    heads = b.turn(b.shape(b.linear(x, 16, "q"), B, S, 2, 8), 0, 2, 1, 3)
    act = b.add(Unary("silu"), (heads,), "act")
    back = b.shape(b.turn(act, 0, 2, 1, 3), B, S, 16)
    out = b.add(Binary("add"), (x, b.linear(back, 16, "o")), "sum")
    again = b.add(RMSNorm(), (out,), "norm")
    last = b.add(Binary("add"), (out, b.linear(again, 16, "last")), "last_sum")
    graph = b.done(last)
    check(graph, 0, data(2, 5, 16), before=2)
    check(graph.fuse(), 0, data(2, 5, 16), before=2)


def test_an_inverse_pair_around_elementwise_work_cancels():
    b = Build()
    x = b.x(B, S, 16)
    there = b.turn(b.linear(x, 8, "y"), 1, 2, 0)
    act = b.add(Unary("exp"), (there,), "act")
    back = b.turn(act, 2, 0, 1)
    laid = check(b.done(b.linear(back, 8, "z")), 0, data(2, 3, 16), before=2)
    assert laid.layouts.of["act"].transposed((2, 0, 1)).is_row_major


@pytest.mark.parametrize("axis", [1, 2])
def test_concat_of_layers_is_written_in_place(axis):
    b = Build()
    x = b.x(B, S, 16)
    parts = [b.linear(x, 8, name) for name in ("one", "two")]
    joined = b.add(Concat(axis), parts, "joined")
    laid = check(b.done(b.linear(joined, 8, "out")), 0, data(2, 3, 16), before=0)
    assert laid.layouts.us < 0.01


def test_a_concat_that_is_read_turned_is_written_turned_by_its_layers():
    """C54: what the reader wants reaches the sources through the concat, so that nothing is converted."""
    b = Build()
    x = b.x(B, 16, 32)
    joined = b.add(Concat(1), [b.linear(x, 24, name) for name in ("one", "two")], "joined")
    out = b.linear(b.turn(joined, 0, 2, 1), 8, "out")
    laid = check(b.done(out), 0, data(2, 16, 32), before=1)
    assert not laid.layouts.of["one"].is_row_major
    assert laid.layouts.of["joined"].transposed((0, 2, 1)).is_row_major


def test_a_transpose_before_a_concat_near_a_layer():
    """C54: rank-3 transposes before Concat, whose other operands are plain inputs: never more conversions than before."""
    b = Build()
    x, plain, other = b.x(B, S, 16), b.x(B, 4, 8, name="plain"), b.x(B, 2, 8, name="other")
    turned = b.turn(b.shape(b.linear(x, 8, "y"), B, S, 8), 0, 1, 2)
    crossed = b.turn(b.turn(turned, 0, 2, 1), 0, 2, 1)
    joined = b.add(Concat(1), (crossed, plain, other), "joined")
    graph = b.done(b.linear(joined, 8, "out"))
    laid = check(graph, 0, data(2, 5, 16), data(2, 4, 8), data(2, 2, 8))
    kernels, us = laid.layouts.before
    assert len(laid.layouts.conversions) <= kernels
    assert laid.layouts.us <= us
    assert all(laid.constant(node.inputs[1]).type.weight for node in laid.of(Linear))


def test_several_plain_inputs_beside_one_that_is_turned():
    """C54: the inputs have to be copied into the result anyhow, and one of them is turned on the way: no kernel more."""
    b = Build()
    x, plain = b.x(B, 8, S), b.x(B, 4, 8, name="plain")
    turned = b.turn(x, 0, 2, 1)
    joined = b.add(Concat(1), (turned, plain), "joined")
    laid = check(b.done(b.linear(joined, 8, "out")), 0, data(2, 8, 5), data(2, 4, 8), before=1)
    assert laid.layouts.us < laid.layouts.before[1]


def test_one_constant_at_two_scales():
    """The layers share a weight of the model and get it in two types; nothing else changes."""
    b = Build()
    x = b.x(B, S, 16)
    w = b.constant("w", RNG.normal(size=(16, 16)))
    one = b.add(Linear(), (x, w), "one")
    two = b.add(Linear(), (b.turn(one, 1, 0, 2), w), "two")
    graph = b.done(two).assign(
        [Rule(weight="int4", group=4, name="one"), Rule(weight="int4", group=16, name="two")]
    )
    assert len(graph.constants) == 2
    check(graph, 0, data(2, 3, 16))


def test_slices_of_one_layer_are_read_with_gaps_and_not_joined_across_them():
    b = Build()
    x = b.x(B, S, 16)
    y = b.linear(x, 24, "y")
    low = b.add(Slice(2, 0, 8), (y,), "low")
    high = b.add(Slice(2, 8, 24), (y,), "high")
    fine = b.linear(low, 8, "fine")
    flat = b.shape(high, B, 16 * S)  # joins the axis with gaps to one outside it
    out = b.add(Unary("exp"), (flat,), "out")
    laid = check(b.done(fine, out), 1, data(2, 3, 16))
    assert "it joins an axis that has gaps" in laid.explain()


def test_kernels_that_want_tiles_get_them_from_whoever_writes():
    swizzle = Layout.xor_swizzle("offset", 8, count=3, low=1, high=5)
    tiles = Blocked(16, 16, swizzle)
    b = Build()
    x = b.x(32, 48)
    y = b.linear(x, 32, "y")
    act = b.add(Unary("silu"), (b.turn(y, 1, 0),), "act")
    graph = b.done(b.linear(act, 16, "z"))
    laid = check(graph, 1, data(32, 48), reading=tiles)
    assert laid.layouts.of["act"] == tiles.of((32, 32))
    assert laid.layouts.conversions[0].value == "x", "the caller gives no tiles"
    square = check(graph, 0, data(32, 48))
    assert square.layouts.of["act"].is_row_major


def test_tiles_that_do_not_divide_are_read_as_they_are():
    b = Build()
    x = b.x(B, 24, 40)
    graph = b.done(b.linear(b.linear(x, 8, "y"), 8, "z"))
    check(graph, 0, data(2, 24, 40), reading=Blocked(16, 16))


def test_outputs_are_row_major_for_the_caller():
    b = Build()
    x = b.x(B, 16, 8)
    turned = b.turn(b.linear(x, 24, "y"), 0, 2, 1)
    laid = check(b.done(turned), 0, data(2, 16, 8), before=1)
    assert laid.layouts.of["turn"].is_row_major


def test_what_is_the_frameworks_is_row_major_on_both_sides():
    b = Build()
    x = b.x(B, 16, 8)
    turned = b.turn(b.linear(x, 24, "y"), 0, 2, 1)
    there = b.add(Foreign("cumsum", b.type(turned)), (turned,), "foreign")
    laid = b.done(b.linear(there, 8, "z")).propagate("h200")
    assert laid.layouts.of["foreign"].is_row_major
    assert laid.layouts.operands["foreign", 0].is_row_major
    assert not laid.layouts.conversions
    assert not laid.layouts.of["y"].is_row_major, "the layer writes what the framework reads"


@pytest.mark.parametrize("other", [False, True])
def test_rows_are_quantised_at_their_source_where_that_is_generated(other):
    b = Build()
    x = b.x(B, S, 16)
    norm = b.add(RMSNorm(), (x,), "norm")
    rows = b.add(QuantizeTokens("int8"), (norm,), "rows")
    from_caller = b.add(QuantizeTokens("int8"), (x,), "from_caller")
    outs = [b.linear(rows, 8, "a"), b.linear(from_caller, 8, "b")]
    outs += [b.linear(norm, 8, "c")] if other else []
    laid = b.done(*outs).propagate("h200")
    placed = {one.node: one for one in laid.layouts.placements}
    assert placed["rows"].place == "source"
    assert ("it also writes what c reads" in placed["rows"].why) == other
    assert placed["from_caller"].place == "global"
    assert placed["a"].place == "register"


def test_sizes_say_what_symbols_are_taken_as():
    b = Build()
    x = b.x(B, S, 16)
    graph = b.done(b.turn(b.add(Unary("exp"), (b.turn(x, 1, 0, 2),), "e"), 2, 1, 0))
    small = graph.propagate("h200", sizes={"b": 1, "s": 1}).layouts.before[1]
    large = graph.propagate("h200", sizes={"b": 64, "s": 4096}).layouts.before[1]
    assert large > 4 * small
    with pytest.raises(GraphError, match="no symbol t"):
        graph.propagate("h200", sizes={"t": 1})
    with pytest.raises(GraphError, match="not a mapping from symbol to size"):
        graph.propagate("h200", sizes=[("b", 1)])
    with pytest.raises(DeviceError):
        graph.propagate("h2000")


def test_a_graph_without_layouts_cannot_be_run_on_them():
    b = Build()
    graph = b.done(b.add(Unary("exp"), (b.x(B, 4),), "y"))
    with pytest.raises(GraphError, match="no layouts"):
        run(graph, [data(2, 4)])
