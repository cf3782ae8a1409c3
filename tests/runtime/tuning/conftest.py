"""The fakes, importable here and in worker processes."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = str(Path(__file__).parent)


@pytest.fixture(scope="session")
def fakes():
    if FOLDER not in sys.path:
        sys.path.insert(0, FOLDER)  # handed on to processes that are spawned
    return importlib.import_module("fakes")
