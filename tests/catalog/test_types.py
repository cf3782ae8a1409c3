"""The catalogue: every promised name is there, and each is what its source says."""

from __future__ import annotations

from statistics import NormalDist

import ml_dtypes
import numpy as np
import pytest

from ladder.catalog import types as catalog
from ladder.errors import TypeDeclarationError
from ladder.ttype import ComputeType, GroupedType, TType, types

NAMES = [
    f"{kind}{b}" for kind in ("int", "uint", "offset", "signmag", "bipolar") for b in range(1, 9)
]
NAMES += [
    "ternary",
    "fp4_e2m1",
    "fp6_e2m3",
    "fp6_e3m2",
    "fp8_e4m3fn",
    "fp8_e5m2",
    "e8m0",
    "nf4",
    "nf3",
]
NAMES += ["mxfp8", "mxfp6", "mxfp4", "nvfp4", "float16", "bfloat16", "float32"]


def test_every_promised_name_is_there_once() -> None:
    assert list(types)[: len(NAMES)] == NAMES  # other tests may have registered more
    assert [t.name for t in catalog.TYPES] == NAMES
    assert all(types[name].name == name for name in types)


@pytest.mark.parametrize(
    "name",
    ["int1", "int2", "int4", "uint1", "uint2", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn",
     "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "bfloat16"],
)  # fmt: skip
def test_names_of_ml_dtypes_mean_what_ml_dtypes_means(name) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    found = types[name]
    if isinstance(found, ComputeType):
        assert found.dtype == dtype
        return
    want = np.arange(2**found.bits, dtype=np.uint8).view(dtype).astype(np.float64)
    if name == "int1":
        want = np.array([0.0, -1.0])
    np.testing.assert_array_equal(found.values, want)


def test_aliases_lead_to_types() -> None:
    assert types.aliases == dict(catalog.ALIASES)
    assert types["float4_e2m1fn"] is types["fp4_e2m1"]
    assert not set(types.aliases) & set(types)


def test_int8_is_the_element() -> None:
    assert isinstance(types["int8"], TType)


@pytest.mark.parametrize("name", ["nf4", "nf3"])
def test_normal_floats_are_quantiles_of_the_normal_distribution(name) -> None:
    """QLoRA's construction: half the codes for either sign, one negative given up for an exact zero."""
    t = types[name]
    half = 2 ** (t.bits - 1)
    offset = ((1 - 1 / (2 * (2 * half - 1))) + (1 - 1 / (4 * half))) / 2
    quantile = NormalDist().inv_cdf
    above = [quantile(p) for p in np.linspace(offset, 0.5, half + 1)[:-1]]
    below = [-quantile(p) for p in np.linspace(offset, 0.5, half)[:-1]]
    want = np.sort([*above, 0.0, *below]) / max(above)
    np.testing.assert_allclose(t.values, want, atol=2.5e-7)
    np.testing.assert_array_equal(t.values, t.values.astype(np.float32))
    assert 0 in t.values
    assert (t.min, t.max) == (-1, 1)
    assert np.all(np.diff(t.values) > 0)


@pytest.mark.parametrize(
    "name, text",
    [
        ("mxfp8", "mxfp8 (fp8_e4m3fn g32 scale=e8m0)"),
        ("mxfp6", "mxfp6 (fp6_e3m2 g32 scale=e8m0)"),
        ("mxfp4", "mxfp4 (fp4_e2m1 g32 scale=e8m0)"),
        ("nvfp4", "nvfp4 (fp4_e2m1 g16 scale=fp8_e4m3fn second=float32)"),
    ],
)
def test_block_formats_are_element_block_and_scale(name, text) -> None:
    assert isinstance(types[name], GroupedType)
    assert str(types[name]) == text


def test_formats_that_are_not_offered_say_so() -> None:
    with pytest.raises(TypeDeclarationError) as caught:
        types["float8_e4m3fnuz"]
    assert caught.value.what == "float8_e4m3fnuz is not offered"
    assert caught.value.at == "ladder.types['float8_e4m3fnuz']"
    assert "specials='fnuz'" in caught.value.hint
