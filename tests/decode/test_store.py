from __future__ import annotations

import json
import time

import pytest

from ladder.decode import generate, store
from ladder.decode.derive import search_program
from ladder.decode.lanes import LANE_FORMATS
from ladder.decode.serial import dump
from ladder.decode.values import ValueSet
from ladder.errors import DecodeError


def test_every_type_is_shipped(catalog):
    keys = {store.digest(ValueSet.of(t), c) for t in catalog.values() for c in LANE_FORMATS}
    assert set(store.index()) == keys - {store.digest(ValueSet.of(catalog["e8m0"]), "float16")}
    files = {path.relative_to(store.DATA).as_posix() for path in store.DATA.rglob("*.json")}
    beside = [store.index(kind) for kind in store.BESIDE]
    assert files == {"index.json", *store.index().values()}.union(*(x.values() for x in beside))
    assert all(set(others) <= set(store.index()) for others in beside)


@pytest.mark.parametrize("name", ["int4", "fp4_e2m1", "nf4", "uint2"])
def test_what_is_shipped_is_what_the_search_finds(catalog, name):
    values = ValueSet.of(catalog[name])
    for compute in LANE_FORMATS:
        assert store.shipped(values, compute) == search_program(values, compute)


def test_a_program_is_read_within_20_ms(catalog):
    values = ValueSet.of(catalog["int7"])
    store.index()
    started = time.process_time()
    assert store.shipped(values, "float16")
    assert time.process_time() - started < 0.02


def test_unknown_values_have_none(catalog):
    values = ValueSet.of(catalog["int4"])
    assert store.shipped(values, "float8") is None


def test_damage_is_named(tmp_path, monkeypatch, catalog):
    monkeypatch.setattr(store, "DATA", tmp_path)
    store.index.cache_clear()
    try:
        with pytest.raises(DecodeError, match=r"cannot be read(.|\n)*install it anew"):
            store.index()
        (tmp_path / "index.json").write_text('{"format": "other"}')
        with pytest.raises(DecodeError, match="not of format"):
            store.index()
        values = ValueSet.of(catalog["int4"])
        index = {"format": generate.FORMAT, "programs": {store.digest(values, "float16"): "x.json"}}
        (tmp_path / "index.json").write_text(json.dumps(index))
        (tmp_path / "x.json").write_text("{")
        with pytest.raises(DecodeError, match="cannot be read"):
            store.shipped(values, "float16")
    finally:
        store.index.cache_clear()


def test_writing_gives_what_is_shipped(tmp_path, monkeypatch, catalog):
    few = (catalog["uint8"], catalog["fp8_e5m2"], catalog["e8m0"])
    monkeypatch.setattr(generate, "elements", lambda: few)
    assert generate.write(tmp_path) == 5
    for path in tmp_path.rglob("*.json"):
        if path.name != "index.json":
            assert path.read_text() == (store.DATA / path.relative_to(tmp_path)).read_text()


def test_files_keep_one_field_a_line(catalog):
    values = ValueSet.of(catalog["int4"])
    text = (store.DATA / store.index()[store.digest(values, "float16")]).read_text()
    assert len(text.splitlines()) == len(dump(store.shipped(values, "float16"))) + 2
