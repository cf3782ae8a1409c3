"""What the pages say is true: their code runs, their links and paths exist, their commands are known."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import shlex
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ladder.cli.app import run as run_command

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")]
    if ".venv" not in path.parts
)
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
#: what a block may need, besides the package itself
NEEDS = ("", "compile", "gpu")
#: axes of studies whose kernels a page compiles: all of them take minutes, those of one small shape go the same way
SMALL = ("--shapes", "64x256", "--ms", "1")


@dataclass(frozen=True)
class Block:
    """A fenced block: its words after the fence, its text, and the line where its text begins."""

    info: tuple[str, ...]
    body: str
    line: int

    @property
    def need(self) -> str:
        return next((word for word in self.info if word in NEEDS), "")


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("body")) + 1
        yield Block(tuple(match["info"].split()), match["body"], line)


def label(page: Path) -> str:
    return str(page.relative_to(ROOT))


def runs() -> list[tuple[Path, str]]:
    """One run per page and need: a page with blocks for a GPU is run without them, too."""
    found = []
    for page in PAGES:
        needs = {block.need for block in blocks(page) if "run" in block.info}
        found += [(page, need) for need in NEEDS if need in needs]
    return found


@pytest.mark.parametrize(
    "page,need",
    [
        pytest.param(
            page,
            need,
            id=f"{label(page)}{'-' + need if need else ''}",
            marks=[pytest.mark.gpu] if need == "gpu" else [],
        )
        for page, need in runs()
    ],
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(
    page: Path, need: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if need and importlib.util.find_spec("tvm") is None:
        pytest.skip("the compile extra is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LADDER_TUNED_DIR", str(tmp_path / "tuned"))
    module = types.ModuleType("page")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, "page", module)
    allowed = NEEDS[: NEEDS.index(need) + 1]
    printed = None
    for block in blocks(page):
        if block.info[:2] == ("text", "printed"):
            if printed is not None:
                assert printed == block.body, f"{label(page)}:{block.line} prints something else"
        elif "run" in block.info and block.need in allowed:
            code = compile("\n" * (block.line - 1) + block.body, str(page), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(code, module.__dict__)
            printed = out.getvalue()
        else:
            printed = None


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_no_python_block_escapes_being_run(page: Path) -> None:
    for block in blocks(page):
        assert block.info, f"{label(page)}:{block.line} has a block without a language"
        if block.info[0] == "python":
            assert "run" in block.info, f"{label(page)}:{block.line} is not marked run"


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{label(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_paths_that_a_page_names_exist(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    pattern = r"`((?:ladder|tests|examples|docs|benchmarks|requirements)/[\w./*-]*)`"
    for target in re.findall(pattern, text):
        assert [*ROOT.glob(target.rstrip("/"))], f"{label(page)} names {target}"


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_make_targets_that_a_page_names_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"(?:`|^|=\w+ )make ([a-z-]+)", text, re.MULTILINE)
    assert set(named) <= targets
    if page.name == "CONTRIBUTING.md":
        assert named, "the pattern has to find something"


def shell_lines(page: Path) -> list[list[str]]:
    bodies = [block.body for block in blocks(page) if block.info and block.info[0] == "sh"]
    lines = [shlex.split(line, comments=True) for line in "".join(bodies).splitlines()]
    return [words[1:] for words in lines if words and words[0] == "ladder"]


def as_run(words: list[str]) -> list[str]:
    """A command as it is tried: a study that is compiled, or measured from what was compiled, on the axes of ``SMALL``."""
    compiled = words[0] == "experiment" and {"--build", "--kernels"} & {*words}
    return [*words, *SMALL] if compiled and "--shapes" not in words else words


@pytest.mark.parametrize("page", [page for page in PAGES if shell_lines(page)], ids=label)
def test_commands_that_a_page_shows_work(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("tvm") is None:
        pytest.skip("the compile extra is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LADDER_TUNED_DIR", str(tmp_path / "tuned"))
    for words in shell_lines(page):
        if "--figure" in words and importlib.util.find_spec("matplotlib") is None:
            continue  # the plot extra is not installed
        code = run_command(as_run(words))
        # 1: no GPU here
        assert code == 0 or (words[0] in {"bench", "experiment", "tune"} and code == 1), words


def test_every_page_is_reachable_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        waiting += [page.parent / target for target in links if "://" not in target]
    assert {page.resolve() for page in (ROOT / "docs").rglob("*.md")} <= seen


def test_the_runner_notices_a_wrong_page(tmp_path: Path) -> None:
    """A page's output is compared, and its line numbers are those of the page."""
    page = tmp_path / "page.md"
    page.write_text("# T\n\n```python run\nprint(1)\n```\n\n```text printed\n2\n```\n", "utf-8")
    first, second = blocks(page)
    assert (first.info, first.body, first.line) == (("python", "run"), "print(1)\n", 4)
    assert (second.info, second.body) == (("text", "printed"), "2\n")
