"""The tuning database: a shipped table for each device, and over it what this user measured.

>>> plan = ladder.schedule(op, "h200", tuned=ladder.tuned())

It answers the scheduler's :class:`~ladder.scheduler.tuned.TunedPlans`; whether an answer may be used is the scheduler's
business. A table is one JSON object, ``{"format": ..., "note": ..., "entries": [...]}``, an entry a line, as
``ladder tune --out`` writes it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import platformdirs

import ladder
from ladder.errors import TuningError
from ladder.graph import MatMul
from ladder.runtime.packed import write_atomically
from ladder.runtime.tuning.journal import Journal
from ladder.runtime.tuning.problem import problem_key
from ladder.runtime.tuning.record import Choice, dump, load, refuse_constant
from ladder.scheduler.tuned import TunedPlan, identity
from ladder.settings import Settings
from ladder.ttile import Device

FORMAT = "ladder.tuned/1"
OFF = "off"
SHIPPED = Path(ladder.__path__[0]) / "catalog" / "tuned"


class Database:
    """Measured plans of this machine's user, and those that are shipped.

    Args:
        folder: where the user's journals lie, or None for shipped tables alone.
        shipped: folder of tables, ``DEVICE.json`` each.
    """

    def __init__(self, folder: Path | None, shipped: Path = SHIPPED) -> None:
        self.folder = folder
        self._shipped = shipped
        self._tables: dict[str, dict[str, Choice]] = {}
        self._journals: dict[str, Journal] = {}

    def journal(self, device: str) -> Journal:
        """The user's journal of a device.

        Raises:
            TuningError: there is no folder to keep one in.
        """
        if self.folder is None:
            raise TuningError(
                "there is no folder for what is measured",
                at="LADDER_TUNED_DIR",
                hint="set it to a folder, or unset it where it is `off`",
            )
        return self._journals.setdefault(device, Journal.of(self.folder, device))

    def lookup(self, op: MatMul, device: Device, launch: str) -> Sequence[TunedPlan]:
        """See :class:`~ladder.scheduler.tuned.TunedPlans`: the user's entry, then the shipped one."""
        if not op.m:
            return ()
        key = problem_key(op, device, launch)
        found: list[TunedPlan] = []
        if self.folder is not None:
            journal = self.journal(device.name)
            own = journal.choice(key)
            found += [] if own is None else [own.tuned(str(journal.path))]
        shipped = self._table(device.name).get(key)
        found += [] if shipped is None else [shipped.tuned(str(self._path(device.name)))]
        return found

    def tokens(self, op: MatMul, device: Device, launch: str) -> Sequence[int]:
        """See :class:`~ladder.scheduler.tuned.TunedPlans`."""
        entries = [*self._table(device.name).values()]
        if self.folder is not None:
            entries += self.journal(device.name).choices()
        measured = sorted({entry.m for entry in entries if entry.launch == launch and entry.m})
        own = {(entry.operator, entry.m) for entry in entries}
        return tuple(m for m in measured if (identity(replace(op, m=m)), m) in own)

    def _path(self, device: str) -> Path:
        return self._shipped / f"{device}.json"

    def _table(self, device: str) -> dict[str, Choice]:
        if device not in self._tables:
            path = self._path(device)
            try:
                entries = read_table(path) if path.exists() else ()
            except TuningError as error:
                warnings.warn(f"{error.what}\n  at: {error.at}", RuntimeWarning, stacklevel=4)
                entries = ()
            self._tables[device] = {entry.problem: entry for entry in entries}
        return self._tables[device]


def default_folder(settings: Settings) -> Path | None:
    """Where this user's measured plans lie, or None where none are kept."""
    if settings.tuned_dir == OFF:
        return None
    if settings.tuned_dir is not None:
        return Path(settings.tuned_dir)
    try:
        return Path(platformdirs.user_data_dir("ladder", appauthor=False)) / "tuned"
    except (OSError, RuntimeError, KeyError):  # no home: no entries of this user either
        return None


@lru_cache(maxsize=4)
def _database(folder: Path | None) -> Database:
    return Database(folder)


def tuned() -> Database:
    """The database of this machine's user, for ``ladder.schedule(..., tuned=ladder.tuned())``."""
    return _database(default_folder(Settings.read()))


def read_table(path: Path) -> tuple[Choice, ...]:
    """Read a table.

    Raises:
        TuningError: the file cannot be read, is no table, or an entry of it is damaged.
    """
    again = "write it again: `ladder tune --out`"
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise TuningError(
            f"the table of measured plans cannot be read: {error}", at=str(path), hint=again
        ) from error
    found = document.get("format") if isinstance(document, dict) else None
    entries = document.get("entries") if isinstance(document, dict) else None
    if found != FORMAT or not isinstance(entries, list):
        raise TuningError(
            f"the table has format {found!r}, expected {FORMAT!r}", at=str(path), hint=again
        )
    choices: list[Choice] = []
    for number, node in enumerate(entries):
        try:
            entry = load(node)
        except TuningError as error:
            raise TuningError(
                f"entry {number} of the table is damaged: {error.what}", at=str(path), hint=again
            ) from error
        if not isinstance(entry, Choice):
            raise TuningError(f"entry {number} is no choice", at=str(path), hint=again)
        choices.append(entry)
    return tuple(choices)


def write_table(path: Path, choices: Iterable[Choice], note: str) -> int:
    """Write a table so that a reader sees the old one or the new one; returns the number of its entries.

    Raises:
        TuningError: it cannot be written.
    """
    ordered = sorted(choices, key=lambda entry: (entry.text, entry.launch, entry.m))
    lines = ",\n".join(f"  {json.dumps(dump(entry), allow_nan=False)}" for entry in ordered)
    head = f'{{\n "format": {json.dumps(FORMAT)},\n "note": {json.dumps(note)},\n "entries": ['
    text = f"{head}\n{lines}\n ]\n}}\n" if ordered else f"{head}]\n}}\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
        path.chmod(0o644)
    except OSError as error:
        raise TuningError(
            f"the table cannot be written: {error}", at=str(path), hint="name another file"
        ) from error
    return len(ordered)
