"""From an operator and a device to a plan: packing, candidates, cost, choice, and the checks that a plan must pass.

Read in this order: ``geometry`` and ``packing`` (how a weight lies), ``stage`` and ``plan`` (the decisions), ``verify``
(their rules), ``candidates``, ``cost``, ``ranking`` and ``search`` (the choice), ``interpret`` (what a plan means in NumPy), ``tuned``
(measured plans and what is checked of them), ``explain`` and ``table`` (how it reads), ``serial`` (JSON).

Beside the line stand ``hint`` and ``transform``: the paper's Algorithm 1, printed and tested, not used by the search. What an
access costs by the layouts alone (:mod:`ladder.ttile.access`) is not used by it either; tests hold the layouts to it.
"""

from __future__ import annotations

from ladder.scheduler.candidates import Rejected
from ladder.scheduler.choose import choose_packing
from ladder.scheduler.cost import Bound, Cost, estimate
from ladder.scheduler.epilogue import default_epilogue
from ladder.scheduler.geometry import KGeometry
from ladder.scheduler.packing import PACKING_VERSION, Packing
from ladder.scheduler.plan import Plan
from ladder.scheduler.planset import PlanSet
from ladder.scheduler.ranking import Ranking, rank
from ladder.scheduler.search import schedule, shortlist
from ladder.scheduler.serial import dump_packing, load_packing
from ladder.scheduler.stage import EpilogueStage, Stage
from ladder.scheduler.tiling import Tiling
from ladder.scheduler.tuned import TunedPlan, TunedPlans
from ladder.scheduler.verify import check, verify

__all__ = [
    "PACKING_VERSION",
    "Bound",
    "Cost",
    "EpilogueStage",
    "KGeometry",
    "Packing",
    "Plan",
    "PlanSet",
    "Ranking",
    "Rejected",
    "Stage",
    "Tiling",
    "TunedPlan",
    "TunedPlans",
    "check",
    "choose_packing",
    "default_epilogue",
    "dump_packing",
    "estimate",
    "load_packing",
    "rank",
    "schedule",
    "shortlist",
    "verify",
]
