"""The example models, loaded from where users find them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "examples" / "models"


def load_model(name: str):
    pytest.importorskip("torch")
    key = f"example_{name}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, MODELS / f"{name}.py")
        sys.modules[key] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[key])
    return sys.modules[key]


@pytest.fixture(scope="session")
def llama():
    return load_model("llama")


@pytest.fixture(scope="session")
def vit():
    return load_model("vit")


@pytest.fixture(scope="session")
def mlp():
    return load_model("mlp")


@pytest.fixture(scope="session")
def onnx_files():
    pytest.importorskip("onnx")
    return load_model("onnx_files")
