"""The repository's own promises: light imports, one direction, small files, commands that exist."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
PROJECT = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SOURCES = sorted((ROOT / "ladder").rglob("*.py"))
LINES_PER_FILE = 400
IMPORT_SECONDS = 0.3


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


def test_import_is_light_and_brings_neither_tvm_nor_cuda() -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import ladder; "
        "print(time.perf_counter() - start); "
        "print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    seconds = []
    for _ in range(5):  # the best of five: the first run may compile bytecode
        done = run_python(code)
        assert done.returncode == 0, done.stderr
        first, modules = done.stdout.splitlines()
        assert not {"tvm", "tvm_ffi", "cuda", "torch", "onnx", "typer", "rich"} & set(
            ast.literal_eval(modules)
        )
        seconds.append(float(first))
    assert min(seconds) < IMPORT_SECONDS


def test_import_needs_no_path_no_home_and_writes_nothing(tmp_path: Path) -> None:
    """C76, C78: neither a toolkit, a driver nor a home folder is needed to import."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o500)
    done = run_python("import ladder", PATH="", CUDA_HOME="", CUDA_PATH="", HOME=str(home))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not list(home.iterdir())


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_holds_one_idea(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_PER_FILE
    if text.strip():
        tree = ast.parse(text)
        assert ast.get_docstring(tree), "a module says in its first line what it is for"


def test_every_package_has_its_place_in_the_order_of_imports() -> None:
    layers = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    placed = set(re.findall(r"\w+", " ".join(layers)))
    aside = {"catalog", "__pycache__"}  # reached through the registry only
    packages = {path.name for path in (ROOT / "ladder").iterdir() if path.is_dir()}
    assert packages - aside <= placed


def import_linter() -> str:
    program = shutil.which(
        "lint-imports", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    )
    assert program, "import-linter is part of requirements/dev.txt"
    return program


@pytest.mark.parametrize(
    "path,line,contract",
    [
        ("ttype/wrong.py", "import ladder.scheduler", "one way"),
        ("scheduler/wrong.py", "import tvm", "TVM"),
        ("emulator/wrong.py", "from cuda.bindings import driver", "CUDA"),
        ("graph/wrong.py", "import torch", "torch and onnx"),
        ("catalog/wrong.py", "import ladder.codegen", "Shipped"),
    ],
)
def test_the_import_contracts_notice_a_breach(
    tmp_path: Path, path: str, line: str, contract: str
) -> None:
    shutil.copytree(
        ROOT / "ladder", tmp_path / "ladder", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "ladder" / path).write_text(f"{line}\n", encoding="utf-8")
    done = subprocess.run(
        [import_linter(), "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    broken = [row for row in done.stdout.splitlines() if " BROKEN" in row]
    assert any(contract in row for row in broken), done.stdout


def test_make_help_explains_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony
    done = subprocess.run(
        ["make", "--no-print-directory", "help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    explained = {row.split()[0] for row in done.stdout.splitlines() if row.startswith("  ")}
    assert set(phony[1].split()) == explained


@pytest.mark.parametrize("name", ["run", "compile", "dev"])
def test_lock_files_pin_every_package(name: str) -> None:
    rows = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert rows
    for row in rows:
        assert re.match(r"[\w.-]+==[\w.]+( ; .+)?$", row), row


def test_the_lock_files_agree_and_hold_what_the_project_asks_for() -> None:
    locks = {
        name: set((ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines())
        for name in ("run", "compile", "dev")
    }
    assert locks["run"] < locks["compile"] < locks["dev"]
    pinned = {re.split("==", row)[0] for row in locks["dev"]}
    project = PROJECT["project"]
    asked = itertools.chain(project["dependencies"], *project["optional-dependencies"].values())
    names = {re.split(r"[=<>;\s]", row)[0].lower().replace("_", "-") for row in asked}
    assert names <= pinned
    assert {"apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.14.post1"} <= locks["compile"]


def test_installed_alone_the_package_carries_all_its_files() -> None:
    """Every data file under ladder/ matches a pattern of package-data."""
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["ladder"]
    folder = ROOT / "ladder"
    data = {
        path for path in folder.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    carried = {path for pattern in patterns for path in folder.glob(pattern)}
    assert data <= carried


def test_golden_notices_a_change_and_a_missing_file(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("frame", ROOT / "tests" / "conftest.py")
    assert spec
    assert spec.loader
    frame = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(frame)
    with pytest.raises(pytest.fail.Exception, match="missing"):
        frame.compare_golden(tmp_path, "plans/a.txt", "one\ntwo\n", update=False)
    frame.compare_golden(tmp_path, "plans/a.txt", "one\ntwo\n", update=True)
    frame.compare_golden(tmp_path, "plans/a.txt", "one\ntwo\n", update=False)
    with pytest.raises(pytest.fail.Exception, match=r"-two\n\+three"):
        frame.compare_golden(tmp_path, "plans/a.txt", "one\nthree\n", update=False)
