"""``ladder cache``: what is kept on disk of earlier calls, and how to be rid of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ladder.cli.options import Json
from ladder.cli.show import Screen

Clear = Annotated[
    bool, typer.Option("--clear", help="remove every entry; what is asked for again is made again")
]


def cache(*, clear: Clear = False, json: Json = False) -> None:
    """Say which compiled kernels and chosen plans are kept on disk, or remove them."""
    from ladder.runtime.cache import Cache
    from ladder.runtime.choices import entries_of
    from ladder.settings import Settings

    settings = Settings.read()
    kinds = {"kernels": Cache.default(settings).entries, "choices": entries_of(settings)}
    records = [
        {
            "kind": kind,
            "folder": None if entries.folder is None else str(entries.folder),
            "entries": len(entries.files()),
            "bytes": sum(map(_size, entries.files())),
        }
        for kind, entries in kinds.items()
    ]
    screen = Screen(as_json=json)
    screen.data({"entries": records, "cleared": clear})
    columns = ("kind", "entries", "bytes", "folder")
    rows = [
        [record[column] or (0 if column != "folder" else "none") for column in columns]
        for record in records
    ]
    screen.table(columns, rows)
    if clear:
        removed = sum(entries.clear() for entries in kinds.values())
        screen.text(f"{removed} entries removed")


def _size(file: Path) -> int:
    """Bytes of a file; none where another process removed it first."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
