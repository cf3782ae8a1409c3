"""Operators and their reference meaning."""

from ladder.graph.matmul import MatMul, matmul

__all__ = ["MatMul", "matmul"]
