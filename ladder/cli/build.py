"""``--build FOLDER``: kernels compiled into a folder, for a machine that has a GPU and no TVM."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ladder.cli.show import Screen

if TYPE_CHECKING:
    from ladder.runtime.tuning.kernels import Ahead, Planned


def build(screen: Screen, wanted: Iterable[Planned], folder: Path, jobs: int) -> None:
    """Compile each kernel once; one that does not compile is said, noted in the folder, and ends the run with 1 after the others.

    Args:
        screen: where progress and the sum are shown.
        wanted: asked for one after the other once the folder is known to take them.
        folder: made where it is missing; kernels that it holds stay.
        jobs: processes that compile.

    Raises:
        TuningError: the folder holds kernels of another build.
        LadderError: nothing can be compiled here.
        Exit: a kernel did not compile.
    """
    from ladder.runtime.tuning.kernels import (
        Ahead,
        check_compiler,
        entry,
        into_folder,
        write_failure,
        write_index,
    )
    from ladder.settings import Settings

    settings = Settings.read()
    check_compiler(settings)
    write_index(folder, settings)
    failed: dict[str, str] = {}
    nbytes = 0
    with closing(Ahead(into_folder(settings, folder), jobs)) as ahead:
        todo = _announced(screen, wanted, ahead)
        for number, one in enumerate(todo, 1):
            title = one.plan.title
            with screen.working(f"compiling {number} of {len(todo)}: {title}"):
                missing = ahead.missing(one)
            if missing is None:
                said = ""
                nbytes += entry(folder, one).stat().st_size
            else:
                said = f": {missing.reason}"
                failed[title] = missing.reason
                write_failure(folder, one, missing)
            screen.done(f"{number}/{len(todo)} {title}{said}")
    _sum(screen, folder, len(todo), nbytes, failed)


def _announced(screen: Screen, wanted: Iterable[Planned], ahead: Ahead) -> list[Planned]:
    """Plans in order, each once; those found first are compiled while others are searched for."""
    found: dict[str, Planned] = {}
    with screen.working("searching plans"):
        for one in wanted:
            found.setdefault(one.digest, one)
            ahead.announce([one])
    return list(found.values())


def _sum(screen: Screen, folder: Path, total: int, nbytes: int, failed: dict[str, str]) -> None:
    count = total - len(failed)
    screen.data(
        {"folder": str(folder), "kernels": count, "bytes": nbytes, "failed": failed},
    )
    for title, reason in failed.items():
        screen.text(f"{title}: {reason}")
    screen.text(f"{count} of {total} kernels in {folder}, {nbytes / 1e6:.1f} MB")
    if failed:
        raise typer.Exit(1)
