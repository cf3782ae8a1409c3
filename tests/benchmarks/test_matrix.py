"""The matrix covers catalogue, devices and variants, compiles, and tells refusals from failures and spills."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import ladder
from benchmarks import matrix
from benchmarks.families import (
    ACTIVATIONS,
    DEVICES,
    QUICK_TYPES,
    VARIANTS,
    Made,
    Part,
    make,
    parts,
    variants_of,
    weight_types,
)
from ladder.ttype import GroupedType, TType

HEADER = matrix.Header("2026-01-01", "abc", "nvrtc", "python -m benchmarks.matrix", 1, 12.5)
MADE = Made("int4", "float16", "h200", "sm_90a", "ring M=64", "ring, ...", 96, 0, 0, 4096, 0.2, 0.3)
SPILLS = replace(MADE, type="nf4", spill_bytes=16)
REFUSED = Made("e8m0", "float16", "a100", "sm_80", "ring M=64", refused="may overflow")
FAILED = Made("int3", "float16", "a100", "sm_80", "ring M=64", failure="ptxas died")


def test_every_type_of_the_catalogue_is_in():
    known = [name for name, t in ladder.types.items() if isinstance(t, (TType, GroupedType))]
    assert list(weight_types()) == known
    assert len(known) >= 53


def test_both_sides_of_zero_points_are_in():
    zeros = {name: wt.zero for name, wt in weight_types().items()}
    assert zeros["uint4"] == zeros["offset3"] == "integer"
    assert zeros["int4"] is zeros["nf4"] is zeros["bipolar2"] is None


def test_the_matrix_is_types_x_activations_x_architectures():
    whole = list(parts(quick=False))
    assert len(whole) == len(set(whole)) == len(weight_types()) * len(ACTIVATIONS) * len(DEVICES)
    archs = {ladder.devices[device].arch for device in DEVICES}
    assert archs == {"sm_80", "sm_86", "sm_87", "sm_89", "sm_90a"}


def test_variants_meet_both_families_placements_and_accesses():
    for family in ("skinny", "ring"):
        some = [variant.fixed for variant in VARIANTS if variant.fixed["family"] == family]
        assert {fixed.get("convert") for fixed in some} == {None, "shared"}
        assert {fixed.get("access") for fixed in some} == {None, "scalar"}
    assert {variant.m for variant in VARIANTS} == {1, 16, 64, None}
    assert {variant.fixed.get("compute") for variant in VARIANTS} == {None, "mma", "wgmma"}


def test_warpgroups_are_compiled_where_they_exist():
    assert len(variants_of("h200")) == len(VARIANTS)
    assert not any(name.startswith("warpgroup") for name in variants_of("a100"))


def test_quick_takes_few_kernels_of_each_family():
    quick = list(parts(quick=True))
    assert {part.type for part in quick} == set(QUICK_TYPES)
    assert sum(len(part.variants) for part in quick) <= 36


def test_two_kernels_compile_with_numbers_that_make_sense():
    pytest.importorskip("tvm")
    pytest.importorskip("cuda.bindings.nvrtc")
    found = make(Part("int4", "float16", "h200", ("skinny M=1", "ring M=64 shared")))
    assert [made.variant for made in found] == ["skinny M=1", "ring M=64 shared"]
    for made in found:
        assert made.compiled, made
        assert made.arch == "sm_90a"
        assert 16 <= made.registers <= 255
        assert 0 < made.shared_bytes <= ladder.devices["h200"].shared_bytes_per_block
        assert made.lower_s > 0
        assert made.compile_s > 0
    assert found[0].plan.startswith("skinny")
    assert "convert in shared" in found[1].plan


def test_an_equal_text_is_compiled_once():
    pytest.importorskip("tvm")
    part = Part("int4", "bfloat16", "a100", ("skinny M=1",))
    first, second = make(part), make(part)
    assert second[0].compile_s == 0.0
    assert second[0].registers == first[0].registers


def test_what_may_overflow_is_refused_not_failed():
    (made,) = make(Part("e8m0", "float16", "h200", ("skinny M=1",)))
    assert "overflow" in made.refused
    assert not made.failure


@pytest.mark.parametrize(
    "found,code", [([MADE, REFUSED], 0), ([MADE, SPILLS], 1), ([MADE, FAILED], 1)]
)
def test_the_exit_code_is_1_for_spills_and_failures(found, code, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(matrix, "compile_all", lambda *_: found)
    with pytest.raises(matrix.typer.Exit) as stop:
        matrix.main(tmp_path, 1, [], [], quick=True)
    assert stop.value.exit_code == code
    assert (tmp_path / "matrix-quick.json").exists()
    assert (tmp_path / "matrix-quick.md").read_text() in capsys.readouterr().out


def test_the_record_holds_every_kernel_and_every_reason():
    text = matrix.dump(matrix.record(HEADER, [MADE, SPILLS, REFUSED, FAILED]))
    data = json.loads(text)
    rows = [dict(zip(data["columns"], cells, strict=True)) for cells in data["kernels"]]
    assert [row["type"] for row in rows] == ["int4", "nf4"]
    assert data["plans"][rows[0]["plan"]] == "ring, ..."
    assert rows[1]["spill_bytes"] == 16
    reasons = [dict(zip(data["reasons"], cells, strict=True)) for cells in data["not_compiled"]]
    assert reasons[0]["refused"] == "may overflow"
    assert reasons[1]["failure"] == "ptxas died"
    assert data["archs"] == {"h200": "sm_90a", "a100": "sm_80"}


def test_the_summary_lists_spills_failures_and_refusals():
    text = matrix.summary(HEADER, [MADE, SPILLS, REFUSED, FAILED])
    assert "2 kernels" in text
    assert "at most 0.50 s (int4 float16 h200, ring M=64" in text
    assert "| ring M=64 | h200 | sm_90a | 2 | 96 | 4096 | 1 |" in text
    assert "* nf4 float16 h200 (sm_90a), ring M=64: 16 B" in text
    assert "* ptxas died: int3 float16 a100" in text
    assert "* may overflow: e8m0 float16 a100" in text


def test_a_matrix_without_kernels_is_a_report_too():
    assert "Nothing was compiled." in matrix.summary(HEADER, [REFUSED])
