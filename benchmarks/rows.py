"""The rows of a results file: one JSON object for each case, in one array, a row a line."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import ladder
from benchmarks.bar import error_bar
from benchmarks.grid import DEVICE, Case
from benchmarks.weights import weight_bytes

Row = dict[str, Any]

#: keys of every row; a row that failed has ``failure`` too, and None where a number would stand
KEYS = (
    *("device", "driver", "toolkit", "date", "commit", "command", "n", "k", "m", "weight"),
    *("activation", "group_size", "launch", "us", "error", "peers"),
    *("suite", "any_m", "type", "bar", "bound_us", "read_us", "share", "predicted_us", "ceilings"),
    *("plan", "registers", "epilogue"),
)
#: keys that rows of before them lack, and what they stand for there
ADDED = {"epilogue": ""}
PEERS = ("cublas_fp16", "humming")
#: keys that a row which failed has no number for
NUMBERS = ("us", "error", "read_us", "share", "predicted_us", "plan", "registers")


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
        read_us: microseconds of a plain launch that only reads the weight's bytes; None where that was not measured.
        predicted_us: what the cost model says.
        ceilings: its bounds, name -> microseconds.
    """

    us: float
    error: float
    peers: dict[str, float | None]
    plan: str
    registers: int
    read_us: float | None = None
    predicted_us: float | None = None
    ceilings: dict[str, float] = field(default_factory=dict)


def row(machine: Machine, case: Case, measured: Measured) -> Row:
    """The row of a case that ran."""
    us = round(measured.us, 3)
    numbers = {
        "us": us,
        "error": float(f"{measured.error:.3g}"),
        "peers": {name: _rounded(measured.peers.get(name)) for name in _peers(measured.peers)},
    }
    made = {
        "read_us": _rounded(measured.read_us),
        "share": round(bound_us(case) / us, 4),
        "predicted_us": _rounded(measured.predicted_us),
        "ceilings": {name: round(bound, 3) for name, bound in measured.ceilings.items()},
        "plan": measured.plan,
        "registers": measured.registers,
    }
    return _ordered(machine, case, {**numbers, **made})


def failed(machine: Machine, case: Case, reason: str) -> Row:
    """The row of a case that did not run."""
    nothing: Row = {**dict.fromkeys(NUMBERS), "peers": dict.fromkeys(PEERS), "ceilings": {}}
    return {
        **_ordered(machine, case, nothing),
        "failure": " ".join(reason.split())[:300],
    }


def bound_us(case: Case) -> float:
    """Microseconds in which the device can read the weight of a case: codes, scales and zeros at its measured rate."""
    rate: float = ladder.devices[DEVICE].dram_bytes_per_second
    return 1e6 * weight_bytes(case.type, case.n, case.k) / rate


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


def read(path: Path) -> list[Row]:
    """Read what :func:`write` wrote.

    Raises:
        ValueError: the file holds something else, or rows of an older version.
    """
    found = json.loads(path.read_text(encoding="utf-8"))
    found = [{**ADDED, **each} for each in found]
    for number, each in enumerate(found):
        missing = [key for key in KEYS if key not in each]
        if missing:
            raise ValueError(
                f"{path}: row {number} has no {', '.join(missing)}: measure again, or read it with the version of"
                f" commit {each.get('commit', 'unknown')}"
            )
    return found


def _ordered(machine: Machine, case: Case, numbers: Row) -> Row:
    wt, op = case.type, case.operator
    problem = {"n": case.n, "k": case.k, "m": case.m, "weight": case.weight}
    given = {
        **asdict(machine),
        **problem,
        "activation": case.activation,
        "group_size": wt.group[1],
        "launch": case.launch,
        "suite": case.suite,
        "any_m": case.any_m,
        "epilogue": case.epilogue,
        "type": str(wt),
        "bar": float(f"{error_bar(op):.4g}"),
        "bound_us": round(bound_us(case), 3),
        **numbers,
    }
    return {key: given[key] for key in KEYS}


def _peers(found: dict[str, float | None]) -> tuple[str, ...]:
    return (*PEERS, *(name for name in found if name not in PEERS))


def _rounded(us: float | None) -> float | None:
    return None if us is None or not math.isfinite(us) else round(us, 3)
