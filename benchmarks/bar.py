"""How far the output of a row may be from float64: the bar that :mod:`ladder.runtime.error_bar` derives."""

from __future__ import annotations

from ladder.runtime.error_bar import PROMISED, ROUNDOFF, SUMS, error_bar, table_error

__all__ = ["PROMISED", "ROUNDOFF", "SUMS", "error_bar", "table_error"]
