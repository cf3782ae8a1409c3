"""The rows of a results file: one JSON object for each case, in one array, a row a line."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.bar import error_bar
from benchmarks.grid import Case

Row = dict[str, Any]

#: keys of every row; a row that failed has ``failure`` too, and None where a number would stand
KEYS = (
    *("device", "driver", "toolkit", "date", "commit", "command", "n", "k", "m", "weight"),
    *("activation", "group_size", "launch", "us", "error", "peers"),
    *("type", "bar", "plan", "registers"),
)
PEERS = ("cublas_fp16", "humming")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and how a run was made.

    Attributes:
        device: name of the GPU.
        driver: version of its driver.
        toolkit: the CUDA compiler of the kernels.
        commit: of the compiler that made them.
        command: of the run.
        date: UTC, ISO 8601.
    """

    device: str
    driver: str
    toolkit: str
    commit: str
    command: str
    date: str

    @staticmethod
    def now() -> str:
        """The time, as rows write it."""
        return datetime.now(timezone.utc).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Measured:
    """What a case gave.

    Attributes:
        us: microseconds of a launch.
        error: relative error of its output.
        peers: microseconds by peer; those of :data:`PEERS` that are missing get None.
        plan: the plan in one line.
        registers: of a thread.
    """

    us: float
    error: float
    peers: dict[str, float | None]
    plan: str
    registers: int


def row(machine: Machine, case: Case, measured: Measured) -> Row:
    """The row of a case that ran."""
    numbers = {
        "us": round(measured.us, 3),
        "error": float(f"{measured.error:.3g}"),
        "peers": {name: _rounded(measured.peers.get(name)) for name in _peers(measured.peers)},
    }
    made = {"plan": measured.plan, "registers": measured.registers}
    return _ordered(machine, case, {**numbers, **made})


def failed(machine: Machine, case: Case, reason: str) -> Row:
    """The row of a case that did not run."""
    nothing: Row = {"us": None, "error": None, "peers": dict.fromkeys(PEERS)}
    return {
        **_ordered(machine, case, {**nothing, "plan": None, "registers": None}),
        "failure": " ".join(reason.split())[:300],
    }


def passes(found: Row) -> bool:
    """Whether a row has a time, and an error within its bar."""
    return "failure" not in found and found["error"] <= found["bar"]


def write(path: Path, found: Sequence[Row]) -> None:
    """Write all rows so that a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(each, allow_nan=False) for each in found)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(f"[\n{lines}\n]\n")
    Path(temporary).chmod(0o644)
    Path(temporary).replace(path)


def _ordered(machine: Machine, case: Case, numbers: Row) -> Row:
    wt, op = case.type, case.operator
    problem = {"n": case.n, "k": case.k, "m": case.m, "weight": case.weight}
    given = {
        **asdict(machine),
        **problem,
        "activation": case.activation,
        "group_size": wt.group[1],
        "launch": case.launch,
        "type": str(wt),
        "bar": float(f"{error_bar(op):.4g}"),
        **numbers,
    }
    return {key: given[key] for key in KEYS}


def _peers(found: dict[str, float | None]) -> tuple[str, ...]:
    return (*PEERS, *(name for name in found if name not in PEERS))


def _rounded(us: float | None) -> float | None:
    return None if us is None or not math.isfinite(us) else round(us, 3)
