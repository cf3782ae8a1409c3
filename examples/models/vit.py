"""A ViT-Base encoder layer (Dosovitskiy et al. 2021): 768 wide, 12 heads, MLP of 3072, 197 tokens of an image."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional

import ladder

WIDTH, INNER, HEADS, TOKENS = 768, 3072, 12, 197


class EncoderLayer(nn.Module):
    """Norm first; q, k and v in one projection, as ViT's code has them."""

    def __init__(self, width: int = WIDTH, inner: int = INNER, heads: int = HEADS) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.fc1 = nn.Linear(width, inner)
        self.fc2 = nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, d = x.shape
        q, k, v = (
            self.qkv(self.norm1(x))
            .reshape(b, s, 3, self.heads, d // self.heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        y = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, s, d))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


def layer(
    width: int = WIDTH, inner: int = INNER, heads: int = HEADS, seed: int = 0
) -> EncoderLayer:
    """A layer with seeded weights."""
    torch.manual_seed(seed)
    return EncoderLayer(width, inner, heads).eval()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=int, default=1)
    by = parser.parse_args().scale
    width, tokens = WIDTH // by, max(5, TOKENS // by)
    module = layer(width, INNER // by, max(1, HEADS // by))
    x = torch.randn(2, tokens, width)
    graph = ladder.from_torch(module, (x,), dynamic=({0: "batch"},))
    low = graph.assign(ladder.Rule(weight="fp8_e4m3fn", group="channel")).fuse().propagate("h200")
    print(low.explain())
    print(ladder.verify(low, module, (x,)))


if __name__ == "__main__":
    main()
