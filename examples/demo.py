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


def build(plan: ladder.Plan) -> ladder.Kernel:
    """Compile the plan, and write everything that a launch needs to a folder."""
    with step("the kernel"):
        kernel = ladder.compile(plan)
        print(kernel)
        print(f"   {len(kernel.source.splitlines())} lines of CUDA, compiled by {kernel.toolchain}")
    with step("the artifact"):
        for path in sorted(kernel.save(FOLDER).rglob("*")):
            print(f"   {path} {path.stat().st_size} B")
    return kernel


def run_gpu(kernel: ladder.Kernel, q: ladder.Quantized) -> None:
    """The kernel on the GPU, at full size."""
    x = activations(K)
    with step(f"the kernel on the GPU, N = K = {K}"):
        packed = kernel.pack(q)
        print(f"   {q.nbytes / 2**20:.1f} MiB packed to {packed.nbytes / 2**20:.1f} MiB")
        report("kernel", relative_error(kernel(x, packed), kernel.plan.op.reference(x, q)))


def run_slice(plan: ladder.Plan) -> None:
    """A smaller kernel of the same kind, its instructions executed on the CPU."""
    op = ladder.matmul(m=TOKENS, n=SLICE_N, k=SLICE_K, activation="float16", weight=plan.op.weight)
    q, x = ladder.quantize(weights(SLICE_N, SLICE_K), op.weight), activations(SLICE_K)
    with step(f"the kernel on the CPU, a slice of N = {SLICE_N}, K = {SLICE_K}"):
        kernel = ladder.compile(ladder.schedule(op, device=plan.device))
        y = kernel(x, kernel.pack(q), device="emulator")
        report("kernel", relative_error(y, op.reference(x, q)))


def has_gpu(kernel: ladder.Kernel) -> bool:
    """Whether a GPU can be used; says why where none can."""
    try:
        found = kernel.launcher.driver.device_count()
    except ladder.LadderError as error:
        print(f"\nno GPU: {error.what}")
        return False
    return found > 0


def main() -> None:
    """All of it, in order."""
    plan = describe()
    kernel = build(plan)
    with step(f"weights, N = K = {K}"):
        q = ladder.quantize(weights(N, K), plan.op.weight)
        print(f"   {q!r}")
    if has_gpu(kernel):
        run_gpu(kernel, q)
    else:
        run_plan(plan, q)
        run_slice(plan)
    print("\nright.")


if __name__ == "__main__":
    main()
