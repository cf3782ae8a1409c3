"""Small models, and the one that most tests look at."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import ladder
from ladder.graph.draft import Draft
from ladder.graph.operators import (
    Activated,
    AddResidual,
    Biased,
    Linear,
)
from ladder.graph.tensor import TensorType
from ladder.model.model import compile_graph
from ladder.ttype import quantize

RNG = np.random.default_rng(0)
STEPS = (Activated("silu"), AddResidual())
MODELS = Path(__file__).parents[2] / "examples" / "models"


COMPILES = pytest.mark.skipif(
    importlib.util.find_spec("tvm") is None, reason="needs the compile extra"
)


def small(m=3, bias=True, steps=STEPS):
    draft = Draft()
    x = draft.input("x", TensorType((m, 64), "float16"))
    w = draft.constant("w", quantize(RNG.normal(size=(64, 64)), ladder.types["int4"].grouped(32)))
    operands = [x] * sum(step.operands for step in steps)
    if bias:
        b = draft.constant("b", RNG.normal(size=64).astype(np.float16))
        steps, operands = [Biased(), *steps], [b, *operands]
    y = draft.add(Linear(tuple(steps)), (x, w, *operands), "y")
    draft.outputs = [draft.add(Linear(), (y, w), "z")]
    return draft.graph()


@pytest.fixture(scope="module")
def model():
    return compile_graph(small())


X = RNG.normal(size=(3, 64)).astype(np.float16)
