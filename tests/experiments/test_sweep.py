"""Sweeps: what they take, and the points that they stand for."""

from __future__ import annotations

import pytest

import ladder
from ladder.errors import DeviceError, ExperimentError, TypeDeclarationError
from ladder.experiments import PLACEMENTS, Sweep

INT4 = ladder.types["int4"]


def sweep(**other) -> Sweep:
    return Sweep(**{"shapes": [(64, 128)], "weights": ["int4"], "ms": [1], **other})


def test_every_combination_is_a_point_the_last_axis_fastest() -> None:
    found = list(
        sweep(
            weights=["int4", "nf4"], groups=[32, 64], ms=[1, 8], devices=["h200", "a100"]
        ).points()
    )
    assert len(found) == 2 * 2 * 2 * 2 * len(PLACEMENTS)
    assert len(set(found)) == len(found)
    assert tuple(point.placement for point in found[:4]) == PLACEMENTS
    assert [point.m for point in found[:8]] == [1] * 4 + [8] * 4
    assert {point.device.name for point in found[: len(found) // 2]} == {"h200"}


def test_types_that_have_groups_keep_them_and_stand_once() -> None:
    found = list(sweep(weights=["mxfp4", INT4], groups=[32, 64], placements=["register"]).points())
    types = [point.type_of("float16", None) for point in found]
    assert types == [ladder.types["mxfp4"], INT4.grouped(32), INT4.grouped(64)]
    assert next(iter(sweep().points())).type_of("float16", None).scale is None


def test_sources_belong_to_activations_that_are_quantised() -> None:
    found = sweep(
        activations=["float16", "int8"], sources=["global", "source"], placements=["register"]
    )
    pairs = [(point.activation, point.source) for point in found.points()]
    assert pairs == [("float16", "global"), ("int8", "global"), ("int8", "source")]


def test_a_sweep_is_a_value() -> None:
    one, other = (sweep(fixed=[{"family": "ring"}, {}], devices=["h200"]) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one.fixed == ((("family", "ring"),), ())
    assert one.devices == (ladder.devices["h200"],)


@pytest.mark.parametrize(
    "change, error, what",
    [
        ({"shapes": []}, ExperimentError, "shapes is"),
        ({"shapes": [(64,)]}, ExperimentError, "shapes is"),
        ({"shapes": 64}, ExperimentError, "shapes is 64"),
        ({"ms": [0]}, ExperimentError, "ms is"),
        ({"weights": [3]}, ExperimentError, "weights is"),
        ({"weights": ["no_such"]}, TypeDeclarationError, "no_such"),
        ({"groups": [0]}, ExperimentError, "groups is"),
        ({"groups": ["row"]}, ExperimentError, "groups is"),
        ({"placements": ["local"]}, ExperimentError, "placements is"),
        ({"sources": ["shared"]}, ExperimentError, "sources is"),
        ({"activations": ["float32"]}, ExperimentError, "activations is"),
        ({"devices": ["no_such"]}, DeviceError, "no_such"),
        ({"fixed": [{"colour": 1}]}, ExperimentError, "a plan has no decision colour"),
        ({"fixed": [{"convert": "shared"}]}, ExperimentError, "convert is fixed beside placements"),
        ({"fixed": [3]}, ExperimentError, "fixed is"),
        ({"zero": "two"}, ExperimentError, "zero is 'two'"),
        ({"seed": -1}, ExperimentError, "seed is -1"),
        ({"name": 3}, ExperimentError, "name is 3"),
    ],
)
def test_axes_that_make_no_sense_are_refused(change, error, what) -> None:
    with pytest.raises(error, match=what) as caught:
        sweep(**change)
    assert caught.value.hint
