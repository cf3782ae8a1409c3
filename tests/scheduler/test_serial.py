"""JSON of plans, sets and packings: the way back, stable text, refusals."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from types import ModuleType
from typing import ClassVar

import numpy as np
import pytest

from ladder.errors import LadderError, PlanError
from ladder.graph.matmul import matmul
from ladder.registry import devices, types
from ladder.scheduler import PACKING_VERSION, EpilogueStage, Packing, Plan, PlanSet, schedule
from ladder.scheduler.serial import decode, encode
from ladder.ttype import TType

INT4 = types["int4"]


@dataclass(frozen=True)
class Halve(EpilogueStage):
    """A stage from outside the package."""

    name: ClassVar[str] = "halve"
    times: int = 1

    def evaluate(self, y, operands):
        return y / np.float32(2**self.times)


def a_plan(**shape) -> Plan:
    wt = INT4.grouped(64, zero="integer")
    defaults = {"m": 3, "n": 70, "k": 200, "activation": "float16", "weight": wt}
    return schedule(matmul(**{**defaults, **shape}))


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"bias": True, "out": "bfloat16"},
        {"weight": "nf4", "activation": "bfloat16"},
        {"weight": "mxfp4"},
        {"weight": "nvfp4"},
        {"weight": INT4.grouped((3, 48), scale="float32", zero="rescaled")},
    ],
)
def test_plan_comes_back_equal_and_text_is_stable(shape):
    plan = a_plan(**shape)
    text = plan.to_json()
    back = Plan.from_json(text)
    assert back == plan
    assert hash(back) == hash(plan)
    assert back.to_json() == text
    assert str(back) == str(plan)
    assert a_plan(**shape).to_json() == text


def test_plan_set_writes_what_its_plans_share_once():
    plans = a_plan(m=None)
    assert isinstance(plans, PlanSet)
    text = plans.to_json()
    assert PlanSet.from_json(text) == plans
    assert text.count('"DecodeProgram"') == 1
    assert len({id(plan.packing) for plan in PlanSet.from_json(text)}) == 1


def test_packing_comes_back_and_packs_the_same_bytes(weights_of):
    packing = a_plan().packing
    back = Packing.from_json(packing.to_json())
    assert back == packing
    weights = weights_of(packing.weight, packing.n, packing.k)
    one, other = packing.pack(weights), back.pack(weights)
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_every_element_comes_back(element):
    found = decode(json.loads(json.dumps(encode(types[element]))))
    assert found == types[element]


def test_every_device_comes_back():
    for name in devices:
        assert decode(json.loads(json.dumps(encode(devices[name])))) == devices[name]


def test_numbers_that_json_lacks():
    odd = TType("odd", 2, values=[float("nan"), -0.0, float("inf"), None])
    assert decode(json.loads(json.dumps(encode(odd), allow_nan=False))) == odd
    assert decode(encode(Fraction(-3, 7))) == Fraction(-3, 7)
    assert decode(encode(frozenset({"b", "a"}))) == frozenset({"a", "b"})


def test_a_users_own_device_and_stage_travel_with_the_plan():
    mine = devices["h200"].with_(name="mine", sms=3)
    plan = replace(a_plan(), device=mine).with_(epilogue=(Halve(2),))
    back = Plan.from_json(plan.to_json())
    assert back == plan
    assert back.device.sms == 3
    assert back.epilogue == (Halve(2),)


STAGE = """
from dataclasses import dataclass
from ladder.scheduler import EpilogueStage

@dataclass(frozen=True)
class Halve(EpilogueStage):
    times: int = 1
{more}
"""


def defined_in(module: str, more: str = "") -> type[EpilogueStage]:
    """The stage of a cell of a notebook, or of a page, that is called ``module``."""
    names: dict[str, object] = {"__name__": module}
    exec(STAGE.format(more=more), names)
    return names["Halve"]  # type: ignore[return-value]


@pytest.fixture
def cell(monkeypatch) -> str:
    monkeypatch.setitem(sys.modules, "cell", ModuleType("cell"))
    return "cell"


def test_stages_of_the_same_name_in_two_modules_are_told_apart(cell):
    other = defined_in(cell)
    plan = a_plan().with_(epilogue=(Halve(2), other(3)))
    text = plan.to_json()
    assert f'"{Halve.__module__}.Halve"' in text
    assert '"cell.Halve"' in text
    back = Plan.from_json(text)
    assert back == plan
    assert [type(stage) for stage in back.epilogue] == [Halve, other]


def test_a_stage_that_is_defined_again_works_and_the_newest_is_read(cell):
    older = defined_in(cell)
    before = a_plan().with_(epilogue=(older(2),))
    newer = defined_in(cell, "    colour: str = 'red'")
    after = a_plan().with_(epilogue=(newer(2),))
    assert Plan.from_json(after.to_json()) == after
    # a plan from before the cell ran again can still be written; it is read as what the cell says now
    assert Plan.from_json(before.to_json()) == after


def test_a_stage_may_be_defined_inside_a_function():
    @dataclass(frozen=True)
    class Inner(EpilogueStage):
        name: ClassVar[str] = "inner"

    plan = a_plan().with_(epilogue=(Inner(),))
    assert Plan.from_json(plan.to_json()) == plan


def test_stages_of_the_package_go_by_their_bare_names():
    text = a_plan(weight="nvfp4", bias=True).to_json()
    assert '{"$":"GlobalScale"}' in text
    assert '{"$":"AddBias"}' in text


def test_an_unknown_stage_says_what_to_import():
    text = a_plan(bias=True).to_json().replace('"AddBias"', '"shop.AddBias"')
    with pytest.raises(PlanError, match=r"unknown tag 'shop.AddBias'") as caught:
        Plan.from_json(text)
    assert "import the module" in caught.value.hint


@pytest.mark.parametrize(
    "text, what",
    [
        ("{", "the text is no JSON"),
        ("[]", "the text has format None"),
        ('{"format": "ladder.plan/0"}', "the text has format 'ladder.plan/0'"),
        ('{"format": "ladder.plan/1", "value": {"$": "Tiling"}}', "Tiling cannot be made"),
        ('{"format": "ladder.plan/1", "value": {"$": "Bogus"}}', "unknown tag 'Bogus'"),
        ('{"format": "ladder.plan/1", "value": 3}', "the text holds a int"),
        (
            '{"format": "ladder.plan/1", "value": {"$": "type", "name": "x"}}',
            "the element type cannot be made",
        ),
    ],
)
def test_foreign_text_is_refused(text, what):
    with pytest.raises(PlanError) as caught:
        Plan.from_json(text)
    assert caught.value.what.startswith(what)


def test_text_of_another_kind_is_refused():
    with pytest.raises(PlanError, match=r"expected 'ladder.planset/1'"):
        PlanSet.from_json(a_plan().to_json())


def test_values_without_a_form_are_refused():
    with pytest.raises(PlanError, match="object has no form in JSON"):
        encode(object())


@pytest.mark.parametrize("kind", [Plan, Packing], ids=lambda kind: kind.__name__)
def test_a_text_that_was_changed_by_hand_is_a_plan_error_or_a_legal_plan(kind):
    """Whatever stands in the place of a part, no other error comes out."""
    plan = a_plan()
    text = (plan if kind is Plan else plan.packing).to_json()
    places: dict[tuple[str, ...], tuple[str | int, ...]] = {}
    for place in _places(json.loads(text)):
        places.setdefault(tuple(key for key in place if isinstance(key, str)), place)
    values = (None, "x", -1, [], {"$": "float"}, {"$": "fraction", "of": "1/0"})
    for number, place in enumerate(places.values()):
        # what a tagged value lacks is found before its place is known: each tag in some of them
        for value in (*values[:4], *values[4:][number % 8 :][:1]):
            document = json.loads(text)
            node = document
            for key in place[:-1]:
                node = node[key]
            node[place[-1]] = value
            with suppress(LadderError):
                kind.from_json(json.dumps(document))


def _places(node, at=()):
    parts = node.items() if isinstance(node, dict) else enumerate(node)
    for key, part in parts if isinstance(node, (dict, list)) else ():
        yield (*at, key)
        if isinstance(part, (dict, list)):
            yield from _places(part, (*at, key))


def test_a_plan_that_was_made_illegal_by_hand_is_refused():
    text = a_plan().to_json()
    depth = a_plan().depth
    with pytest.raises(PlanError, match="cannot load ahead"):
        Plan.from_json(text.replace(f'"depth":{depth}', '"depth":1'))


@pytest.mark.parametrize("version", [PACKING_VERSION - 1, PACKING_VERSION + 1, "3", None])
def test_packings_of_another_version_are_refused_wherever_they_stand(version):
    plan = a_plan()
    plans = PlanSet((plan,))
    for value in (plan, plans, plan.packing):
        text = value.to_json()
        changed = text.replace(f'"version":{PACKING_VERSION}', f'"version":{json.dumps(version)}')
        assert changed != text
        with pytest.raises(PlanError, match=f"this version packs by {PACKING_VERSION}"):
            type(value).from_json(changed)


def test_fields_that_came_later_leave_texts_of_before_as_they_were():
    """Digests of operators and plans name tuned entries and kernels: a new field with its old meaning changes none."""
    plain = matmul(64, 256, 512, activation="int8", weight="int4")
    plan = schedule(plain)
    text = plan.to_json()
    assert "activation_scale" not in text
    assert "multicast" not in text
    assert "lookup" not in text
    scaled = replace(plain, activation_scale=True)
    other = schedule(scaled).with_(family="ring", compute="mma")
    assert '"activation_scale":true' in other.to_json()
    for one in (plan, other):
        assert Plan.from_json(one.to_json()) == one
