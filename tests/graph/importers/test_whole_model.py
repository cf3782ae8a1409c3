"""A small language model as libraries of models write it: embedding, positions, masks, repeated heads, every norm spelled out."""

from __future__ import annotations

import numpy as np
import pytest

import ladder
from ladder.graph.operators import Attention, Gather, Linear, RMSNorm, Rotary

torch = pytest.importorskip("torch")
F, nn = torch.nn.functional, torch.nn


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, h):
        dtype = h.dtype
        h = h.to(torch.float32)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * h.to(dtype)


class Angles(nn.Module):
    def __init__(self, size):
        super().__init__()
        frequencies = 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, x, positions):
        wide = self.frequencies[None, :, None].expand(positions.shape[0], -1, 1)
        turns = (wide @ positions[:, None, :].float()).transpose(1, 2)
        turns = torch.cat((turns, turns), dim=-1)
        return turns.cos().to(x.dtype), turns.sin().to(x.dtype)


def turned(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def repeated(x, times):
    b, groups, s, d = x.shape
    return x[:, :, None, :, :].expand(b, groups, times, s, d).reshape(b, groups * times, s, d)


class Block(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.size, self.times = width // heads, heads // groups
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, groups * self.size)
        self.v_proj = nn.Linear(width, groups * self.size)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.gate_proj = nn.Linear(width, 96, bias=False)
        self.up_proj = nn.Linear(width, 96, bias=False)
        self.down_proj = nn.Linear(96, width, bias=False)

    def attend(self, x, cos, sin, mask):
        shape = (*x.shape[:-1], -1, self.size)
        q, k, v = (
            p(x).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        q, k = (q * cos) + (turned(q) * sin), (k * cos) + (turned(k) * sin)
        k, v = repeated(k, self.times), repeated(v, self.times)
        weights = torch.matmul(q, k.transpose(2, 3)) * self.size**-0.5
        weights = weights + mask[:, :, :, : k.shape[-2]]
        weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
        weights = F.dropout(weights, p=0.0, training=False)
        y = torch.matmul(weights, v).transpose(1, 2).contiguous()
        return self.o_proj(y.reshape(*x.shape[:-1], -1).contiguous())

    def forward(self, x, cos, sin, mask):
        x = x + self.attend(self.norm1(x), cos, sin, mask)
        h = self.norm2(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.angles = nn.Embedding(50, 64), Angles(8)
        self.blocks = nn.ModuleList([Block(64, 8, 2) for _ in range(2)])
        self.norm, self.head = Norm(64), nn.Linear(64, 50, bias=False)

    def forward(self, tokens, attended):
        x = self.embedding(tokens)
        count = tokens.shape[1]
        positions = torch.arange(count, device=tokens.device).unsqueeze(0)
        least = torch.finfo(x.dtype).min
        mask = torch.triu(torch.full((count, count), least, dtype=x.dtype), diagonal=1)
        mask = mask[None, None, :, :].expand(tokens.shape[0], 1, -1, -1)
        mask = mask.masked_fill(attended[:, None, None, :] == 0, least)
        cos, sin = self.angles(x, positions)
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        return self.head(self.norm(x))


def inputs(batch, count):
    generator = torch.Generator().manual_seed(batch * count)
    attended = torch.ones(batch, count, dtype=torch.int64)
    attended[-1, :2] = 0
    return torch.randint(0, 50, (batch, count), generator=generator), attended


def test_a_whole_model_keeps_its_meaning_and_its_parts_are_recognised():
    torch.manual_seed(0)
    model = Model().eval()
    axes = {0: "batch", 1: "tokens"}
    graph = ladder.from_torch(model, inputs(2, 6), dynamic=(axes, axes))
    kinds = (Linear, RMSNorm, Rotary, Attention, Gather)
    assert [len(graph.of(kind)) for kind in kinds] == [15, 5, 4, 2, 1]
    for given in (inputs(2, 6), inputs(3, 9)):
        np.testing.assert_allclose(graph.run(*given), model(*given).detach().numpy(), atol=1e-5)
    report = ladder.verify(graph, model, inputs(2, 6))
    assert report.ok, str(report)
    assert report.cosine > 1 - 1e-9

    low = (
        graph.assign([ladder.Rule(name="head", weight=None), ladder.Rule(weight="int4", group=32)])
        .fuse()
        .propagate("h200")
    )
    assert not low.layouts.conversions
    assert low.layouts.before[0] >= 8
    assert len(low.of(Linear)) == 9
    report = ladder.verify(low, model, inputs(2, 6))
    assert report.ok, str(report)
    assert report.cosine > 0.99
