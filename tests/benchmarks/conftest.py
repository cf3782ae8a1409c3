"""Benchmarks are no installed package: they are found from the root of the repository."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.append(ROOT)


@pytest.fixture(scope="session")
def made() -> Callable[..., dict[str, Any]]:
    """``made(case, us, ...)``: the row of a case as a run would write it."""
    from benchmarks.rows import Machine, Measured, row

    machine = Machine("NVIDIA H200", "580.1", "nvrtc 13", "abc", "python -m x", "2026-01-01")

    def make(case: Any, us: float, read_us: float | None = None, **peers: float) -> dict[str, Any]:
        ceilings = {"BW dram": us / 2, "P_D alu": us / 4, "P_D issue": us / 3, "P tensor": us / 100}
        measured = Measured(us, 2e-4, peers, "a plan", 64, read_us, us * 1.1, ceilings)
        return row(machine, case, measured)

    return make
