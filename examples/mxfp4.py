"""MXFP4: 4-bit floats in blocks of 32 that share a power of two (OCP Microscaling Formats 1.0).

The scale spans 2^-127 to 2^127. A float16 operand could not hold the product of scale and element, so the scale
waits for the float32 accumulator. With bfloat16 activations nothing changes but the compute type.
"""

from __future__ import annotations

import numpy as np

import ladder

N, K = 512, 2048
ROWS = 4

mxfp4 = ladder.types["mxfp4"]
rng = np.random.default_rng(0)
weights = rng.normal(size=(N, K)) * 2.0 ** rng.integers(
    -30, 0, size=(N, 1)
)  # rows of very different size
q = ladder.quantize(weights, mxfp4)
print(f"{mxfp4}: {q.codes.shape} codes, {q.scales.shape} scales of {q.scales.dtype}")

for activation in ("float16", "bfloat16"):
    op = ladder.matmul(m=ROWS, n=N, k=K, activation=activation, weight=mxfp4, out="float32")
    plan = ladder.schedule(op, device="h200")
    x = rng.normal(size=(ROWS, K)).astype(op.activation.dtype)
    exact = op.reference(x, q)
    error = np.linalg.norm(plan.run(x, q) - exact) / np.linalg.norm(exact)
    print(f"{activation}: relative error {error:.1e}")
    print(plan)
    assert error < 1e-5  # float32 sums of exact products
