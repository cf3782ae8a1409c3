"""The order of output tiles: every tile once, and those that run together share what they read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ladder.graph.matmul import matmul
from ladder.registry import types
from ladder.scheduler import Plan, schedule
from ladder.scheduler.raster import GROUP, group_of, index_of


def a_plan(**decisions) -> Plan:
    op = matmul(4096, 8192, 8192, activation="float16", weight=types["int8"].grouped(128))
    plan = schedule(op, family="specialised", persistent=True, multicast=1)
    assert isinstance(plan, Plan)
    return replace(plan, **decisions)


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 16, 21])
def test_every_tile_has_one_place(rows):
    plan = a_plan()
    row, column = np.meshgrid(np.arange(rows), np.arange(plan.channel_tiles), indexing="ij")
    places = index_of(plan, rows, row, column)
    assert sorted(places.ravel()) == list(range(rows * plan.channel_tiles))


def test_neighbours_share_channels_and_few_token_tiles():
    plan = a_plan()
    row, column = np.meshgrid(np.arange(20), np.arange(plan.channel_tiles), indexing="ij")
    order = np.argsort(index_of(plan, 20, row, column).ravel())
    together = order[: plan.device.sms]  # the first wave
    assert len(set(row.ravel()[together])) == GROUP == 4
    assert len(set(column.ravel()[together])) == -(-plan.device.sms // GROUP)


@pytest.mark.parametrize(
    "name, activation, group",
    [
        ("int4", "float16", 1),
        ("int8", "float16", GROUP),
        ("int4", "int8", GROUP),
        ("int3", "int8", 1),
    ],
)
def test_weights_of_less_than_half_the_bits_go_channel_by_channel(name, activation, group):
    op = matmul(4096, 8192, 8192, activation=activation, weight=types[name].grouped("channel"))
    assert group_of(schedule(op, family="specialised", persistent=True)) == group


def test_ctas_that_load_for_each_other_have_one_token_tile():
    plan = a_plan(multicast=2)
    assert group_of(plan) == 1
    places = index_of(plan, 8, np.array([0, 0, 1]), np.array([0, 1, 0]))
    assert list(places) == [0, 1, plan.channel_tiles]


def test_too_few_token_tiles_for_a_group_go_channel_by_channel():
    assert group_of(a_plan(m_range=(256, 768))) == 1
    assert group_of(a_plan(m_range=(256, 769))) == group_of(a_plan(m_range=(1, None))) == GROUP
