"""Quantising by a scale that is known before, by torch's operators: :mod:`ladder.graph.static_codes` on tensors."""

from __future__ import annotations

from typing import Any

import torch

from ladder.graph.epilogue import Coded
from ladder.ttype import compute_type

Tensor = Any


def static_codes(x: Tensor, step: Coded) -> Tensor:
    """Codes of x by one scale, rounded to nearest even and saturating; of a NaN 0 where codes are integers."""
    # by a tensor: on GPUs torch multiplies by the inverse of a plain number
    quotients = x.float() / torch.full((), step.scale, device=x.device)
    target = compute_type(step.target)
    held = quotients.clamp(target.min, target.max)
    if not target.is_float:
        held = held.round().nan_to_num(nan=0.0)
    codes: Tensor = held.to(getattr(torch, target.dtype.name))
    return codes


def static_rows(x: Tensor, step: Coded) -> tuple[Tensor, Tensor]:
    """The same as rows: codes ``[..., K]``, and the one scale for each ``[...]``, float32."""
    return with_scales(static_codes(x, step), step)


def with_scales(codes: Tensor, step: Coded) -> tuple[Tensor, Tensor]:
    """Codes beside the scale of each row."""
    scales = torch.full(codes.shape[:-1], step.scale, dtype=torch.float32, device=codes.device)
    return codes, scales


def static_numbers(x: Tensor, step: Coded) -> Tensor:
    """What the codes stand for, in x's type."""
    return static_codes(x, step).to(x.dtype) * step.scale
