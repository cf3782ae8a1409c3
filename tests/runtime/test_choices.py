from __future__ import annotations

import functools
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import ladder
from ladder.errors import DeviceError, ScheduleError
from ladder.runtime import choices as module
from ladder.runtime import entries
from ladder.scheduler import search
from ladder.scheduler.decisions import DECISIONS
from ladder.scheduler.stage import EpilogueStage

ROOT = Path(__file__).parents[2]
INT4 = ladder.types["int4"].grouped(128, scale="float16", zero="integer")
OWN = ladder.TType("mine", 3, [-7.0, -3.0, -1.5, 0.0, 0.25, 1.0, 3.0, 9.0]).grouped(
    64, scale="float16"
)
OP = ladder.matmul(1, 256, 512, activation="float16", weight=INT4)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(entries, "_warned", set())
    return tmp_path


class Search:
    """The scheduler, which counts what it is asked."""

    def __init__(self):
        self.count = 0
        self.schedule = module.remembering(self._schedule)

    def _schedule(self, *args, **kwargs):
        self.count += 1
        return search.schedule(*args, **kwargs)


def answers(folder):
    return list(folder.rglob("*.json"))


QUESTIONS = {
    "one token": ((OP,), {}),
    "any M": ((replace(OP, m=None),), {}),
    "a type of one's own": ((replace(OP, weight=OWN),), {}),
    "another device": ((OP, "a100"), {}),
    "a device as a value": ((OP, replace(ladder.devices["h200"], name="mine", sms=99)), {}),
    "a decision": ((OP,), {"depth": 3}),
    "a family": ((replace(OP, m=16),), {"family": "ring", "launch": "pdl"}),
    "a placement": ((replace(OP, m=16),), {"placement": "shared"}),
    "a range": ((OP,), {"m_range": (1, 8)}),
    "a bias": ((replace(OP, bias=True),), {}),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_was_found_is_found_again_without_a_search(name):
    args, kwargs = QUESTIONS[name]
    asked = Search()
    first = asked.schedule(*args, **kwargs)
    second = asked.schedule(*args, **kwargs)
    assert asked.count == 1
    assert first == second == search.schedule(*args, **kwargs)
    assert type(first) is type(second)
    assert first.to_json() == second.to_json()
    assert first.explain() == second.explain()


def test_every_question_has_an_answer_of_its_own(cache):
    asked = Search()
    for args, kwargs in QUESTIONS.values():
        asked.schedule(*args, **kwargs)
    assert asked.count == len(QUESTIONS) == len(answers(cache))


def test_none_leaves_a_decision_open():
    asked = Search()
    asked.schedule(OP)
    asked.schedule(OP, "h200", placement=None, depth=None, tuned=None)
    asked.schedule(OP, "h200", epilogue=None)
    asked.schedule(OP, ladder.devices["h200"])
    assert asked.count == 1


def test_one_decision_in_several_forms_is_one_question():
    asked = Search()
    tiling = search.schedule(OP).tiling
    for forms in (
        ({"depth": 3}, {"depth": np.int64(3)}),
        ({"m_range": (1, 8)}, {"m_range": [1, 8]}, {"m_range": (np.int32(1), 8)}),
        ({"placement": "shared"}, {"convert": "shared"}, {"convert": np.str_("shared")}),
        ({"lookahead": False}, {"lookahead": np.False_}),
        ({"tiling": tiling}, {"tiling": replace(tiling, warps_k=np.int64(tiling.warps_k))}),
    ):
        before = asked.count
        first, *others = [asked.schedule(OP, **form) for form in forms]
        assert all(other == first for other in others)
        assert asked.count == before + 1


@dataclass(frozen=True)
class OwnDevice(ladder.Device):
    """A device from outside, which no text names."""


@dataclass(frozen=True)
class OwnMatMul(type(OP)):
    """An operator from outside."""


def of_class(cls, value):
    return cls(**{field.name: getattr(value, field.name) for field in fields(value) if field.init})


def test_what_no_text_names_is_not_kept(cache):
    asked = Search()
    device = of_class(OwnDevice, ladder.devices["h200"])
    op = of_class(OwnMatMul, OP)
    for _ in range(2):
        assert asked.schedule(OP, device) == search.schedule(OP, device)
        assert asked.schedule(op) == search.schedule(op)
    assert asked.count == 4
    assert not answers(cache)


@pytest.mark.parametrize("name", ["source_digest", "package_version"])
def test_another_package_searches_again(monkeypatch, name):
    asked = Search()
    asked.schedule(OP)
    monkeypatch.setattr(module, name, lambda: "another")
    asked.schedule(OP)
    assert asked.count == 2


DAMAGE = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "a bit flipped": lambda content: content[:-40] + bytes([content[-40] ^ 1]) + content[-39:],
    "no JSON": lambda content: entries.sealed(b"{"),
    "no plans": lambda content: entries.sealed(b"{}"),
    "an empty list": lambda content: entries.sealed(
        content[64:].split(b'"plans"')[0] + b'"plans": []}'
    ),
    "an illegal plan": lambda content: entries.sealed(
        content[64:].replace(b'"depth": ', b'"depth": 99')
    ),
    "half a number": lambda content: entries.sealed(
        content[64:].replace(b'"n": 256', b'"n": {"$": "float", "of": "00"}')
    ),
    "no number": lambda content: entries.sealed(
        content[64:].replace(b'"n": 256', b'"n": {"$": "fraction", "of": "1/0"}')
    ),
    "no operation": lambda content: entries.sealed(
        content[64:].replace(b'"ops": [', b'"ops": [0, ')
    ),
    "an unknown class": lambda content: entries.sealed(content[64:].replace(b"Tiling", b"Tilting")),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_answer_is_searched_for_again(cache, name):
    asked = Search()
    found = asked.schedule(OP)
    (path,) = answers(cache)
    path.write_bytes(DAMAGE[name](path.read_bytes()))
    assert asked.schedule(OP) == found
    assert asked.count == 2
    assert asked.schedule(OP) == found
    assert asked.count == 2


@dataclass(frozen=True)
class Twice(EpilogueStage):
    """A stage from outside: its code may change and its name stay."""

    name: ClassVar[str] = "twice"

    def evaluate(self, y: np.ndarray, operands: dict[str, np.ndarray]) -> np.ndarray:
        return y + y


def test_what_depends_on_more_is_not_kept(cache):
    asked = Search()
    epilogue = (*search.schedule(OP).epilogue, Twice())
    for _ in range(2):
        asked.schedule(OP, tuned=ladder.tuned())
        asked.schedule(OP, epilogue=epilogue)
        asked.schedule(ladder.quantize_activations(1, 512, source="float16", target="int8"))
        asked.schedule(ladder.dequantize(256, 512, weight=INT4))
    assert asked.count == 8
    assert not answers(cache)


def test_every_other_decision_can_be_part_of_a_question(cache):
    plan = search.schedule(OP)
    asked = Search()
    fixed = [name for name in search.FIXABLE if name != "epilogue"]
    assert set(fixed) < set(DECISIONS)
    for name in fixed:
        for _ in range(2):
            asked.schedule(OP, **{name: getattr(plan, name)})
    assert asked.count == len(fixed) == len(answers(cache))


@pytest.mark.parametrize(
    "kwargs, error",
    [
        ({"depht": 3}, ScheduleError),
        ({"depth": "three"}, ScheduleError),
        ({"depth": object()}, ScheduleError),
        ({"depth": frozenset({1, "a"})}, ScheduleError),
        ({"depth": 10**5000}, ScheduleError),
        ({"depth": functools.reduce(lambda inner, _: (inner,), range(10**5), ())}, ScheduleError),
        ({"depth": np.arange(3)}, ScheduleError),
        ({"placement": "global"}, ScheduleError),
        ({"tiling": 7}, ScheduleError),
        ({"device": "h2000"}, DeviceError),
        ({"device": 7}, ScheduleError),
    ],
)
def test_bad_questions_get_the_errors_of_the_scheduler(cache, kwargs, error):
    with pytest.raises(error) as wanted:
        search.schedule(OP, **kwargs)
    for _ in range(2):
        with pytest.raises(error) as found:
            ladder.schedule(OP, **kwargs)
        assert str(found.value) == str(wanted.value)
    assert not answers(cache)


def test_off_keeps_nothing(cache, monkeypatch):
    monkeypatch.setenv("LADDER_CACHE_DIR", "off")
    asked = Search()
    assert asked.schedule(OP) == asked.schedule(OP)
    assert asked.count == 2
    assert not answers(cache)


def test_a_folder_that_cannot_be_written_is_one_warning(monkeypatch):
    def refuse(path, content):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(entries, "write_atomically", refuse)
    asked = Search()
    with pytest.warns(RuntimeWarning, match="plans are searched for in every process"):
        asked.schedule(OP)
    asked.schedule(OP)  # a second warning would be an error
    assert asked.count == 2


SCRIPT = """
import ladder
from ladder.scheduler import search
wt = ladder.types["int4"].grouped(128, scale="float16", zero="integer")
op = ladder.matmul(None, 256, 512, activation="float16", weight=wt)
found = ladder.schedule(op)
print(hash(found.to_json()))
"""


def test_two_processes_agree(cache):
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "LADDER_CACHE_DIR": str(cache)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    printed = [worker.communicate(timeout=120)[0] for worker in workers]
    assert len(set(printed)) == 1
    assert printed[0]
    assert len(answers(cache)) == 1
    assert not list(cache.rglob("*.tmp"))


def test_the_public_function_is_described_as_the_schedulers():
    assert ladder.schedule is module.schedule
    assert ladder.schedule.__doc__ == search.schedule.__doc__
