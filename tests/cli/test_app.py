"""The command line as a whole: help, exit codes, plain text in a pipe."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ladder
from ladder.cli.app import build, run

COMMANDS = [command.name for command in build().registered_commands]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name}" in text for name in COMMANDS)


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"ladder {ladder.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_offers_json(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--json" in text
    assert len(text.splitlines()) > 4


@pytest.mark.parametrize(
    "arguments", [[], ["nothing"], ["types", "--wrong"], ["devices", "a", "b"]]
)
def test_a_wrong_command_line_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert "Usage: ladder" in captured.out + captured.err


def test_as_a_program_it_prints_plain_text_into_a_pipe() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ladder", "devices"], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.isascii()
    assert done.stdout.splitlines()[0].split()[:2] == ["name", "title"]


def test_listing_loads_neither_tvm_nor_cuda() -> None:
    code = (
        "import sys\nfrom ladder.cli.app import run\nassert run(['types']) == 0\n"
        "assert not {'tvm', 'cuda'} & {m.split('.')[0] for m in sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
