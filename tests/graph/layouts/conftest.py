"""Graphs that are laid out, and the check that their meaning stays."""

from __future__ import annotations

import numpy as np

from ladder.graph.draft import Draft
from ladder.graph.extent import symbol
from ladder.graph.layouts.execute import run
from ladder.graph.operators import (
    Linear,
    Reshape,
    Transpose,
)
from ladder.graph.tensor import TensorType
from ladder.registry import types
from ladder.ttype import quantize

RNG = np.random.default_rng(0)
B, S = symbol("b"), symbol("s")
WT = types["int4"].grouped(8)


class Build(Draft):
    """A draft with short names for what the cases are made of."""

    def x(self, *shape, name="x"):
        return self.input(name, TensorType(shape, "float16"))

    def linear(self, x, n, name, weight=None):
        k = self.type(x).shape[-1]
        w = weight or self.constant(f"{name}.w", quantize(RNG.normal(size=(n, k)), WT))
        return self.add(Linear(), (x, w), name)

    def turn(self, x, *order):
        return self.add(Transpose(order), (x,), "turn")

    def shape(self, x, *shape):
        return self.add(Reshape(shape), (x,), "shape")

    def done(self, *outputs):
        self.outputs = list(outputs)
        return self.graph()


def check(graph, conversions, *inputs, before=None, **options):
    """Propagate, run on the memory that was decided, compare; returns the propagated graph."""
    laid = graph.propagate("h200", **options)
    want = graph.run(*inputs)
    got, moved = run(laid, inputs)
    for a, b in zip(
        got if isinstance(got, tuple) else (got,),
        want if isinstance(want, tuple) else (want,),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert len(laid.layouts.conversions) == moved == conversions
    kernels, us = laid.layouts.before
    assert laid.layouts.us <= us
    if before is not None:
        assert kernels == before
    assert laid == graph, "a layout changes no meaning"
    return laid


def data(*shape):
    return RNG.normal(size=shape)
