"""Sweeps over decisions that are usually the scheduler's: where to convert, how many bits, which group, on what device.

Read in this order: ``sweep`` (what is varied), ``lowering`` (which kernels a point runs, and what they should take), ``row``
and ``table`` (what is known of a point, as tidy rows), ``measured`` (times beside the estimates), ``agreement`` (how well the
two agree), ``studies`` and ``figures`` (the two that are shipped).

    sweep = Sweep(shapes=[(8192, 8192)], weights=["int4"], groups=[128], ms=[1, 64, 4096])
    write(rows(sweep), "placement.csv")
"""

from __future__ import annotations

from ladder.experiments.agreement import agreement, disagreements, kendall_tau
from ladder.experiments.lowering import Lowering, kernels_of, lower, run
from ladder.experiments.row import Row, rows
from ladder.experiments.studies import STUDIES, Study
from ladder.experiments.sweep import PLACEMENTS, SOURCES, Point, Sweep
from ladder.experiments.table import read, totals, write

__all__ = [
    "PLACEMENTS",
    "SOURCES",
    "STUDIES",
    "Lowering",
    "Point",
    "Row",
    "Study",
    "Sweep",
    "agreement",
    "disagreements",
    "kendall_tau",
    "kernels_of",
    "lower",
    "read",
    "rows",
    "run",
    "totals",
    "write",
]
