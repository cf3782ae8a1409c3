"""The types that the tests of decode programs share."""

from __future__ import annotations

import pytest

import ladder
from ladder.ttype import TType


@pytest.fixture(scope="session")
def catalog():
    """Element types of the catalogue by name."""
    return {name: t for name, t in ladder.types.items() if isinstance(t, TType)}
