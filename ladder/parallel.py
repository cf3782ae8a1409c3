"""Work on rows of large arrays in several threads: NumPy lets go of Python's lock while it computes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

#: threads at most; memory is the limit beyond
MOST_THREADS = 16

Given = TypeVar("Given")
Result = TypeVar("Result")


def threads() -> int:
    """Threads that this process may run at a time."""
    if hasattr(os, "sched_getaffinity"):
        return min(MOST_THREADS, len(os.sched_getaffinity(0)))
    return min(MOST_THREADS, os.cpu_count() or 1)


def each(work: Callable[[Given], Result], parts: Sequence[Given]) -> list[Result]:
    """``work`` of every part, in order; the first error is raised."""
    if len(parts) < 2 or threads() < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(min(threads(), len(parts))) as pool:
        return list(pool.map(work, parts))
