"""The two records of tuning: a candidate that was measured (or failed), and the choice among those of one problem."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from types import NoneType
from typing import Any, ClassVar, TypeVar

from ladder.errors import TuningError
from ladder.runtime.packed import canonical
from ladder.runtime.tuning.problem import Candidate
from ladder.scheduler.tuned import TunedPlan, decisions_of, identity, packing_identity, version

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Machine:
    """On what is measured, and with what.

    Attributes:
        gpu: name of the GPU.
        place: which one of which host; measuring on one place at a time.
        driver: version of its driver.
        toolkit: the CUDA compiler of the kernels.
        build: digest of the compiling source and the toolkit; a time that another build gave is measured again.
    """

    gpu: str
    place: str
    driver: str
    toolkit: str
    build: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came of one candidate.

    Attributes:
        problem: key of the problem.
        operator: the operator, for people.
        candidate: digest of the plan.
        rank: place by the estimate.
        decisions: of the plan, JSON text.
        estimate_us: of the cost model.
        us: microseconds of a launch, the median; None where it failed.
        error: relative error of the output against float64; None where there was none.
        failure: why it failed, or None.
        gpu: name of the GPU.
        build: see :class:`Machine`.
        date: UTC, ISO 8601.
    """

    KIND: ClassVar[str] = "measured"

    problem: str
    operator: str
    candidate: str
    rank: int
    decisions: str
    estimate_us: float
    us: float | None
    error: float | None
    failure: str | None
    gpu: str
    build: str
    date: str

    @classmethod
    def of(
        cls,
        candidate: Candidate,
        machine: Machine,
        *,
        us: float | None = None,
        error: float | None = None,
        failure: str | None = None,
    ) -> Measurement:
        """The record of a candidate: a time and an error, or a failure."""
        problem = candidate.problem
        return cls(
            problem=problem.key,
            operator=str(problem.op),
            candidate=candidate.digest,
            rank=candidate.rank,
            decisions=decisions_of(candidate.plan),
            estimate_us=round(candidate.estimate_us, 3),
            us=us,
            error=error,
            failure=failure,
            gpu=machine.gpu,
            build=machine.build,
            date=now(),
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """The fastest of the candidates of a problem, as it stands in the database and in a table that is shipped.

    Attributes:
        problem: key of the problem.
        text: the operator, for people.
        operator, device, arch, version, packing, decisions, us: see :class:`ladder.scheduler.tuned.TunedPlan`.
        m, launch: for which rows and which launch.
        untuned_us: of the plan that the scheduler takes without measuring; None where that one failed.
        measured: candidates that gave a time.
        gpu, build, date: see :class:`Measurement`.
    """

    KIND: ClassVar[str] = "tuned"

    problem: str
    text: str
    operator: str
    m: int
    launch: str
    device: str
    arch: str
    version: str
    packing: str
    decisions: str
    us: float
    untuned_us: float | None
    measured: int
    gpu: str
    build: str
    date: str

    @classmethod
    def of(
        cls, best: Candidate, us: float, untuned_us: float | None, measured: int, machine: Machine
    ) -> Choice:
        """The record of the best candidate."""
        problem, plan = best.problem, best.plan
        return cls(
            problem=problem.key,
            text=str(problem.op),
            operator=identity(problem.op),
            m=problem.op.m or 0,
            launch=problem.launch,
            device=problem.device.name,
            arch=problem.device.arch,
            version=version(),
            packing=packing_identity(plan.packing),
            decisions=decisions_of(plan),
            us=us,
            untuned_us=untuned_us,
            measured=measured,
            gpu=machine.gpu,
            build=machine.build,
            date=now(),
        )

    def tuned(self, source: str) -> TunedPlan:
        """As the scheduler takes it."""
        return TunedPlan(
            operator=self.operator,
            device=self.device,
            arch=self.arch,
            version=self.version,
            packing=self.packing,
            decisions=self.decisions,
            us=self.us,
            source=source,
        )


Record = Measurement | Choice
R = TypeVar("R", Measurement, Choice)

#: annotation of a field -> the types of JSON that it may have
_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "float | None": (float, int, NoneType),
    "str | None": (str, NoneType),
}


def now() -> str:
    """The time, as records write it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def dump(record: Record) -> Json:
    """A record as JSON; decisions become an object that people can read."""
    parts = asdict(record)
    return {"kind": record.KIND, **parts, "decisions": json.loads(record.decisions)}


def load(node: object) -> Record:
    """Read what :func:`dump` made.

    Raises:
        TuningError: it is no record, or a field is missing or of another kind.
    """
    kind = node.get("kind") if isinstance(node, dict) else None
    if isinstance(node, dict) and kind == Measurement.KIND:
        return _read(Measurement, node)
    if isinstance(node, dict) and kind == Choice.KIND:
        return _read(Choice, node)
    raise TuningError(f"no record of kind {kind!r}", at="measured plans")


def _read(cls: type[R], node: Json) -> R:
    parts: Json = {}
    for field in fields(cls):
        value = node.get(field.name)
        if field.name == "decisions":
            value = canonical(value) if isinstance(value, dict) else None
        allowed = _TYPES[str(field.type)]
        if isinstance(value, bool) or not isinstance(value, allowed):
            raise TuningError(
                f"{field.name} is {value!r}, not {field.type}", at=f"a record of {cls.KIND} plans"
            )
        parts[field.name] = value
    us = parts["us"]
    if us is not None and not (math.isfinite(us) and us > 0):
        raise TuningError(f"a launch takes {us} us", at=f"a record of {cls.KIND} plans")
    return cls(**parts)


def refuse_constant(name: str) -> float:
    """For ``json.loads(parse_constant=...)``: numbers that are none are not JSON.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{name} is no JSON")
