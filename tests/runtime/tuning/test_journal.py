"""Records survive what happens to files and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from ladder.errors import TuningError
from ladder.runtime.tuning import journal as module
from ladder.runtime.tuning.journal import Journal, lock
from ladder.runtime.tuning.record import Choice, Measurement, dump, load
from ladder.runtime.tuning.tuner import Silent

ROOT = Path(__file__).parents[3]


def measurement(number: int = 0, **changed) -> Measurement:
    given = {
        "problem": "p",
        "operator": "matmul(...)",
        "candidate": f"c{number}",
        "rank": number,
        "decisions": '{"depth":4}',
        "estimate_us": 5.0,
        "us": 4.5,
        "error": 1e-4,
        "failure": None,
        "gpu": "G",
        "build": "b",
        "date": "2026-11-29T00:00:00+00:00",
    }
    return Measurement(**{**given, **changed})


def choice(problem: str = "p", us: float = 4.0) -> Choice:
    words = {f.name: f.name for f in fields(Choice) if f.type == "str"}
    numbers = {"m": 1, "us": us, "untuned_us": None, "measured": 3}
    return Choice(**{**words, **numbers, "problem": problem, "decisions": '{"depth":4}'})


def found(journal: Journal, number: int) -> Measurement | None:
    return journal.measurement(f"c{number}", "G", "b")


@pytest.fixture
def journal(tmp_path) -> Journal:
    return Journal.of(tmp_path, "h200")


@pytest.mark.parametrize("record", [measurement(), measurement(us=None, failure="x"), choice()])
def test_records_are_read_back(record):
    assert load(json.loads(json.dumps(dump(record)))) == record


def test_what_is_written_is_found_by_others(journal, tmp_path):
    journal.add(measurement(1))
    journal.add(choice())
    other = Journal.of(tmp_path, "h200")
    assert found(other, 1) == found(journal, 1) == measurement(1)
    assert other.choice("p") == choice()
    journal.add(replace(choice(), us=3.0))
    assert (
        other.choice("p").us == 3.0
    )  # the last one counts, and it is seen without reading all again
    assert other.choices() == (replace(choice(), us=3.0),)


def test_an_empty_folder_holds_nothing(journal):
    assert found(journal, 0) is None
    assert journal.choices() == ()
    assert not journal.path.parent.exists()


def test_a_line_that_was_cut_is_skipped_and_ended_by_the_next_writer(journal, tmp_path):
    """What a process leaves that is killed while it writes."""
    journal.add(measurement(1))
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole + whole[:40])
    reader = Journal.of(tmp_path, "h200")
    with pytest.warns(RuntimeWarning, match=r"1 lines of .* \(line 2\)"):
        assert found(reader, 1) == measurement(1)
    writer = Journal.of(tmp_path, "h200")
    writer.add(measurement(2))
    assert found(reader, 2) == measurement(2)  # a second warning would be an error
    with pytest.warns(RuntimeWarning, match=r"1 lines"):
        assert found(writer, 2) == measurement(2)
    assert len(journal.path.read_bytes().splitlines()) == 3


DAMAGE = {
    "no JSON": b"{",
    "binary": bytes(range(128, 256)),
    "empty": b"",
    "a list": b"[]",
    "another kind": b'{"kind": "wish"}',
    "nothing but a kind": b'{"kind": "measured"}',
    "a wrong type": json.dumps({**dump(measurement(9)), "rank": "first"}).encode(),
    "a truth value": json.dumps({**dump(measurement(9)), "rank": True}).encode(),
    "no number": json.dumps({**dump(measurement(9)), "us": float("nan")}).encode(),
    "negative": json.dumps({**dump(measurement(9)), "us": -1.0}).encode(),
    "zero": json.dumps({**dump(measurement(9)), "us": 0}).encode(),
    "too large": json.dumps({**dump(measurement(9)), "us": 0}).encode().replace(b"0,", b"1e999,"),
    "decisions are text": json.dumps({**dump(measurement(9)), "decisions": "{}"}).encode(),
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_line_costs_itself_alone(journal, name):
    """C69: a hand-made bad entry is a miss with a warning."""
    journal.add(measurement(1))
    with journal.path.open("ab") as stream:
        stream.write(DAMAGE[name] + b"\n")
    journal.add(measurement(2))
    with pytest.warns(RuntimeWarning, match="cut or damaged"):
        assert found(journal, 1) == measurement(1)
    assert found(journal, 2) == measurement(2)
    assert found(journal, 9) is None


def test_a_file_that_is_replaced_is_read_anew(journal):
    journal.add(measurement(1))
    assert found(journal, 1)
    journal.path.unlink()
    journal.add(measurement(2))
    assert found(journal, 2)
    assert found(journal, 1) is None


def test_a_file_that_cannot_be_read_is_one_warning(journal):
    journal.path.mkdir(parents=True)
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        assert found(journal, 1) is None
    assert found(journal, 1) is None


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TuningError, match="cannot be written"):
        Journal.of(tmp_path / "file", "h200").add(measurement())


def test_a_lock_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(TuningError, match="no lock can be taken"),
        lock(tmp_path / "file" / "x.lock", seconds=0),
    ):
        pass


def test_a_full_disk_is_an_error_and_what_was_there_stays(journal, monkeypatch):
    journal.add(measurement(1))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TuningError, match="No space left"):
        journal.add(measurement(2))
    assert found(journal, 1)


WRITER = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
import test_journal as t
journal = t.Journal.of(Path({folder!r}), "h200")
for number in range({first}, {first} + 40):
    journal.add(t.measurement(number, operator="x" * 5000))
"""


def test_lines_of_several_writers_stay_whole(journal, tmp_path):
    scripts = [
        WRITER.format(
            root=str(ROOT), tests=str(Path(__file__).parent), folder=str(tmp_path), first=first
        )
        for first in (0, 100, 200)
    ]
    writers = [subprocess.Popen([sys.executable, "-c", script]) for script in scripts]
    while any(writer.poll() is None for writer in writers):
        found(journal, 0)  # a reader between them; a warning would be an error
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert all(found(journal, first + n) for first in (0, 100, 200) for n in range(40))


def test_a_lock_is_had_by_one(tmp_path):
    path = tmp_path / "a" / "x.lock"
    with lock(path, seconds=0) as first, lock(path, seconds=0) as second:
        assert (first, second) == (True, False)
    with lock(path, seconds=0) as again:
        assert again


def test_a_lock_of_the_dead_is_free(tmp_path):
    path = tmp_path / "x.lock"
    script = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n"
        "import os; from pathlib import Path; from ladder.runtime.tuning.journal import lock\n"
        f"with lock(Path({str(path)!r}), seconds=0) as got:\n"
        "    print(got, flush=True); os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (-9, "True\n")
    with lock(path, seconds=0) as got:
        assert got


def test_without_locks_everybody_gets_them(tmp_path, monkeypatch):
    def refuse(self, *_, **__):
        raise NotImplementedError

    monkeypatch.setattr(module.filelock.FileLock, "acquire", refuse)
    with lock(tmp_path / "x", seconds=0) as one, lock(tmp_path / "x", seconds=0) as two:
        assert one
        assert two


def test_silence_is_a_watch():
    assert {"begins", "measured", "ends"} <= set(dir(Silent))
