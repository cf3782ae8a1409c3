"""A number format from outside the package goes all the way, and nothing in the package has heard of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ladder

ROOT = Path(__file__).parents[2]
VALUES = [-1, -0.5, -0.25, 0, 0.125, 0.375, 0.625, 1]  # exact in float16, no format's values
CB3 = ladder.TType("outside_cb3", bits=3, values=VALUES)


def operands(weight: object, m: int, n: int, k: int) -> tuple[np.ndarray, ladder.Quantized]:
    rng = np.random.default_rng(n * k)
    q = ladder.quantize(rng.standard_normal((n, k)), weight)
    return rng.standard_normal((m, k)).astype(np.float16), q


def relative_error(y: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(y.astype(np.float64) - exact) / np.linalg.norm(exact))


def test_the_package_does_not_know_it() -> None:
    assert "outside_cb3" not in ladder.types
    for path in (ROOT / "ladder").rglob("*.py"):
        assert "outside_cb3" not in path.read_text(encoding="utf-8")


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=50))
def test_it_encodes_to_the_nearest_of_its_values(numbers: list[float]) -> None:
    decoded = CB3.decode(CB3.encode(numbers))
    nearest = np.abs(np.subtract.outer(np.asarray(numbers), np.asarray(VALUES, float))).min(axis=1)
    assert np.array_equal(np.abs(np.asarray(numbers) - decoded), nearest)


@pytest.mark.parametrize("group", [64, "channel", (16, 32)])
@pytest.mark.parametrize("activation", ["float16", "bfloat16"])
def test_it_is_planned_packed_and_computed(group: object, activation: str) -> None:
    weight = CB3.grouped(group, scale="float16")
    op = ladder.matmul(m=3, n=48, k=192, activation=activation, weight=weight, out="float32")
    plan = ladder.schedule(op, device="h200")
    x, q = operands(weight, 3, 48, 192)
    x = x.astype(op.activation.dtype)
    assert plan.packing.unpack(plan.packing.pack(q)) == q
    assert relative_error(plan.run(x, q), op.reference(x, q)) < 1e-5


@settings(max_examples=8)
@given(st.integers(1, 70), st.integers(1, 300), st.integers(1, 9))
def test_odd_shapes_are_no_special_case(n: int, k: int, m: int) -> None:
    weight = CB3.grouped(32, scale="float32")
    op = ladder.matmul(m=m, n=n, k=k, activation="float16", weight=weight, out="float32")
    plan = ladder.schedule(op, device="a100")
    x, q = operands(weight, m, n, k)
    exact = op.reference(x, q)
    assert np.abs(plan.run(x, q) - exact).max() <= 1e-4 * max(1.0, np.abs(exact).max())


@pytest.mark.skipif(
    importlib.util.find_spec("tvm") is None, reason="the compile extra is not installed"
)
@pytest.mark.parametrize("m", [1, 24])
def test_its_kernel_computes_the_same_on_the_cpu(
    m: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    weight = CB3.grouped(64, scale="float16")
    op = ladder.matmul(m=m, n=40, k=256, activation="float16", weight=weight)
    kernel = ladder.compile(ladder.schedule(op, device="h200"))
    x, q = operands(weight, m, 40, 256)
    y = kernel(x, kernel.pack(q), device="emulator")
    assert relative_error(y, op.reference(x, q)) < 1e-3


def test_registered_it_is_found_by_name() -> None:
    pair = ladder.TType("outside_pair", bits=1, values=[-3, 5])
    ladder.types.register(pair)
    op = ladder.matmul(m=1, n=16, k=16, activation="float16", weight="outside_pair")
    assert op.element == pair
    with pytest.raises(ladder.LadderError, match="taken"):
        ladder.types.register(pair)
