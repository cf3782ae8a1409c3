"""The price of a decode program: cycles of a warp's sub-partition per step, as the kernels feel them.

The rates are those of sm_80 .. sm_90 (measured on an H200: LOP3, PRMT, SHF and F2FP issue every second cycle, HFMA2
every cycle, one conflict-free LDS every fourth because four sub-partitions share the load pipe). Skinny kernels are
bound by latency, not by one pipe, so the cycles of ALU and FMA are added up: both issue in order. A load is on its way
while its warp goes on, so those cycles are only partly added: the root of the sum of squares. It puts eight decodes of
codebooks by hand in the order of their times (H200, 28672 x 8192, one token; ALU, LSU cycles: us), which neither their sum
nor the larger one does: 3 bits (13.5, 12: 27.1), (18.5, 12: 31.0), (22.5, 0: 32.6); 4 bits (8, 16: 29.8), (15, 12: 30.4),
(15, 16: 30.8), (23, 8: 38.0), (38, 0: 49.6).
"""

from __future__ import annotations

import math

from ladder.decode.program import Affine, DecodeProgram

#: cycles per warp instruction and sub-partition
CYCLES = {"alu": 2.0, "fma": 1.0, "lsu": 4.0}
#: cycles per step for each further accumulator class: its FFMAs at the end of a group, and its registers
CLASS_CYCLES = 1.0
#: cycles per step for a zero left to the accumulators: the sums of the activations
ZERO_CYCLES = 2.0
#: cycles per step for a factor left to the accumulators: it joins the group scale, so hardly anything
SCALE_CYCLES = 0.25
#: cycles per step for each KiB of table, which the ring of weights in flight then lacks
TABLE_CYCLES_PER_KIB = 1 / 16


def issue(pipes: dict[str, float], classes: int = 1) -> float:
    """Cycles per step (8 codes of a lane) of so many operations per step by pipe, and of further classes."""
    busy = {pipe: CYCLES[pipe] * count for pipe, count in pipes.items()}
    loads = busy.pop("lsu", 0.0)
    return math.hypot(sum(busy.values()), loads) + CLASS_CYCLES * (classes - 1)


def deferral(affine: Affine) -> float:
    """Cycles per step for what the accumulators have to make good."""
    return (ZERO_CYCLES if affine.beta else 0.0) + (SCALE_CYCLES if affine.alpha != 1 else 0.0)


def cycles(program: DecodeProgram) -> float:
    """Cycles per step of a finished program."""
    table_kib = program.table.nbytes / 1024 if program.table else 0.0
    deferred = max(deferral(affine) for pair in program.affine for affine in pair)
    return issue(program.pipes(), program.classes) + deferred + TABLE_CYCLES_PER_KIB * table_kib
