"""The command line: ``ladder types | devices | plan | explain | compile | run | bench | tune | experiment | graph | verify``."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the ``ladder`` command."""
    from ladder.cli.app import run

    sys.exit(run(sys.argv[1:]))
