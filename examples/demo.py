"""The main job: W4A16, groups of 128, for the output projection of LLaMA-2-70B (N = K = 8192) on an H200.

From declaration to a checked result: prints the type, the plan and the reasons for it, writes the kernel to a folder,
and runs it on weights of real size: on the GPU if there is one, otherwise by the plan's meaning in NumPy and, on a
slice, by executing the kernel on the CPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import ladder

N = K = 8192
TOKENS = 1
SLICE_N, SLICE_K = 64, 512
FOLDER = Path("build/demo")
BAR = 1e-3  # relative error: half of the last bit of a float16 output is 5e-4


@contextmanager
def step(what: str) -> Iterator[None]:
    """Announce a step and say how long it took."""
    print(f"\n== {what}")
    start = time.perf_counter()
    yield
    print(f"   ({time.perf_counter() - start:.2f} s)")


def relative_error(y: np.ndarray, exact: np.ndarray) -> float:
    """2-norm of the difference over the 2-norm of the reference."""
    return float(np.linalg.norm(y.astype(np.float64) - exact) / np.linalg.norm(exact))


def report(where: str, error: float) -> None:
    """Print an error, and stop where it is over the bar."""
    print(f"   {where}: relative error {error:.2e} against float64 (bar {BAR:.0e})")
    if not error <= BAR:
        raise SystemExit(f"{where} is wrong")


def describe() -> ladder.Plan:
    """Declare type and operator, and have them planned; everything that is decided prints."""
    weight = ladder.types["int4"].grouped(128, scale="float16", zero="integer")
    op = ladder.matmul(m=TOKENS, n=N, k=K, activation="float16", weight=weight)
    with step("the type"):
        print(f"{weight}: {weight.bits_per_weight(N, K):.4g} bits a weight")
        print(f"int4 means {ladder.types['int4'].values.tolist()}")
    with step("the plan"):
        plan = ladder.schedule(op, device="h200")
        print(plan)
    with step("the reasons"):
        print(plan.explain())
    return plan


def weights(n: int, k: int) -> np.ndarray:
    """Weights with the spread of a trained projection, rows of different size, float32 [n, k]."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, k), np.float32) * rng.uniform(0.01, 0.05, (n, 1)).astype("f4")


def activations(k: int) -> np.ndarray:
    """Tokens, float16 [TOKENS, k]."""
    return np.random.default_rng(1).standard_normal((TOKENS, k)).astype(np.float16)


def run_plan(plan: ladder.Plan, q: ladder.Quantized) -> None:
    """The plan's NumPy meaning at full size."""
    x = activations(K)
    with step(f"the plan in NumPy, N = K = {K}"):
        report("plan", relative_error(plan.run(x, q), plan.op.reference(x, q)))
