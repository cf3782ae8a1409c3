"""Times beside the estimates: a measurer that is handed in fills ``measured_us``, and nothing else does.

A point of one kernel is what the measurer of tuning answers for its plan. A point of several is measured kernel by kernel and
added up, which the row says; a kernel that has no measurer leaves the row without a time and with a note.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ladder.experiments.lowering import Kernel, Lowering
from ladder.experiments.row import Row
from ladder.graph import MatMul
from ladder.runtime.error_bar import error_bar
from ladder.runtime.tuning.measure import Measured
from ladder.runtime.tuning.operands import SEED
from ladder.runtime.tuning.problem import Candidate, Problem
from ladder.runtime.tuning.worker import Failed
from ladder.ttile import Device

#: answers a candidate (of a product) or another kernel's plan
Answer = Callable[[Any], Measured | Failed]


@dataclass(frozen=True)
class Measure:
    """What measures the kernels of points.

    Attributes:
        products: the measurer of tuning: a :class:`~ladder.runtime.tuning.problem.Candidate` -> what it found.
        others: kernel's name ("dequantize", "quantize") -> what measures its plan.
        device: whose points can be measured; None for any.
    """

    products: Answer
    others: Mapping[str, Answer] = field(default_factory=dict)
    device: Device | None = None

    def row(self, row: Row, found: Lowering, seed: int) -> Row:
        """The row with its measurement, or with a note that says why there is none."""
        if seed != SEED:
            return replace(row, note=f"not measured: operands have the seed {SEED}")
        if self.device not in (None, found.point.device):
            return replace(row, note=f"not measured: no {row.device} here")
        if found.modelled_only:
            return replace(row, note=f"not measured: {found.modelled_only} has no kernel")
        total, errors = 0.0, []
        for kernel in found.kernels:
            answer = self._answer(kernel)
            why = _refused(kernel, answer)
            if why or isinstance(answer, Failed):
                return replace(row, note=f"{kernel.name} not measured: {why}")
            total += answer.us
            errors.append(answer.error)
        note = "" if len(found.kernels) == 1 else "sum of kernels that were measured one by one"
        return replace(
            row,
            measured_us=round(total, 3),
            measured_error=float(f"{max(errors):.3g}"),
            note=note,
        )

    def _answer(self, kernel: Kernel) -> Measured | Failed:
        plan = kernel.plan
        if kernel.name == "matmul":
            problem = Problem(plan.op, plan.device, plan.launch)
            return self.products(Candidate(problem, 0, plan, kernel.cost.us))
        if kernel.name not in self.others:
            return Failed("there is no measurer for it")
        return self.others[kernel.name](plan)


def _refused(kernel: Kernel, answer: Measured | Failed) -> str:
    """Why an answer is no measurement: it counts if the numbers were right."""
    if isinstance(answer, Failed):
        return answer.reason
    op = kernel.plan.op
    bar = error_bar(op) if isinstance(op, MatMul) else math.inf
    if not (math.isfinite(answer.error) and 0 <= answer.error <= bar):
        return f"relative error {answer.error:.3g} is above {bar:.3g}"
    if not (math.isfinite(answer.us) and answer.us > 0):
        return f"a launch took {answer.us} us"
    return ""
