"""Registries: lazy, complete, and strict about names."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest

from ladder.errors import DeviceError, LadderError, TypeDeclarationError
from ladder.registry import Registry, suggestion, types
from ladder.ttype.resolve import NOT_OFFERED


@dataclass(frozen=True)
class Thing:
    name: str


A, B = Thing("alpha"), Thing("beta")


def registry(values=(A, B), aliases=None) -> Registry[Thing]:
    return Registry("thing", lambda: (values, aliases or {"a": "alpha"}), DeviceError)


def test_looks_up_names_and_aliases_and_lists_names() -> None:
    things = registry()
    assert things["alpha"] is things["a"] is A
    assert list(things) == ["alpha", "beta"]
    assert len(things) == 2
    assert "a" in things
    assert "gamma" not in things
    assert things.get("gamma") is None
    assert things.get("a") is A
    assert things.aliases == {"a": "alpha"}
    assert repr(things) == "<things: alpha, beta>"
    assert dict(things.items()) == {"alpha": A, "beta": B}


def test_fills_itself_once_and_late() -> None:
    calls = []

    def catalog():
        calls.append(1)
        return (A,), {}

    things = Registry("thing", catalog, DeviceError)
    assert not calls
    threads = [threading.Thread(target=lambda: things["alpha"]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]


def test_unknown_names_suggest_what_was_meant() -> None:
    with pytest.raises(DeviceError) as caught:
        registry()["alpa"]
    assert (
        str(caught.value)
        == "unknown thing 'alpa'\n  at: ladder.things['alpa']\n  hint: did you mean alpha?"
    )
    with pytest.raises(DeviceError, match="known names: alpha, beta, a"):
        registry()["zzz"]
    with pytest.raises(TypeDeclarationError, match="did you mean"):
        types["INT-4"]
    assert suggestion("Float_16", ("float16", "int4")) == "did you mean float16?"


@pytest.mark.parametrize("name", [None, 3, ["alpha"], {}, ("alpha",)])
def test_what_is_no_text_is_no_name(name: object) -> None:
    things = registry()
    assert name not in things
    assert things.get(name, 7) == 7  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="a thing's name is a text, found") as caught:
        things[name]  # type: ignore[index]
    assert caught.value.at.startswith("ladder.things[")
    assert caught.value.hint == "known names: alpha, beta, a"
    with pytest.raises(DeviceError, match="an alias is a text, found"):
        things.register(Thing("gamma"), name)  # type: ignore[arg-type]
    assert "gamma" not in things


def test_names_that_are_not_offered_are_answered_with_the_reason() -> None:
    things = Registry("thing", lambda: ((A,), {}), DeviceError, lambda: {"alphaz": "no z here"})
    with pytest.raises(DeviceError) as caught:
        things["AlphaZ"]
    assert str(caught.value) == (
        "AlphaZ is not offered\n  at: ladder.things['AlphaZ']\n  hint: no z here"
    )
    with pytest.raises(TypeDeclarationError) as refused:
        types["fp8_e5m2fnuz"]
    assert refused.value.hint == NOT_OFFERED["fp8_e5m2fnuz"]


def test_users_register_values_and_never_replace_one() -> None:
    things = registry()
    gamma = Thing("gamma")
    assert things.register(gamma, "g", "third") is gamma
    assert things["g"] is things["third"] is things["gamma"] is gamma
    for value, aliases in ((A, ()), (Thing("a"), ()), (Thing("delta"), ("beta",)), (gamma, ())):
        with pytest.raises(DeviceError, match="is taken"):
            things.register(value, *aliases)
    assert list(things) == ["alpha", "beta", "gamma"]
    assert "delta" not in things


def test_values_need_a_name() -> None:
    for value in (Thing(""), 5):
        with pytest.raises(DeviceError, match="registered under its name"):
            registry().register(value)


@pytest.mark.parametrize(
    "values, aliases, what",
    [
        ((A, A), {}, "'alpha' is taken"),
        ((A,), {"alpha": "alpha"}, "'alpha' is taken"),
        ((A,), {"x": "beta"}, "stands for 'beta', which is no thing"),
    ],
)
def test_a_catalogue_that_contradicts_itself_fails_whole(values, aliases, what) -> None:
    things = registry(values, aliases or {"b": "alpha"})
    for _ in range(2):  # the second look-up does not see a half-filled registry
        with pytest.raises(LadderError, match=what):
            things["alpha"]


def test_importing_types_is_light() -> None:
    """Neither the catalogue nor anything but NumPy and ml_dtypes is loaded."""
    code = (
        "import sys, ladder.ttype\n"
        "heavy = {'tvm', 'cuda', 'networkx', 'torch', 'rich', 'typer', 'scipy', 'ladder.catalog'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
