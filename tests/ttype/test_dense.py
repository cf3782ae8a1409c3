"""Dense elements: NumPy's and ml_dtypes' own numbers are the reference, for all 65,536 codes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ladder
from ladder.errors import TypeDeclarationError
from ladder.ttype import DENSE, Float, GroupedType, Quantized, bfloat16, float16, losslessness
from ladder.ttype.encoding import Encoding

DTYPES = {"float16": float16.dtype, "bfloat16": bfloat16.dtype}
CODES = np.arange(1 << 16, dtype=np.uint16)
NAMES = pytest.mark.parametrize("name", DENSE)


@NAMES
def test_the_table_is_the_dtypes(name: str) -> None:
    element = DENSE[name]
    with np.errstate(invalid="ignore"):
        numbers = CODES.view(DTYPES[name]).astype(np.float64)
    assert np.array_equal(element.values, numbers, equal_nan=True)
    assert np.array_equal(np.signbit(element.values), np.signbit(numbers))
    assert element.encoding.table()[:2] == tuple(numbers[:2])
    assert isinstance(element.encoding, Encoding)
    assert element.max == -element.min == float(numbers[np.isfinite(numbers)].max())
    assert (element.pad_code, element.has_zero, element.is_integer) == (0, True, False)
    assert element.nan_codes == tuple(np.flatnonzero(np.isnan(numbers)).tolist())


@NAMES
def test_every_number_encodes_to_its_own_code(name: str) -> None:
    element = DENSE[name]
    kept = CODES[~np.isnan(element.values)]
    encoded = element.encode(element.decode(kept))
    assert encoded.dtype == np.uint16
    assert np.array_equal(encoded, kept)


@given(st.lists(st.floats(allow_nan=False, width=64), min_size=1))
def test_encoding_is_to_nearest_even(numbers: list[float]) -> None:
    given_numbers = np.array(numbers)
    element = DENSE["float16"]
    with np.errstate(over="ignore"):
        nearest = given_numbers.astype(np.float16)  # NumPy rounds once, to even
    beyond = np.isinf(nearest) & np.isfinite(given_numbers)
    saturated = np.where(beyond, np.copysign(element.max, given_numbers), nearest)
    assert np.array_equal(element.encode(numbers), saturated.astype(np.float16).view(np.uint16))
    assert np.array_equal(element.encode(numbers, saturate=False), nearest.view(np.uint16))


def test_bfloat16_is_rounded_once() -> None:
    # half an ulp and a trifle that float32 would drop: through float32 it would be a tie, and go down
    number = 1 + 2.0**-8 + 2.0**-40
    assert DENSE["bfloat16"].decode(DENSE["bfloat16"].encode([number])) == [1 + 2.0**-7]


@NAMES
def test_a_weight_keeps_every_bit(name: str) -> None:
    weights = np.random.default_rng(0).standard_normal((5, 24)).astype(DTYPES[name])
    quantized = ladder.quantize(weights, name)
    assert np.array_equal(quantized.codes, weights.view(np.uint16))
    assert np.array_equal(quantized.dequantize(), weights.astype(np.float64))
    assert quantized == Quantized(name, weights.view(np.uint16))
    assert pickle.loads(pickle.dumps(quantized)) == quantized
    assert quantized.nbytes == weights.nbytes
    assert str(quantized.type) == name
    assert ladder.types[name] != quantized.type.element  # by its name it is a compute type
    assert ladder.quantize(weights, ladder.types[name]) == quantized


@NAMES
def test_what_a_weight_cannot_hold_is_refused(name: str) -> None:
    nan = np.full((2, 2), np.nan).astype(DTYPES[name]).view(np.uint16)
    with pytest.raises(TypeDeclarationError, match=f"NaN codes of {name} in 4 of 4") as caught:
        Quantized(name, nan)
    assert len(caught.value.hint) < 1000
    with pytest.raises(TypeDeclarationError, match=r"lie in 0\.\.65535"):
        Quantized(name, [[65536]])
    with pytest.raises(TypeDeclarationError, match="are integers, found dtype"):
        Quantized(name, np.ones((2, 2), DTYPES[name]))
    with pytest.raises(TypeDeclarationError, match="are not finite"):
        ladder.quantize([[np.inf]], name)


@NAMES
def test_scales_are_refused(name: str) -> None:
    with pytest.raises(TypeDeclarationError, match=f"a weight of {name} has no scales"):
        DENSE[name].grouped(128)
    with pytest.raises(TypeDeclarationError, match="has no scales"):
        GroupedType(DENSE[name], (1, 128), "float16")


def test_types_are_equal_by_name_alone() -> None:
    assert pickle.loads(pickle.dumps(DENSE["float16"])) == DENSE["float16"] != DENSE["bfloat16"]
    assert hash(pickle.loads(pickle.dumps(DENSE["float16"]))) == hash(DENSE["float16"])
    assert repr(DENSE["float16"]) == "TType('float16', bits=16, range=[-65504, 65504])"
    with pytest.raises(TypeDeclarationError, match="an element takes 1 to 8 bits, found 16"):
        Float(exponent=5, mantissa=10, bias=15)


def test_losslessness_is_computed() -> None:
    assert losslessness("float16", "float16").is_exact
    assert losslessness("bfloat16", "bfloat16").is_exact
    assert str(losslessness("bfloat16", "float16")).startswith("may overflow")
    assert str(losslessness("float16", "bfloat16")).startswith("rounds")
