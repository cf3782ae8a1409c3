"""``python -m ladder`` is the ``ladder`` command."""

from __future__ import annotations

from ladder.cli import main

if __name__ == "__main__":
    main()
