"""Every example runs as a user would run it, and holds to what the README says about it."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
NEED_TVM = {"new_codebook.py", "demo.py"}

needs_tvm = pytest.mark.skipif(
    importlib.util.find_spec("tvm") is None, reason="the compile extra is not installed"
)


def run_example(name: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "LADDER_CACHE_DIR": str(folder / "cache"),
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_in_the_list_of_examples() -> None:
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in EXAMPLES} == {
        name for name in text.replace("`", "/").split("/") if name.endswith(".py")
    }


@needs_tvm
def test_a_new_codebook_and_its_kernel_take_15_lines(tmp_path: Path) -> None:
    source = run_example("new_codebook.py", tmp_path)
    assert "mma.sync" in source
    assert 'extern "C"' in source
    tree = ast.parse((ROOT / "examples" / "new_codebook.py").read_text(encoding="utf-8"))
    statements = [s for s in tree.body if not isinstance(s, ast.Import | ast.ImportFrom | ast.Expr)]
    lines = sum(s.end_lineno - s.lineno + 1 for s in statements)
    assert lines <= 15


def test_mxfp4_is_as_exact_as_float32_sums(tmp_path: Path) -> None:
    text = run_example("mxfp4.py", tmp_path)
    assert text.count("relative error") == 2
    assert "scale=e8m0" in text


def test_a_new_device_gets_plans_of_its_own(tmp_path: Path) -> None:
    text = run_example("new_device.py", tmp_path)
    assert text.count("on rtx_a6000 for M") == 3
    assert "skinny family" in text
    assert "ring family" in text


def test_placements_fixed_by_hand_differ_and_agree_in_value(tmp_path: Path) -> None:
    text = run_example("placement.py", tmp_path)
    assert "convert in register: " in text
    assert "convert in shared: " in text
    memory = [int(line.split()[3]) for line in text.splitlines() if line.startswith("convert in ")]
    assert memory[0] != memory[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["models/mlp.py"],
        ["models/vit.py", "--scale", "16"],
        ["models/llama.py", "--scale", "64"],
        [
            "models/llama.py",
            "--scale",
            "64",
            "--context",
            "5",
            "--rule",
            "int8",
            "--model",
            "llama-3-8b",
        ],
    ],
)
def test_models_are_imported_given_types_and_verified(arguments: list[str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = run_example(arguments[0], tmp_path, *arguments[1:])
    assert "layouts on h200: 0 conversions" in text
    assert text.rstrip().endswith(": right")


def test_a_model_is_written_as_onnx(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    assert "path" in run_example("models/onnx_files.py", tmp_path, "--help")
    assert not list(tmp_path.iterdir())
    run_example("models/onnx_files.py", tmp_path, "llama.onnx")
    assert (tmp_path / "llama.onnx").stat().st_size > 100_000


@needs_tvm
@pytest.mark.slow
def test_the_demo_goes_from_declaration_to_a_checked_result(tmp_path: Path) -> None:
    text = run_example("demo.py", tmp_path)
    for part in ("the type", "the plan", "the reasons", "the kernel", "the artifact", "weights"):
        assert f"== {part}" in text
    assert text.endswith("right.\n")
    assert text.count("relative error") >= 1
    assert (tmp_path / "build" / "demo" / "manifest.json").exists()
