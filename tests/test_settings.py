from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import ladder
from ladder.settings import Settings


def test_the_environment_is_read_when_asked():
    environment = {
        "LADDER_CACHE_DIR": "/c",
        "LADDER_TOOLCHAIN": "nvcc",
        "CUDA_PATH": "/t",
        "PATH": "/b",
        "LADDER_TUNED_DIR": "/d",
    }
    assert Settings.read(environment) == Settings("/c", "nvcc", "/t", "/b", "/d")
    assert Settings.read({**environment, "CUDA_HOME": "/h"}).cuda_home == "/h"


def test_nothing_set_is_the_default():
    assert Settings.read({}) == Settings(path=os.defpath)
    assert Settings.read(
        {"LADDER_CACHE_DIR": "", "LADDER_TOOLCHAIN": "", "LADDER_TUNED_DIR": ""}
    ) == Settings(path=os.defpath)


@pytest.mark.parametrize("name, field", [("CACHE", "cache_dir"), ("TUNED", "tuned_dir")])
def test_a_folder_below_home_is_not_one_named_tilde(monkeypatch, name, field):
    monkeypatch.setenv("HOME", "/home/of/mine")
    for given, folder in [("~/l", "/home/of/mine/l"), ("a/~", "a/~"), ("off", "off")]:
        assert getattr(Settings.read({f"LADDER_{name}_DIR": given}), field) == folder


def test_nobody_else_reads_the_environment():
    root = Path(ladder.__path__[0])
    readers = set()
    for file in root.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"}:
                readers.add(file.relative_to(root).as_posix())
    assert readers == {"settings.py"}
