"""How the committed numbers are made: ``python -m benchmarks.build``, ``.bench`` and ``.matrix`` (see docs/measuring.md)."""
