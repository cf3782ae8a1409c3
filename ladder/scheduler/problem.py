"""What a rule of the plan checker finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ladder.scheduler.plan import Plan


class Problem(NamedTuple):
    """One broken rule: what was found, and what to do about it."""

    what: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.hint})" if self.hint else self.what


Rule = Callable[[Plan], Iterator[Problem]]
