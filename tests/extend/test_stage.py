"""A stage from outside the package: a step of the epilogue with its meaning and its emitter."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import ladder
from ladder.scheduler.stage import EpilogueStage

needs_tvm = pytest.mark.skipif(
    importlib.util.find_spec("tvm") is None, reason="the compile extra is not installed"
)


@dataclass(frozen=True)
class Clamp(EpilogueStage):
    """Keep outputs within two bounds."""

    name: ClassVar[str] = "clamp"
    least: float
    most: float

    def evaluate(self, y: np.ndarray, operands: dict[str, np.ndarray]) -> np.ndarray:
        return np.clip(y, np.float32(self.least), np.float32(self.most))

    def describe(self) -> str:
        return f"y = clamp(y, {self.least:g}, {self.most:g})"


def emit_clamp(kernel: Any, stage: Clamp, value: Any, place: Any) -> Any:
    from ladder.codegen import emit as e

    low, high = e.f32(stage.least), e.f32(stage.most)
    value = e.bind(value, "unclamped")
    raised = e.bind(e.select(value < low, low, value), "raised")
    return e.select(raised > high, high, raised)


@pytest.fixture
def with_emitter() -> Iterator[None]:
    from ladder.codegen.stages.epilogue import EPILOGUE_EMITTERS

    EPILOGUE_EMITTERS[Clamp] = emit_clamp
    yield
    del EPILOGUE_EMITTERS[Clamp]


def plans(
    m: int = 5, n: int = 37, k: int = 200, **decisions: Any
) -> tuple[ladder.Plan, ladder.Plan]:
    weight = ladder.types["int4"].grouped(64, scale="float16")
    op = ladder.matmul(m=m, n=n, k=k, activation="float16", weight=weight, bias=True)
    plan = ladder.schedule(op, device="h200", **decisions)
    return plan, plan.with_(epilogue=(*plan.epilogue, Clamp(-2.0, 3.0)))


def operands(op: ladder.MatMul) -> tuple[np.ndarray, ladder.Quantized, np.ndarray]:
    rng = np.random.default_rng(0)
    q = ladder.quantize(rng.standard_normal((op.n, op.k)), op.weight)
    x = rng.standard_normal((op.m, op.k)).astype(np.float16)
    return x, q, rng.standard_normal(op.n).astype(np.float16)


def test_the_plan_prints_and_runs_it() -> None:
    plain, clamped = plans()
    assert "clamp(y, -2, 3)" in str(clamped)
    assert clamped != plain
    x, q, bias = operands(plain.op)
    free = plain.run(x, q, bias)
    assert free.min() < -2
    assert free.max() > 3
    assert np.array_equal(clamped.run(x, q, bias), np.clip(free, -2, 3))


def test_an_operand_that_no_kernel_has_is_refused_by_name() -> None:
    class Second(Clamp):
        def evaluate(self, y: np.ndarray, operands: dict[str, np.ndarray]) -> np.ndarray:
            return y + operands["bias2"]

    plain, _ = plans()
    x, q, bias = operands(plain.op)
    wrong = plain.with_(epilogue=(*plain.epilogue, Second(0.0, 1.0)))
    with pytest.raises(ladder.LadderError, match="bias2"):
        wrong.run(x, q, bias)


@needs_tvm
@pytest.mark.usefixtures("with_emitter")
@pytest.mark.parametrize(
    "shape, decisions, fragments",
    [((5, 37, 200), {}, False), ((40, 136, 200), {"family": "specialised", "split": 1}, True)],
    ids=["finish", "store fragments"],
)
def test_its_kernel_computes_the_same_on_the_cpu(
    shape: tuple[int, int, int],
    decisions: dict[str, Any],
    fragments: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both stages that store run the epilogue."""
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    plain, clamped = plans(*shape, **decisions)
    assert clamped.stores_fragments == fragments
    kernel = ladder.compile(clamped)
    assert kernel.source != ladder.compile(plain).source
    x, q, bias = operands(plain.op)
    y = kernel(x, kernel.pack(q), bias=bias, device="emulator")
    exact = np.clip(plain.op.reference(x, q, bias), -2, 3)
    assert np.linalg.norm(y.astype(np.float64) - exact) < 1e-3 * np.linalg.norm(exact)


@needs_tvm
def test_without_an_emitter_it_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    _, clamped = plans()
    with pytest.raises(ladder.LadderError, match="clamp"):
        ladder.compile(clamped)
