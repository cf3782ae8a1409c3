"""What the scheduler chose, kept on disk: a question that was asked before is answered without a search.

A question is the operator, the device, what the caller fixed, and the source of the package; its answer is an entry of
:mod:`ladder.runtime.entries`, beside the compiled kernels. An answer is plans, and every plan that is read is verified; one
that cannot be read is a miss. Not kept is what depends on more than that: the answer to a question with measured plans, and
plans with an epilogue by hand, whose stages may be code from outside the package; nor what no text names, an operator or
device of a class from outside. The source is that of the files: who patches the scheduler in a running process asks
:func:`ladder.scheduler.schedule`, or sets ``LADDER_CACHE_DIR=off``.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

from ladder.checks import accept
from ladder.errors import LadderError, PlanError, ScheduleError
from ladder.graph.matmul import MatMul
from ladder.runtime.entries import Entries, cache_folder
from ladder.runtime.packed import canonical
from ladder.runtime.versions import package_version, source_digest
from ladder.scheduler import search
from ladder.scheduler.decisions import DEVICE
from ladder.scheduler.plan import Plan
from ladder.scheduler.planset import PlanSet
from ladder.scheduler.serial import MISREAD, decode, decode_own, encode, encode_own
from ladder.settings import Settings
from ladder.ttile import Device

#: raised whenever the form of an answer changes
FORM = "choices-v1"
OTHERWISE = "plans are searched for in every process"

Choose = TypeVar("Choose", bound=Callable[..., Any])


def entries_of(settings: Settings) -> Entries:
    """Where answers are kept."""
    return Entries(cache_folder(settings), FORM, ".json", OTHERWISE)


def remembering(choose: Choose) -> Choose:
    """The function ``choose``, called as :func:`ladder.scheduler.search.schedule` is, with its answers kept."""

    @functools.wraps(choose)
    def schedule(
        op: Any,
        device: str | Device = "h200",
        *,
        placement: str | None = None,
        tuned: Any = None,
        **fixed: Any,
    ) -> Any:
        def search_for_it() -> Any:
            return choose(op, device, placement=placement, tuned=tuned, **fixed)

        if not isinstance(op, MatMul) or tuned is not None:
            return search_for_it()
        on = accept(device, DEVICE, "device", at="schedule(device=...)", error=ScheduleError)
        decisions = search.fixed_decisions(placement, fixed)
        question = None if "epilogue" in decisions else _question(op, on, decisions)
        if question is None:
            return search_for_it()
        entries = entries_of(Settings.read())
        kept = entries.read(question)
        found = None if kept is None else _plans(kept, op, on)
        if found is None:
            found = search_for_it()
            entries.write(question, _answer(found))
        return found

    return cast("Choose", schedule)


#: :func:`ladder.scheduler.search.schedule`, which does not search for what it found before
schedule = remembering(search.schedule)


def _question(op: MatMul, device: Device, decisions: Mapping[str, Any]) -> str | None:
    """The digest of all that a choice depends on; None where text cannot say it: a part is of a class from outside."""
    try:
        asked = (
            _digest_of(device),
            encode(op),
            {name: encode(part) for name, part in decisions.items()},
        )
    except PlanError:
        return None
    parts = (package_version(), source_digest(), *asked)
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


@lru_cache(maxsize=16)
def _digest_of(device: Device) -> str:
    return hashlib.sha256(canonical(encode(device)).encode()).hexdigest()


def _answer(found: Plan | PlanSet) -> bytes:
    plans = [found] if isinstance(found, Plan) else found.plans
    own = [encode_own(plan) for plan in plans]
    return json.dumps({"packing": encode(found.packing), "plans": own}).encode()


def _plans(kept: bytes, op: MatMul, device: Device) -> Plan | PlanSet | None:
    """The plans of an answer; None where they cannot be read."""
    try:
        document = json.loads(kept)
        shared = {"op": op, "device": device, "packing": decode(document["packing"])}
        plans = tuple(decode_own(node, **shared) for node in document["plans"])
        return PlanSet(plans) if op.m is None else plans[0]
    except (LadderError, *MISREAD):
        return None
