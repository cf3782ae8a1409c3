"""Runs generated kernels on the CPU, lane by lane, and finds races and hazards; needs no GPU and no TVM."""

from __future__ import annotations

from ladder.emulator.report import Fault, Report, Site
from ladder.emulator.run import run
from ladder.emulator.tma import TensorMap
from ladder.emulator.translate import Translation, translate
from ladder.emulator.translate_scope import Options

__all__ = ["Fault", "Options", "Report", "Site", "TensorMap", "Translation", "run", "translate"]
