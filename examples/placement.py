"""Where should codes become numbers? Fix the answer by hand, and compare the plans and what they compute."""

from __future__ import annotations

import numpy as np

import ladder

N, K, M = 1024, 2048, 64

weight = ladder.types["nf4"].grouped(64, scale="float16")
op = ladder.matmul(m=M, n=N, k=K, activation="float16", weight=weight)
chosen = ladder.schedule(op, device="a100")
print(chosen.explain())

rng = np.random.default_rng(0)
q = ladder.quantize(rng.normal(size=(N, K)), weight)
x = rng.normal(size=(M, K)).astype(np.float16)
exact = op.reference(x, q)

for placement in ("register", "shared"):
    plan = ladder.schedule(op, device="a100", placement=placement)
    error = np.linalg.norm(plan.run(x, q) - exact) / np.linalg.norm(exact)
    print(f"\nconvert in {placement}: {plan.shared_bytes} B of shared memory, error {error:.1e}")
    print(plan)
    assert error < 1e-3
