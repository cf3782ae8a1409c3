"""Operators and their reference meaning."""

from __future__ import annotations

from ladder.graph.matmul import MatMul, matmul

__all__ = ["MatMul", "matmul"]
