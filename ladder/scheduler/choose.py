"""The packing of an operator."""

from __future__ import annotations

from ladder.errors import PackingError
from ladder.graph.matmul import MatMul
from ladder.scheduler.packing import Packing


def row_order(op: MatMul) -> str:
    """In which order the rows of an operator's weight are packed: in pairs where half of them gate the others."""
    return "paired" if op.gated else "natural"


def choose_packing(op: MatMul, features: frozenset[str]) -> Packing:
    """The packing of an operator's weight on devices with the given features.

    Raises:
        PackingError: with the padding of its groups, K has more columns than kernels can count.
    """
    from ladder.decode.derive import derive

    program = derive(op.element, op.weight_compute.name, features=features)
    packing = Packing(op.weight, op.n, op.k, program, order=row_order(op))
    cut = packing.geometry
    if cut.padded_k > 2**31 - 2**15:  # what a ring loads ahead is counted too
        raise PackingError(
            f"K = {op.k} in groups of {cut.group}, each padded to {cut.padded_group}, makes"
            f" {cut.padded_k} columns, more than kernels count",
            at=op,
            hint=f"groups of {program.step_k} or more, in powers of two, need no padding",
        )
    return packing
