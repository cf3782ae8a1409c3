from __future__ import annotations

import pytest

from ladder.errors import DeviceError
from ladder.ttile import Granule, Instruction, Operand, Tile, isa


def test_a_product_knows_its_shape_and_types() -> None:
    mma = isa.mma("float16", tera_ops=1)
    assert mma.shape == (16, 8, 16)
    assert mma.operations == 2 * 16 * 8 * 16
    assert (mma.type_of("weight"), mma.type_of("accumulator")) == ("float16", "float32")
    assert mma.type_of("source") is None
    assert str(mma).startswith("mma.m16n8k16.float16 (compute): weight float16[16, 16] in register")


def test_questions_without_an_answer_say_so() -> None:
    with pytest.raises(DeviceError, match="no operand weight"):
        isa.CP_ASYNC.operand("weight")


@pytest.mark.parametrize(
    "kind,roles,message",
    [
        ("jump", ("source",), "kind 'jump' is none of load, compute, store"),
        ("load", ("source", "source"), "operands repeat a role"),
        ("compute", ("weight",), "has operands weight, activation and accumulator"),
    ],
)
def test_nonsense_is_refused(kind: str, roles: tuple[str, ...], message: str) -> None:
    operands = tuple(Operand(role, Tile((1,), Granule(4))) for role in roles)  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match=message):
        Instruction("x", kind, operands, "x", "x")  # type: ignore[arg-type]
