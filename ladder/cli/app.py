"""The commands put together, and the one place where errors become exit codes.

==========  ==========================================================
exit code   meaning
==========  ==========================================================
0           done
1           a :class:`~ladder.errors.LadderError`, printed as what, at, hint
2           the command line was wrong
==========  ==========================================================
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ladder.cli.show import Screen
from ladder.errors import LadderError


def build() -> typer.Typer:
    """The command line; help is drawn by rich on a terminal only."""
    from ladder.cli import bench, cache, experiments, kernels, lists, models, plans, tune

    app = typer.Typer(
        name="ladder",
        help="Declare a number format, get a matmul kernel that was proven right.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
    )
    app.callback()(_main)
    app.command("types")(lists.types)
    app.command("devices")(lists.devices)
    app.command("plan")(plans.plan)
    app.command("explain")(plans.explain)
    app.command("compile")(kernels.compile_kernel)
    app.command("run")(kernels.run)
    app.command("bench")(bench.bench)
    app.command("tune")(tune.tune)
    app.command("experiment")(experiments.experiment)
    app.command("cache")(cache.cache)
    app.command("graph")(models.graph)
    app.command("verify")(models.verify)
    return app


def _version(asked: bool) -> None:
    if asked:
        import ladder

        typer.echo(f"ladder {ladder.__version__}")
        raise typer.Exit


def _main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Declare a number format, get a matmul kernel that was proven right."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        build()(list(arguments), prog_name="ladder")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except LadderError as error:
        Screen(as_json="--json" in arguments).error(error)
        return 1
    return 0
