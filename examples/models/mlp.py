"""A multi-layer perceptron: the journey of a model in ten lines."""

from __future__ import annotations

import torch
from torch import nn

import ladder


def mlp(width: int = 512, inner: int = 2048, out: int = 256, seed: int = 0) -> nn.Module:
    """Two hidden layers with biases and GELU; seeded weights."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(width, inner),
        nn.GELU(),
        nn.Linear(inner, inner),
        nn.GELU(),
        nn.Linear(inner, out),
    ).eval()


def main() -> None:
    module = mlp()
    x = torch.randn(3, 512)
    graph = ladder.from_torch(module, (x,), dynamic=({0: "tokens"},))
    low = graph.assign(ladder.Rule(weight="int4", group=128)).fuse().propagate("h200")
    print(low.explain())
    print(ladder.verify(low, module, (x,)))


if __name__ == "__main__":
    main()
