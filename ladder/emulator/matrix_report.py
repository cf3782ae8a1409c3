"""What the matrix of types and families found, as JSON and as a page."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path

UNSEEN = ("unseen", "unreached")


@dataclass(frozen=True)
class Row:
    """One kernel over its schedules.

    Attributes:
        case: type, activation, family and shape in words.
        schedules: how many ran.
        fault: the first fault, or "".
        plan_error: largest relative error against the plan in NumPy.
        error: largest relative error against the operator in float64.
        refused: why there is no such kernel, or "".
        seconds: that all schedules took.
    """

    case: str
    schedules: int = 0
    fault: str = ""
    plan_error: float = 0.0
    error: float = 0.0
    refused: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Dropped:
    """What one dropped instruction led to on the random, eager and lazy schedule.

    Verdicts are kinds of fault, ``wrong`` numbers, ``unseen``, or ``unreached`` when no warp came to it.
    """

    family: str
    instruction: str
    verdicts: tuple[str, ...]


@dataclass
class MatrixReport:
    """Rows and verdicts, written to ``path`` and, for people, beside it with the suffix ``.md``.

    Attributes:
        path: of the JSON.
        arguments: of the command line.
        rows: one of each kernel.
        dropped: one of each instruction left out.
    """

    path: Path
    arguments: str = ""
    rows: list[Row] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)

    def write(self) -> None:
        """Write both files."""
        record = {
            "command": f"python -m ladder.emulator.matrix {self.arguments}".strip(),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "commit": commit(),
            "python": platform.python_version(),
            "rows": [asdict(row) for row in self.rows],
            "dropped": [asdict(verdict) for verdict in self.dropped],
        }
        self.path.write_text(json.dumps(record, indent=1) + "\n")
        self.path.with_suffix(".md").write_text(self.page(record["command"]))

    def read(self) -> None:
        """Take rows and verdicts from the file, if there is one, to go on from there."""
        if not self.path.exists():
            return
        record = json.loads(self.path.read_text())
        self.rows = [Row(**row) for row in record["rows"]]
        self.dropped = [
            Dropped(d["family"], d["instruction"], tuple(d["verdicts"])) for d in record["dropped"]
        ]

    def summary(self) -> str:
        """One line for the end of a run."""
        ran = [row for row in self.rows if row.schedules]
        return (
            f"{len(ran)} kernels on {sum(row.schedules for row in ran)} schedules, "
            f"{sum(bool(row.fault) for row in self.rows)} with a fault; "
            f"{len(self.dropped)} dropped, {len(self.unseen())} never seen"
        )

    def unseen(self) -> list[Dropped]:
        """Dropped instructions that no schedule saw."""
        return [d for d in self.dropped if all(verdict in UNSEEN for verdict in d.verdicts)]

    def page(self, command: object) -> str:
        """Tables by family and by type, and every dropped instruction that was not seen."""
        lines = ["# Every type through every family on the emulator", ""]
        lines += [f"`{command}`, {datetime.now(timezone.utc).date()}, commit {commit()}.", ""]
        lines += [f"{self.summary()}.", "", "## Families", ""]
        lines += _table(
            "family | kernels | refused | schedules | fewest a kernel | faults | largest error to the plan"
            " | dropped | caught | caught by some | unseen | unreached",
            (
                self._family(name)
                for name in dict.fromkeys(row.case.split()[2] for row in self.rows)
            ),
        )
        lines += ["", "## Types", "", "Per family: schedules of float16 and of bfloat16.", ""]
        families = list(dict.fromkeys(row.case.split()[2] for row in self.rows))
        lines += _table(" | ".join(["type", *families, "faults", "error"]), self._types(families))
        lines += ["", "## Dropped instructions that some schedule did not see", ""]
        lines += _table(
            "family | instruction | random, eager, lazy",
            (
                f"{d.family} | `{d.instruction}` | {', '.join(d.verdicts)}"
                for d in self.dropped
                if any(verdict in UNSEEN for verdict in d.verdicts)
            ),
        )
        lines += ["", "## Faults", ""]
        lines += [f"* {row.case}: {row.fault}" for row in self.rows if row.fault] or ["None."]
        lines += ["", "## Refusals", ""]
        refused = Counter(_reason(row.refused) for row in self.rows if row.refused)
        lines += [f"* {text}: {count} kernels" for text, count in refused.items()] or ["None."]
        return "\n".join(lines) + "\n"

    def _family(self, name: str) -> str:
        rows = [row for row in self.rows if row.case.split()[2] == name]
        ran = [row for row in rows if row.schedules]
        dropped = [d for d in self.dropped if d.family.split(",")[0] == name]
        blind = [[verdict in UNSEEN for verdict in d.verdicts] for d in dropped]
        unreached = sum(set(d.verdicts) == {"unreached"} for d in dropped)
        cells = (
            name,
            len(ran),
            sum(bool(row.refused) for row in rows),
            sum(row.schedules for row in ran),
            min((row.schedules for row in ran), default=0),
            sum(bool(row.fault) for row in rows),
            f"{max((row.plan_error for row in ran), default=0):.1e}",
            len(dropped),
            sum(not any(b) for b in blind),
            sum(any(b) and not all(b) for b in blind),
            sum(all(b) for b in blind) - unreached,
            unreached,
        )
        return " | ".join(map(str, cells))

    def _types(self, families: list[str]) -> Iterable[str]:
        for name in dict.fromkeys(row.case.split()[0] for row in self.rows):
            rows = [row for row in self.rows if row.case.split()[0] == name]
            cells = [name]
            for family in families:
                of = [row for row in rows if row.case.split()[2] == family]
                cells.append(", ".join("refused" if r.refused else str(r.schedules) for r in of))
            cells.append(str(sum(bool(row.fault) for row in rows)))
            cells.append(f"{max(row.error for row in rows):.1e}")
            yield " | ".join(cells)


def _reason(refused: str) -> str:
    """A refusal without the operator and its numbers, each reason once."""
    text = re.sub(r"matmul\(.*\) on \w+", "the matmul", refused)
    head, _, reasons = re.sub(r"\d+", "#", text).partition(": ")
    parts = sorted({part.strip() for part in reasons.split(";")})
    return f"{head}: {'; '.join(parts)}" if reasons else head


def commit() -> str:
    """Commit of the working directory, ``-dirty`` where it holds changes; nothing where there is none."""
    try:
        done = subprocess.run(
            ("git", "describe", "--always", "--dirty"), capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _table(head: str, rows: Iterable[str]) -> list[str]:
    return [f"| {head} |", "|" + "---|" * (head.count(" | ") + 1), *(f"| {row} |" for row in rows)]
