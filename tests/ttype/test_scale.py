"""Scale types round to nearest, but for e8m0, which rounds up."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladder.errors import TypeDeclarationError
from ladder.ttype import SCALE_TYPES, scale_type

E8M0, E4M3 = scale_type("e8m0"), scale_type("fp8_e4m3fn")


def test_limits_are_those_of_the_formats() -> None:
    limits = {s.name: (s.bits, s.smallest, s.max, s.powers_only) for s in SCALE_TYPES.values()}
    assert limits["float16"] == (16, 2.0**-24, 65504.0, False)
    assert limits["bfloat16"] == (16, 2.0**-133, float(ml_dtypes.finfo("bfloat16").max), False)
    assert limits["float32"] == (32, 2.0**-149, float(np.finfo(np.float32).max), False)
    assert limits["fp8_e4m3fn"] == (8, 2.0**-9, 448.0, False)
    assert limits["e8m0"] == (8, 2.0**-127, 2.0**127, True)


@given(st.floats(2.0**-126, 2.0**126))
def test_e8m0_takes_the_least_power_that_is_not_smaller(x) -> None:
    power = float(E8M0.round(np.array([x]))[0])
    assert math.frexp(power)[0] == 0.5
    assert power / 2 < x <= power


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "fp8_e4m3fn"])
def test_floats_round_to_nearest_as_their_dtype_does(name) -> None:
    scale = scale_type(name)
    x = np.exp(np.random.default_rng(0).uniform(-8, 6, 5000)).astype(np.float32)
    want = x.astype(scale.dtype).astype(np.float64)
    np.testing.assert_array_equal(scale.round(x.astype(np.float64)), want)


@pytest.mark.parametrize("scale", SCALE_TYPES.values(), ids=str)
def test_after_steps_to_the_neighbour(scale) -> None:
    x = scale.round(np.array([scale.smallest, 0.75, 1.0, 100.0]))
    following = scale.after(x)
    assert np.all(following > x)
    np.testing.assert_array_equal(scale.round(following), following)
    if not scale.powers_only:  # nothing lies between: the middle rounds to one of the two
        middle = scale.round((x + following) / 2)
        assert np.all((middle == x) | (middle == following))


def test_unknown_scale_types_are_refused() -> None:
    with pytest.raises(TypeDeclarationError, match="unknown scale type 'float8'") as caught:
        scale_type("float8")
    assert "e8m0" in caught.value.hint
