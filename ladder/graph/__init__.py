"""Operators and their reference meaning."""

from __future__ import annotations

from ladder.graph.matmul import MatMul, matmul
from ladder.graph.quantize_activations import QuantizeActivations, quantize_activations

__all__ = ["MatMul", "QuantizeActivations", "matmul", "quantize_activations"]
