"""LLaMA decoder layers: from a PyTorch module to a 4-bit graph that is checked layer by layer.

    python examples/models/llama.py --model llama-2-70b --rule int4 --scale 16

Real dimensions, seeded weights, nothing downloaded. ``--scale 16`` divides every dimension by 16, so that it runs in seconds
on a CPU; leave it out for the real layer (and have the memory that it takes).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

import ladder


@dataclass(frozen=True)
class Config:
    """Dimensions of a decoder layer: hidden and MLP width, heads of queries, heads of keys and values."""

    hidden: int
    inner: int
    heads: int
    groups: int
    eps: float = 1e-5

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    def scaled(self, by: int) -> Config:
        """Every width divided; as many heads as are left with a head size of at least 8."""
        hidden, inner = self.hidden // by, self.inner // by // 16 * 16
        heads = max(2, min(self.heads // 4, hidden // 16))
        groups = max(1, heads * self.groups // self.heads)
        return Config(hidden, inner, heads, groups, self.eps)


#: Touvron et al. 2023 (LLaMA-2); Dubey et al. 2024 (LLaMA-3)
CONFIGS = {
    "llama-2-7b": Config(4096, 11008, 32, 32),
    "llama-3-8b": Config(4096, 14336, 32, 8),
    "llama-2-70b": Config(8192, 28672, 64, 8),
}


class RMSNorm(nn.Module):
    """As LLaMA's code spells it: in float32, whatever the model's type."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return wide.to(x.dtype) * self.weight


class Attention(nn.Module):
    """Grouped-query attention with rotary embedding; with a cache, of one more token."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        self.q_proj = nn.Linear(c.hidden, c.heads * c.head, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.groups * c.head, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.groups * c.head, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head, c.hidden, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        cache: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        b, s, _ = x.shape
        q, k, v = (
            project(x).view(b, s, heads, self.c.head).transpose(1, 2)
            for project, heads in (
                (self.q_proj, self.c.heads),
                (self.k_proj, self.c.groups),
                (self.v_proj, self.c.groups),
            )
        )
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        y = functional.scaled_dot_product_attention(
            q, k, v, is_causal=cache is None, enable_gqa=self.c.groups != self.c.heads
        )
        return self.o_proj(y.transpose(1, 2).reshape(b, s, -1)), k, v


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    lower, upper = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-upper, lower], dim=-1) * sin


class MLP(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.inner, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.inner, bias=False)
        self.down_proj = nn.Linear(c.inner, c.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """``forward(x, cos, sin)`` for a prompt, ``forward(x, cos, sin, keys, values)`` for one more token."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.input_norm = RMSNorm(c.hidden, c.eps)
        self.attention = Attention(c)
        self.post_norm = RMSNorm(c.hidden, c.eps)
        self.mlp = MLP(c)

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        keys: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        cache = None if keys is None else (keys, values)
        y, keys, values = self.attention(self.input_norm(x), cos, sin, cache)
        x = x + y
        x = x + self.mlp(self.post_norm(x))
        return x if cache is None else (x, keys, values)


def layer(
    c: Config, dtype: torch.dtype = torch.float32, seed: int = 0, device: str = "cpu"
) -> DecoderLayer:
    """A layer with seeded weights: normal, of the size that keeps activations near 1."""
    generator = torch.Generator(device).manual_seed(seed)
    with torch.device(device):
        found = DecoderLayer(c).to(dtype).eval()
    with torch.no_grad():
        for weight in found.parameters():
            if weight.ndim == 2:
                weight.normal_(0, weight.shape[1] ** -0.5, generator=generator)
            else:
                weight.uniform_(0.5, 1.5, generator=generator)
    return found


def angles(c: Config, first: int, count: int, dtype: torch.dtype) -> tuple:
    """cos and sin of ``count`` tokens from ``first`` on, each angle twice."""
    frequencies = 10000.0 ** (-torch.arange(0, c.head, 2, dtype=torch.float64) / c.head)
    turns = torch.outer(torch.arange(first, first + count, dtype=torch.float64), frequencies)
    turns = torch.cat([turns, turns], dim=-1)
    return turns.cos().to(dtype), turns.sin().to(dtype)


def prompt(
    c: Config, batch: int, tokens: int, dtype: torch.dtype = torch.float32, seed: int = 1
) -> tuple:
    """Inputs of a prompt and their dynamic axes."""
    x = torch.randn(batch, tokens, c.hidden, generator=torch.Generator().manual_seed(seed))
    dynamic = ({0: "batch", 1: "tokens"}, {0: "tokens"}, {0: "tokens"})
    return (x.to(dtype), *angles(c, 0, tokens, dtype)), dynamic


def next_token(
    c: Config, batch: int, context: int, dtype: torch.dtype = torch.float32, seed: int = 2
) -> tuple:
    """Inputs of one more token behind a cache of ``context``, and their dynamic axes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, 1, c.hidden, generator=generator)
    keys, values = torch.randn(2, batch, c.groups, context, c.head, generator=generator)
    dynamic = ({0: "batch"}, {}, {}, {0: "batch", 2: "context"}, {0: "batch", 2: "context"})
    inputs = (x, *angles(c, context, 1, torch.float32), keys, values)
    return tuple(one.to(dtype) for one in inputs), dynamic


RULES = {
    "int4": ladder.Rule(weight="int4", group=128, zero="integer"),
    "nf4": ladder.Rule(weight="nf4", group=64),
    "fp8": ladder.Rule(weight="fp8_e4m3fn", group="channel"),
    "int8": ladder.Rule(weight="int8", group="channel", activation="int8"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=CONFIGS, default="llama-2-70b")
    parser.add_argument("--rule", choices=RULES, default="int4")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--context", type=int, default=0, help="decode one token behind a cache")
    options = parser.parse_args()
    config = CONFIGS[options.model]
    config = config.scaled(options.scale) if options.scale > 1 else config
    inputs, dynamic = (
        next_token(config, 2, options.context) if options.context else prompt(config, 2, 8)
    )
    module = layer(config)
    graph = ladder.from_torch(module, inputs, dynamic=dynamic)
    low = graph.assign(RULES[options.rule]).fuse().propagate("h200")
    print(low)
    print(low.explain())
    report = ladder.verify(low, module, inputs)
    print(report)
    assert report.ok


if __name__ == "__main__":
    main()
