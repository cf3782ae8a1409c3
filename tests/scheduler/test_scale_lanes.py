"""Which numbers scale weights in registers, where they lie, and which are products of others."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import ladder
from ladder.decode.program import Affine
from ladder.scheduler import Plan, Tiling, choose_packing
from ladder.scheduler.scale_lanes import (
    ZeroLanes,
    affine_of,
    is_exponent,
    lanes_of,
    own_numbers,
    scale_lanes,
    takes_zeros,
    zero_lanes,
)
from ladder.scheduler.scale_numbers import ScaleNumbers
from ladder.ttype import TType

H200 = ladder.devices["h200"]
TOP, LOW = Fraction(1 << 24), Fraction(1 << 20)


def plan_of(name: str, activation: str = "float16", **grouped: Any) -> Plan:
    weight: Any = ladder.types[name]
    if isinstance(weight, TType):
        weight = weight.grouped(**{"group": 128, "scale": "float16", **grouped})
    op = ladder.matmul(None, 64, 512, activation=activation, weight=weight)
    packing = choose_packing(op, H200.features)
    tiling = Tiling(1, 4, 1, 1, 2)
    decisions: Any = {"scale": "register", "access": "tensor", "compute": "wgmma"}
    return Plan(op, H200, packing, "specialised", tiling, 3, **decisions)


def test_rows_g_and_g_plus_8_share_registers():
    lanes = scale_lanes(((Affine(LOW, Fraction(-8)), Affine(TOP, Fraction(-8))),), has_zeros=False)
    assert lanes.factors == ((LOW, TOP),)
    assert lanes.offsets == ((Fraction(-8), Fraction(-8)),)
    assert lanes.registers == 2


def test_more_numbers_of_one_row_than_of_the_other():
    maps = (Affine(LOW), Affine(TOP), Affine(TOP), Affine(TOP))
    lanes = scale_lanes((maps,), has_zeros=False)
    assert lanes.factors == ((TOP, TOP), (LOW, TOP))
    assert lanes.offsets == ()
    assert [lanes.factor_of(maps[i], i & 1) for i in range(4)] == [1, 0, 0, 0]
    assert lanes.offset_of(maps[0], 0) is None
    assert scale_lanes((maps,), has_zeros=True).offsets == ((0, 0),)


def test_what_one_product_gives_is_made_of_an_s_before_it():
    row = (Affine(TOP, Fraction(-4)), Affine(TOP, Fraction(-4)))
    far = (Affine(Fraction(1 << 15), Fraction(-1, 2)),) * 2
    lanes = scale_lanes((row, far), has_zeros=False)
    assert lanes.source(0, "float16") is None
    assert lanes.source(1, "float16") == (0, (Fraction(1, 512),) * 2)
    assert lanes.source(2, "float16") == (0, (Fraction(-1, 1 << 22),) * 2)
    # 2^-25 is no float16, 2^-16 is
    assert lanes.source(3, "float16") == (1, (Fraction(-1, 1 << 16),) * 2)
    odd = scale_lanes(((Affine(TOP, Fraction(-7)),) * 2,), has_zeros=False)
    assert odd.source(1, "float16") is None


@pytest.mark.parametrize("name", ["int3", "int5", "bipolar3", "int4", "uint3", "int2"])
@pytest.mark.parametrize("zero", [None, "integer", "rescaled"])
def test_every_register_finds_what_its_lanes_defer(name, zero):
    plan = plan_of(name, zero=zero)
    lanes = lanes_of(plan)
    assert takes_zeros(plan) == (zero is not None)
    assert own_numbers(plan) <= lanes.registers
    for step in range(plan.program.steps):
        for register in range(4):
            affine, half = affine_of(plan, step, register), register & 1
            assert lanes.factors[lanes.factor_of(affine, half)][half] == affine.alpha
            place = lanes.offset_of(affine, half)
            assert (0 if place is None else lanes.offsets[place][half]) == affine.beta


@pytest.mark.parametrize("name", ["int3", "int5", "bipolar3", "int4", "uint3", "nf4", "mxfp4"])
def test_numbers_are_those_of_the_formula_but_for_their_rounding(name):
    plan = plan_of(name)
    scales = np.random.default_rng(0).uniform(0.5, 2, (2, 2, 8)).astype(np.float32)
    if plan.packing.scale_dtype.name == "float8_e8m0fnu":
        scales = np.exp2(np.rint(np.log2(scales))).astype(np.float32)
    unit = np.float32(2.0**13 / float(max(map(max, lanes_of(plan).factors))))
    numbers = ScaleNumbers(plan, unit, scales, None)
    for step in range(plan.program.steps):
        for register in range(4):
            affine, own = affine_of(plan, step, register), scales[:, register & 1] * float(unit)
            factor, offset = numbers.of(step, register)
            np.testing.assert_allclose(factor, own * float(affine.alpha), rtol=2.0**-11)
            wanted = own * float(affine.beta)
            np.testing.assert_allclose(offset, wanted, rtol=2.0**-11, atol=2.0**-25)


@pytest.mark.parametrize("zero", ["integer", "float", "rescaled"])
def test_zero_points_are_in_the_offsets(zero):
    plan = plan_of("int3", zero=zero)
    rng = np.random.default_rng(1)
    scales = rng.uniform(1, 2, (1, 2, 8)).astype(np.float16).astype(np.float32)
    zeros = rng.integers(-4, 4, (1, 2, 8)).astype(np.float32)
    unit = np.float32(2.0**-16)
    numbers = ScaleNumbers(plan, unit, scales, zeros)
    for register in range(4):
        affine, half = affine_of(plan, 0, register), register & 1
        s, z = scales[:, half], zeros[:, half]
        beta = float(affine.beta)
        wanted = s * beta - z if zero == "rescaled" else s * (beta - z)
        _, offset = numbers.of(0, register)
        np.testing.assert_allclose(offset, wanted * float(unit), rtol=2.0**-11, atol=2.0**-25)


def test_zero_points_that_are_codes_stay_in_the_lanes_where_that_is_exact():
    made = zero_lanes(plan_of("int4", zero="integer"))
    assert made == (ZeroLanes(0, (-1 / LOW, -1 / TOP), (Fraction(-8) / LOW, Fraction(-8) / TOP)),)
    # of int3 a half over 2^24 is no float16: the other S of such lanes has a smaller alpha
    assert [way.register for way in zero_lanes(plan_of("int3", zero="integer"))] == [0, 1]
    for plan in (
        plan_of("int4"),
        plan_of("int4", zero="float"),
        plan_of("int4", zero="integer", scale="bfloat16"),
        plan_of("int4", zero="integer", group="channel"),
        plan_of("int4", "bfloat16", zero="integer"),
        plan_of("bipolar4", zero="integer"),  # 2^-25 is no float16
    ):
        assert zero_lanes(plan) is None


def test_bits_of_exponents_where_a_lost_s_would_scale_nothing():
    assert is_exponent(plan_of("mxfp4"))
    for name in ("mxfp8", "nvfp4", "int4"):  # large lanes, scales of another type
        assert not is_exponent(plan_of(name))
    assert not is_exponent(plan_of("mxfp4", "bfloat16"))
    zeros = plan_of("fp4_e2m1", group=32, scale="e8m0", zero="integer")
    assert not is_exponent(zeros)  # Z takes zero points off


def test_groups_decide_which_program_takes_fewer_instructions():
    """One group of 128 saves 32 fmas and costs 7 products, with zero points 5 and two offsets; one of 16 saves 4."""
    for group, zero, scaled in (
        *((128, None, True), (32, None, True), (16, None, False)),
        *((128, "integer", True), (64, "float", True), (32, "rescaled", False)),
    ):
        plan = plan_of("int3", group=group, zero=zero)
        assert plan.program.is_scaled == scaled
        assert (plan.packing.readings.scaled is not plan.packing) == scaled
        # the bytes are those of the packing's own program
        assert replace(plan.packing.readings.scaled, program=plan.packing.program) == plan.packing
        assert not replace(plan, scale="accumulator", compute="mma").program.is_scaled
    assert not plan_of("int3", "bfloat16").program.is_scaled
    assert plan_of("int4").packing.readings.scaled == plan_of("int4").packing
