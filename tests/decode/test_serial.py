from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ladder.decode.derive import derive
from ladder.decode.serial import FORMAT, dump, load
from ladder.errors import DecodeError

NAMES = ["int1", "uint2", "int3", "nf4", "fp6_e2m3", "int7", "e8m0"]


@pytest.mark.parametrize("name", NAMES)
def test_programs_come_back_from_json(catalog, name):
    program = derive(catalog[name], "bfloat16")
    text = json.dumps(dump(program))
    again = load(json.loads(text))
    assert again == program
    assert hash(again) == hash(program)


def test_only_a_search_cut_short_is_written_down(catalog):
    program = derive(catalog["nf4"], "float16")
    cut = replace(program, exhausted=False)
    assert "exhausted" not in dump(program)
    assert load(json.loads(json.dumps(dump(cut)))) == cut


@pytest.fixture
def data(catalog):
    return json.loads(json.dumps(dump(derive(catalog["nf4"], "float16"))))


def test_another_format_is_refused(data):
    with pytest.raises(
        DecodeError, match=f"no decode program of format {FORMAT}, but 'ladder.decode/0'"
    ):
        load({**data, "format": "ladder.decode/0"})
    with pytest.raises(DecodeError, match="but 'list'"):
        load([])


def test_missing_and_unknown_fields_are_refused(data):
    with pytest.raises(DecodeError, match=r"fields \['colour'\] are missing or unknown"):
        load({**data, "colour": 1})
    del data["ops"]
    with pytest.raises(DecodeError, match=r"fields \['ops'\]"):
        load(data)


@pytest.mark.parametrize(
    "field, wrong",
    [("ops", [["lop3", 1]]), ("affine", [[["x", "0"]]]), ("outputs", [[1]]), ("table", 5)],
)
def test_broken_fields_are_refused(data, field, wrong):
    with pytest.raises(DecodeError, match="a field has another form"):
        load({**data, field: wrong})
