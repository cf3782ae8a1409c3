"""A number format of one's own, and its kernel: everything between these lines and the tensor core is derived."""

from __future__ import annotations

import numpy as np

import ladder

cb3 = ladder.TType("my_cb3", bits=3, values=[-1, -0.5, -0.2, 0, 0.15, 0.35, 0.6, 1])
op = ladder.matmul(
    m=1, n=1024, k=1024, activation="float16", weight=cb3.grouped(64, scale="float16")
)
plan = ladder.schedule(op, device="h200")
kernel = ladder.compile(plan)
packed = kernel.pack(ladder.quantize(np.random.default_rng(0).normal(size=(1024, 1024)), op.weight))
print(kernel.source)
