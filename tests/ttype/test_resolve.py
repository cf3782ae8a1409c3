"""Names become the kind of type that a place asks for."""

from __future__ import annotations

import pytest

from ladder.errors import TypeDeclarationError
from ladder.ttype import DENSE, GroupedType, element_type, float16, float32, types, weight_type

INT4 = types["int4"]


def test_names_and_elements_resolve_to_what_a_place_asks_for() -> None:
    assert element_type("float4_e2m1fn") is types["fp4_e2m1"] is element_type(types["fp4_e2m1"])
    assert weight_type(INT4) == weight_type("int4") == GroupedType(INT4, scale=None)
    assert weight_type("mxfp4") is types["mxfp4"] is weight_type(types["mxfp4"])
    with pytest.raises(TypeDeclarationError, match="expected an element type, found mxfp4"):
        element_type("mxfp4")
    assert element_type("fp16") is element_type(float16) is DENSE["float16"]
    assert weight_type("bfloat16") == GroupedType(DENSE["bfloat16"], scale=None)
    for given in ("float32", float32, 4):
        with pytest.raises(TypeDeclarationError, match="for a weight, found"):
            weight_type(given)
