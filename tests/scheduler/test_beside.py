"""What decoding the weight first would take, and what a plan says of it."""

from __future__ import annotations

from typing import Any

import pytest

import ladder
from ladder.scheduler import beside
from ladder.ttype import Dense

INT4 = ladder.types["int4"]


def plan(weight: Any, activation: str = "float16") -> ladder.Plan:
    scaled = activation == "int8"
    op = ladder.matmul(
        512, 4096, 4096, activation=activation, weight=weight, activation_scale=scaled
    )
    found = ladder.schedule(op, "h200")
    assert isinstance(found, ladder.Plan)
    return found


def test_the_two_kernels_make_the_same_product() -> None:
    given = plan(INT4.grouped(128, scale="float16"))
    other = beside.decoded_first(given)
    assert other is not None
    assert isinstance(other.product.op.element, Dense)
    assert (other.product.op.m, other.product.op.n, other.product.op.k) == (512, 4096, 4096)
    assert other.decode.op.weight == given.op.weight
    assert other.us == other.decode.cost().us + other.product.cost().us
    assert f"{other.us:.2f} us" in given.explain()
    assert "that is less" not in given.explain()


def test_a_faster_one_is_said_and_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = plan(INT4.grouped(128, scale="float16"))
    monkeypatch.setattr(beside.DecodedFirst, "us", property(lambda _: 0.5))
    (offer,) = beside.beside_lines(slow)[1:]
    assert "ladder.dequantize(4096, 4096" in offer
    assert "34 MB" in offer


def test_what_has_no_dense_product_says_so() -> None:
    eight = plan(INT4.grouped("channel", scale="float16"), "int8")
    assert beside.decoded_first(eight) is None
    assert "no product of this operator reads decoded weights" in eight.explain()
    assert beside.decoded_first(plan("float16")) is None
