"""Operators, graphs of them, and their reference meaning.

Read in this order: ``matmul`` (the operator that kernels are made for), ``extent`` and ``tensor`` (shapes with symbols),
``operators`` (all others), ``graph`` (the model as a value), ``interpret`` (what it means), ``importers`` (where it comes
from), ``rewrite``, ``assign`` and ``fuse`` (what is done to it), ``layouts`` (how its values lie in memory).
"""

from __future__ import annotations

from ladder.graph.dequantize import Dequantize, dequantize
from ladder.graph.matmul import MatMul, matmul
from ladder.graph.quantize_activations import QuantizeActivations, quantize_activations

__all__ = [
    "Dequantize",
    "MatMul",
    "QuantizeActivations",
    "dequantize",
    "matmul",
    "quantize_activations",
]
