"""Times beside the estimates: a measurer that is handed in fills ``measured_us``, and nothing else does.

A point of one kernel is what the measurer of tuning answers for its plan. A point of several is measured kernel by kernel and
added up, which the row says; a kernel that has no measurer, or that is not there, leaves the row without a time and with a
note. Each kernel is measured once, however many points run it: their rows hold the same time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ladder.experiments.lowering import Kernel, Lowering
from ladder.experiments.row import Row
from ladder.graph import MatMul
from ladder.runtime.error_bar import error_bar
from ladder.runtime.tuning.measure import Measured
from ladder.runtime.tuning.operands import SEED
from ladder.runtime.tuning.problem import Candidate, Problem
from ladder.runtime.tuning.worker import Failed
from ladder.ttile import Device

if TYPE_CHECKING:
    from ladder.runtime.tuning.kernels import Kernels

#: answers a candidate (of a product), or another kernel
Answer = Callable[[Any], Measured | Failed]


@dataclass(frozen=True)
class Measure:
    """What measures the kernels of points.

    Attributes:
        products: the measurer of tuning: a :class:`~ladder.runtime.tuning.problem.Candidate` -> what it found.
        others: kernel's name ("dequantize", "quantize") -> what measures a :class:`~ladder.experiments.lowering.Kernel` of it.
        device: whose points can be measured; None for any.
        kernels: makes kernels ready, or says why one is missing; None where measurers do that.
        remark: added to the note of each row that is measured.
    """

    products: Answer
    others: Mapping[str, Answer] = field(default_factory=dict)
    device: Device | None = None
    kernels: Kernels | None = None
    remark: str = ""
    _known: dict[str, Measured | Failed] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

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
        several = "" if len(found.kernels) == 1 else "sum of kernels that were measured one by one"
        return replace(
            row,
            measured_us=round(total, 3),
            measured_error=float(f"{max(errors):.3g}"),
            note="; ".join(filter(None, (several, self.remark))),
        )

    def _answer(self, kernel: Kernel) -> Measured | Failed:
        """What is known of a kernel, or now measured; what may work another time is asked again."""
        known = self._known.get(kernel.digest)
        if known is None:
            known = self._measured(kernel)
            if not isinstance(known, Failed) or known.lasting:
                self._known[kernel.digest] = known
        return known

    def _measured(self, kernel: Kernel) -> Measured | Failed:
        is_product = kernel.name == "matmul"
        if not is_product and kernel.name not in self.others:
            return Failed("there is no measurer for it")
        missing = None if self.kernels is None else self.kernels.missing(kernel)
        if missing is not None:
            return missing
        if not is_product:
            return self.others[kernel.name](kernel)
        plan = kernel.plan
        problem = Problem(plan.op, plan.device, plan.launch)
        return self.products(Candidate(problem, 0, plan, kernel.cost.us))


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
