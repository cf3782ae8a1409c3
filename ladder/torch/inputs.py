"""Checks of the tensors that a model on torch is called with, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ladder.checks import shown
from ladder.errors import GraphError, LaunchError
from ladder.graph.extent import bind
from ladder.graph.graph import Graph, Input
from ladder.runtime.plain import check_gradient
from ladder.torch.functions import torch_dtype

Tensor = Any
Sizes = dict[str, int]


def check_inputs(
    graph: Graph, given: Sequence[Any], device: Any
) -> tuple[dict[str, Tensor], Sizes]:
    """The inputs of a call by their names, and what the symbols of the graph's shapes are in it.

    Raises:
        GraphError: there are too few or too many.
        ShapeError: one does not have its shape.
        LaunchError: one is no dense tensor, is on another device or of another type, or requires a gradient.
    """
    if len(given) != len(graph.inputs):
        raise GraphError(
            f"{len(given)} inputs were given",
            at="Executor",
            hint="it takes " + (", ".join(map(_words, graph.inputs)) or "none"),
        )
    for one, tensor in zip(graph.inputs, given, strict=True):
        _check_tensor(tensor, _words(one))
        dtype = torch_dtype(one.type.dtype)
        if tensor.device != device or tensor.dtype != dtype:
            raise LaunchError(
                f"the tensor is {tensor.dtype} on {tensor.device}",
                at=_words(one),
                hint=f"give {dtype} on {device}",
            )
    names = [one.name for one in graph.inputs]
    return dict(zip(names, given, strict=True)), sizes_of(graph, given)


def sizes_of(graph: Graph, given: Sequence[Tensor]) -> Sizes:
    """What the symbols of a graph's shapes are in a call.

    Raises:
        ShapeError: an input does not have its shape.
    """
    sizes: Sizes = {}
    for one, tensor in zip(graph.inputs, given, strict=True):
        bind(one.type.shape, tuple(tensor.shape), sizes, _words(one))
    return sizes


def copy_inputs(held: Sequence[Tensor], given: Sequence[Any]) -> None:
    """Copy tensors of any device into those that a recorded call reads; all are checked before the first is copied.

    Raises:
        GraphError: there are too few or too many.
        LaunchError: one is no dense tensor, is of another shape or type, or requires a gradient.
    """
    if len(given) != len(held):
        raise GraphError(
            f"{len(given)} inputs were given, {len(held)} were captured",
            at="Captured",
            hint="give the inputs of the captured call",
        )
    for place, (mine, theirs) in enumerate(zip(held, given, strict=True)):
        _check_tensor(theirs, f"input {place}")
        if theirs.shape != mine.shape or theirs.dtype != mine.dtype:
            raise LaunchError(
                f"the tensor is {theirs.dtype}{list(theirs.shape)}, {mine.dtype}{list(mine.shape)} was captured",
                at=f"input {place}",
                hint="capture the model once for each shape",
            )
    for mine, theirs in zip(held, given, strict=True):
        mine.copy_(theirs)


def _check_tensor(given: Any, at: str) -> None:
    if not isinstance(given, torch.Tensor):
        raise LaunchError(
            f"{shown(given)} is no tensor of torch", at=at, hint="torch.from_numpy(array) makes one"
        )
    if given.layout != torch.strided:
        raise LaunchError(f"the tensor is {given.layout}", at=at, hint="give tensor.to_dense()")
    check_gradient(given, at)


def _words(one: Input) -> str:
    return f"input {one.name}: {one.type}"
