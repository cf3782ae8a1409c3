"""What the scheduler is handed: the shipped table, the user's records over it, and nothing that is damaged."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import ladder
from ladder.errors import TuningError
from ladder.runtime.tuning import database as module
from ladder.runtime.tuning.database import (
    SHIPPED,
    Database,
    default_folder,
    read_table,
    tuned,
    write_table,
)
from ladder.runtime.tuning.record import Choice
from ladder.settings import Settings


@pytest.fixture
def chosen(fakes):
    """(candidate, choice): the last candidate of a problem, as if it were the best."""
    candidate = fakes.problem().candidates(fakes.COUNT)[-1]
    return candidate, Choice.of(candidate, 5.0, 6.0, 5, fakes.MACHINE)


def test_shipped_tables_are_whole_and_of_known_devices():
    for path in SHIPPED.iterdir():
        assert path.stem in ladder.devices
        for entry in read_table(path):
            assert entry.device == path.stem
    assert (SHIPPED / "h200.json").exists()


def test_every_shipped_entry_is_legal_and_used(tmp_path):
    """An entry that this version refuses is a warning, and a warning is an error here."""
    database = Database(None)
    for path in SHIPPED.iterdir():
        for entry in read_table(path):
            assert entry.us > 0
            assert entry.version == module_version()
    assert database.lookup(_op(1), ladder.devices["h200"], "plain") is not None


def module_version() -> str:
    from ladder.scheduler.tuned import version

    return version()


def _op(m: int | None, k: int = 256):
    weight = ladder.types["int4"].grouped(128, scale="float16", zero="integer")
    return ladder.matmul(m=m, n=64, k=k, activation="float16", weight=weight)


def test_a_table_is_read_back(chosen, tmp_path):
    _, choice = chosen
    others = [replace(choice, problem=f"p{i}", text=f"t{9 - i}") for i in range(3)]
    path = tmp_path / "a" / "h200.json"
    assert write_table(path, [choice, *others], "a note") == 4
    assert set(read_table(path)) == {choice, *others}
    assert [e.text for e in read_table(path)] == sorted(e.text for e in read_table(path))
    assert json.loads(path.read_text())["note"] == "a note"
    assert len(path.read_text().splitlines()) == 4 + 6  # an entry a line: changes can be read
    write_table(path, [], "none")
    assert read_table(path) == ()


def test_a_shipped_entry_is_used(chosen, tmp_path):
    candidate, choice = chosen
    write_table(tmp_path / "h200.json", [choice], "")
    database = Database(None, tmp_path)
    assert ladder.schedule(candidate.problem.op, "h200", tuned=database) == candidate.plan
    assert database.tokens(_op(None), ladder.devices["h200"], "plain") == (1,)
    assert database.tokens(_op(None), ladder.devices["h200"], "pdl") == ()
    assert database.tokens(_op(None, k=512), ladder.devices["h200"], "plain") == ()
    plans = ladder.schedule(_op(None), "h200", tuned=database)
    assert plans.plan_for(1).tiling == candidate.plan.tiling


def test_what_the_user_measured_stands_over_what_is_shipped(fakes, chosen, tmp_path):
    candidate, choice = chosen
    write_table(tmp_path / "shipped" / "h200.json", [choice], "")
    database = Database(tmp_path / "own", tmp_path / "shipped")
    other = candidate.problem.candidates(fakes.COUNT)[2]
    database.journal("h200").add(Choice.of(other, 4.0, 6.0, 5, fakes.MACHINE))
    op = candidate.problem.op
    assert ladder.schedule(op, "h200", tuned=database) == other.plan
    stale = replace(Choice.of(other, 4.0, 6.0, 5, fakes.MACHINE), version="tuned/0")
    database.journal("h200").add(stale)
    with pytest.warns(RuntimeWarning, match="another version"):  # and then the shipped one
        assert ladder.schedule(op, "h200", tuned=database) == candidate.plan


def test_entries_of_other_devices_are_not_looked_at(chosen, tmp_path):
    candidate, choice = chosen
    write_table(tmp_path / "h200.json", [choice], "")
    database = Database(None, tmp_path)
    op = candidate.problem.op
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("h100", "a100"):
            assert ladder.schedule(op, name, tuned=database) == ladder.schedule(op, name)


def test_a_table_that_was_renamed_to_another_device_is_a_miss(chosen, tmp_path):
    """C69: a config file from another GPU."""
    candidate, choice = chosen
    forged = replace(choice, problem=choice.problem.replace("h200", "a100"))
    write_table(tmp_path / "a100.json", [forged], "")
    op = candidate.problem.op
    with pytest.warns(RuntimeWarning, match="another device: h200, here a100"):
        found = ladder.schedule(op, "a100", tuned=Database(None, tmp_path))
    assert found == ladder.schedule(op, "a100")


DAMAGE = {
    "no JSON": "{",
    "a list": "[]",
    "no entries": '{"format": "ladder.tuned/1"}',
    "another format": '{"format": "ladder.tuned/0", "entries": []}',
    "a bad entry": '{"format": "ladder.tuned/1", "entries": [{"kind": "tuned"}]}',
    "a measurement": '{"format": "ladder.tuned/1", "entries": [3]}',
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_table_is_an_error_with_its_place_and_a_miss_with_a_warning(name, tmp_path):
    path = tmp_path / "h200.json"
    path.write_text(DAMAGE[name])
    with pytest.raises(TuningError) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    op = _op(1)
    with pytest.warns(RuntimeWarning, match="table"):
        found = ladder.schedule(op, "h200", tuned=Database(None, tmp_path))
    assert found == ladder.schedule(op, "h200")


def test_the_folder_is_the_settings(tmp_path, monkeypatch):
    assert default_folder(Settings(tuned_dir="off")) is None
    assert default_folder(Settings(tuned_dir=str(tmp_path))) == tmp_path
    own = default_folder(Settings())
    assert own is None or own.name == "tuned"
    monkeypatch.setenv("LADDER_TUNED_DIR", str(tmp_path))
    assert ladder.tuned().folder == tmp_path
    assert ladder.tuned() is tuned()
    with pytest.raises(TuningError, match="no folder"):
        Database(None).journal("h200")


def test_looking_up_writes_nothing(tmp_path):
    database = Database(tmp_path / "none")
    assert database.lookup(_op(1), ladder.devices["h200"], "plain") == []
    assert database.lookup(_op(None), ladder.devices["h200"], "plain") == ()
    assert not (tmp_path / "none").exists()


def test_without_a_home_there_is_no_folder(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("no home")

    monkeypatch.setattr(module.platformdirs, "user_data_dir", refuse)
    assert default_folder(Settings()) is None


def test_a_table_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TuningError, match="cannot be written"):
        write_table(Path(tmp_path / "file" / "h200.json"), [], "")
