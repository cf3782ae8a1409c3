"""What all tests share: golden files, the GPU marker and the profiles of hypothesis."""

from __future__ import annotations

import ctypes
import difflib
import gc
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

GOLDEN = Path(__file__).parent / "golden"
DRIVER = "libcuda.so.1"

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=40,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", parent=settings.get_profile("ci"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

#: thresholds of the cycle collector: listings, plans and modules are millions of containers that stay, and by Python's own
#: thresholds it walks through them for a twentieth of the time or more
COLLECT = (50_000, 20, 100)
gc.set_threshold(*COLLECT)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing"
    )


@cache
def missing_gpu() -> str:
    """Why GPU tests cannot run here; empty where they can."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return f"no NVIDIA driver ({DRIVER} not found)"
    if code := driver.cuInit(0):
        return f"the NVIDIA driver does not start (cuInit returns {code})"
    count = ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return "the NVIDIA driver sees no GPU"
    return ""


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: collections that a test asks for need not walk through it."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not any(item.get_closest_marker("gpu") for item in items):
        return
    if reason := missing_gpu():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=reason))


def compare_golden(folder: Path, name: str, text: str, *, update: bool) -> None:
    """Compare ``text`` with ``folder/name``, or write it there."""
    path = folder / name
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    if not path.exists():
        pytest.fail(f"golden file {name} is missing; `make golden` writes it", pytrace=False)
    expected = path.read_text(encoding="utf-8")
    if text != expected:
        diff = difflib.unified_diff(
            expected.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="", n=2
        )
        lines = [*diff][:80] or ["(only line ends or the last newline differ)"]
        pytest.fail("\n".join([*lines, "`make golden` accepts the new text"]), pytrace=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden("plans/int4.txt", text)`` compares text with a file under tests/golden."""
    update = bool(request.config.getoption("--update-golden"))
    return lambda name, text: compare_golden(GOLDEN, name, text, update=update)
