"""The command that runs every type through every family, on a corner of its matrix."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("tvm")

from ladder.emulator import matrix
from ladder.scheduler import Tiling


@pytest.mark.parametrize("family", matrix.FAMILIES)
def test_a_kernel_of_each_family_equals_its_plan(family):
    row = matrix.check("int4", "float16", family, 1)
    assert (row.fault, row.refused, row.schedules) == ("", "", 3)
    assert row.plan_error < 1e-4
    assert row.error < 4e-4


def test_a_type_that_does_not_fit_is_a_refusal():
    row = matrix.check("e8m0", "float16", "skinny", 1)
    assert "overflow" in row.refused
    assert row.schedules == 0


def test_dropping_synchronisation_is_seen(monkeypatch):
    monkeypatch.setitem(matrix.DEEP, "skinny", (1, 16, 1024))
    monkeypatch.setitem(matrix.SHORT, "skinny", {"tiling": Tiling(8, 1, 1, 1, 1), "depth": 2})
    verdicts = list(matrix.drop("skinny"))
    texts = [v.instruction for v in verdicts if "unseen" in v.verdicts]
    assert len(verdicts) >= 10
    # of one block in each slice: the last group is empty, and the last wait has nothing to wait for
    assert [text.partition(" (")[0] for text in texts] == [
        "cp.async.commit_group",
        "cp.async.wait_group",
    ]


def test_the_command_writes_its_report(tmp_path, capsys):
    report = tmp_path / "emulator.json"
    arguments = [
        str(report),
        "--types",
        "int8",
        "--families",
        "skinny",
        "--seeds",
        "1",
        "--keep-all",
    ]
    assert matrix.main(arguments) == 0
    written = json.loads(report.read_text())
    assert "| int8 | 3, 3 | 0 |" in report.with_suffix(".md").read_text()
    assert [row["case"].split()[:3] for row in written["rows"]] == [
        ["int8", "float16", "skinny"],
        ["int8", "bfloat16", "skinny"],
    ]
    assert "2 kernels on 6 schedules, 0 with a fault" in capsys.readouterr().out
    assert matrix.main([*arguments[:-2], "2", "--keep-all", "--resume"]) == 0
    assert "2 kernels on 8 schedules, 0 with a fault" in capsys.readouterr().out


#: one type for each form of decoding, operand type and number of words
CLASSES = (
    *(("int1", "float16"), ("int2", "float16"), ("int3", "bfloat16"), ("int5", "float16")),
    *(("int6", "bfloat16"), ("int7", "float16"), ("int8", "bfloat16"), ("signmag2", "bfloat16")),
    *(("signmag1", "float16"), ("fp8_e4m3fn", "float16"), ("e8m0", "bfloat16")),
    *(("nf4", "float16"), ("nf4", "bfloat16"), ("nf3", "float16"), ("float16", "float16")),
)


@pytest.mark.parametrize("name, activation", CLASSES)
def test_a_kernel_of_each_way_to_decode_equals_its_plan(name, activation):
    row = matrix.check(name, activation, "skinny", 1)
    assert (row.fault, row.refused, row.schedules) == ("", "", 3)
    assert row.plan_error < 1e-4
    assert row.error < 3e-3


def test_every_way_to_decode_is_among_them():
    import ladder
    from ladder.errors import LadderError

    def form(name, activation):
        op = ladder.matmul(5, 48, 200, activation=activation, weight=ladder.types[name])
        return ladder.schedule(op, "h200", family="skinny").packing.program.form

    known = set()
    for name in ladder.types:
        for activation in matrix.ACTIVATIONS:
            try:
                known.add(form(name, activation))
            except LadderError:
                continue
    assert {form(*case) for case in CLASSES} == known


def test_dense_weights_run_in_every_family_that_has_them():
    refused = [matrix.check("float16", "float16", family, 0).refused for family in matrix.FAMILIES]
    assert [bool(reason) for reason in refused] == [
        family == "scaled" for family in matrix.FAMILIES
    ]
    assert "has no scales" in refused[-1]
    assert "is multiplied with" in matrix.check("float16", "bfloat16", "ring", 0).refused
