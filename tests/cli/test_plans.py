"""``ladder plan`` and ``ladder explain``."""

from __future__ import annotations

import json

import pytest

import ladder
from ladder.cli.app import run
from ladder.cli.options import Zero as ZeroOption
from ladder.cli.options import parse_group, weight_type
from ladder.errors import TypeDeclarationError

SHAPE = ("-n", "512", "-k", "1024")
INT4 = ("--weight", "int4", "--group", "128", "--zero", "integer")


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(arguments) == 0
    return capsys.readouterr().out


def planned(m: int | None, device: str = "h200") -> object:
    weight = ladder.types["int4"].grouped(128, scale="float16", zero="integer")
    op = ladder.matmul(m=m, n=512, k=1024, activation="float16", weight=weight)
    return ladder.schedule(op, device=device)


def test_plan_prints_what_the_library_plans(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "plan", *SHAPE, "-m", "1", *INT4)
    assert text == f"{planned(1)}\n"


def test_without_m_it_plans_for_every_m(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "plan", *SHAPE, *INT4, "--device", "a100")
    assert text == f"{planned(None, 'a100')}\n"


@pytest.mark.parametrize("m", [("-m", "7"), ()])
def test_a_plan_as_json_can_be_read_back(
    capsys: pytest.CaptureFixture[str], m: tuple[str, ...]
) -> None:
    text = output(capsys, "plan", *SHAPE, *m, *INT4, "--json")
    kind = ladder.Plan if m else ladder.PlanSet
    assert kind.from_json(text) == planned(7 if m else None)


def test_explain_prints_the_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "explain", *SHAPE, "-m", "1", *INT4)
    assert text == f"{planned(1).explain()}\n"
    record = json.loads(output(capsys, "explain", *SHAPE, "-m", "1", *INT4, "--json"))
    assert "\n".join(record["explanation"]) + "\n" == text
    assert json.loads(planned(1).to_json()) == record["plan"]


def test_explain_counts_a_cta(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tvm")
    text = output(capsys, "explain", *SHAPE, "-m", "1", *INT4, "--emulate")
    assert text.startswith(f"{planned(1).explain()}\n\nemulated, M 1\n  one CTA")
    assert "bank conflicts" in text
    record = json.loads(output(capsys, "explain", *SHAPE, "-m", "1", *INT4, "--emulate", "--json"))
    (emulated,) = record["emulated"]
    products = emulated["lines"][0]
    assert products["quantity"] == "products"
    assert products["model"] == products["emulated"]


def test_convert_can_be_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("plan", *SHAPE, "-m", "16", *INT4, "--json", "--convert", "shared")
    assert ladder.Plan.from_json(output(capsys, *arguments)).convert == "shared"


@pytest.mark.parametrize(
    "options,text",
    [
        (("--weight", "mxfp4"), "w mxfp4"),
        (("--weight", "int8"), "w int8["),
        (("--weight", "uint4", "--group", "channel", "--scale", "float32"), "channel"),
        (("--weight", "int4", "--group", "128x128", "--scale", "bfloat16"), "g128x128"),
        (("--activation", "bfloat16", "--out", "float32", "--bias"), "x bfloat16[1, 1024]"),
    ],
)
def test_the_options_reach_the_operator(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], text: str
) -> None:
    first = output(capsys, "plan", *SHAPE, "-m", "1", *options).splitlines()[0]
    assert text in first
    assert ("+ bias" in first) == ("--bias" in options)


@pytest.mark.parametrize(
    "text,group",
    [
        ("128", 128),
        ("128x64", (128, 64)),
        ("*x32", (None, 32)),
        ("1x*", (1, None)),
        ("channel", "channel"),
        ("tensor", "tensor"),
    ],
)
def test_groups_are_spelled(text: str, group: object) -> None:
    assert parse_group(text) == group


@pytest.mark.parametrize("text", ["", "x", "128x", "x128", "-1", "1x2x3", "all", "*"])
def test_a_group_that_is_spelled_wrongly_is_refused(text: str) -> None:
    with pytest.raises(TypeDeclarationError, match="a group is spelled"):
        parse_group(text)


@pytest.mark.parametrize(
    "name,group,zero,what",
    [
        ("mxfp4", "32", ZeroOption.none, "has its groups already"),
        ("int4", None, ZeroOption.integer, "--zero belongs to a group"),
        ("float32", None, ZeroOption.none, "expected an element type"),
        ("float16", "128", ZeroOption.none, "has no scales"),
        ("int44", None, ZeroOption.none, "unknown type"),
    ],
)
def test_weights_that_contradict_themselves_are_refused(
    name: str, group: str | None, zero: ZeroOption, what: str
) -> None:
    with pytest.raises(TypeDeclarationError, match=what):
        weight_type(name, group, "float16", zero)


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "-n", "512"),
        ("plan", "-n", "0", "-k", "8"),
        ("plan", *SHAPE, "--convert", "offline"),
        ("explain", *SHAPE, "--activation", "float64"),
    ],
)
def test_a_wrong_command_line_ends_with_2(arguments: tuple[str, ...]) -> None:
    assert run(arguments) == 2


@pytest.mark.parametrize(
    "option,value,what",
    [
        ("--scale", "float16", "--scale belongs to a group"),
        ("--group", "1" * 5000, "a group is spelled"),
        ("--weight", "fp8_e4m3fnuz", "fp8_e4m3fnuz is not offered"),
        ("--device", "no_such.py", "no device file 'no_such.py'"),
    ],
)
def test_options_that_make_no_sense_end_with_1_and_a_hint(
    option: str, value: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(("plan", *SHAPE, "-m", "1", option, value)) == 1
    said = capsys.readouterr().err
    assert what in said
    assert "  at: " in said
    assert "  hint: " in said


def test_what_cannot_be_planned_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(("plan", *SHAPE, "-m", "1", "--weight", "e8m0")) == 1
    assert "overflow" in capsys.readouterr().err
