from __future__ import annotations

import pytest

from ladder.errors import DeviceError
from ladder.ttile import isa
from ladder.ttile.instruction import Instruction

PRODUCTS = [
    *(isa.mma(name, tera_ops=1) for name in isa.PTX_TYPE),
    isa.mma("int4", activation="uint4", tera_ops=1),
    *(
        isa.wgmma(name, n, tera_ops=1)
        for name in isa.PTX_TYPE
        if name not in isa.NIBBLES
        for n in (8, 64, 256)
    ),
]


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda i: i.name)
def test_fragments_have_the_shapes_of_their_operands(product: Instruction) -> None:
    """Warps x lanes x registers x elements hold each operand exactly once."""
    for operand in product.operands:
        if operand.fragment is None:
            assert operand.level == "shared"
            continue
        shape = tuple(1 << bits for _, bits in operand.fragment.layout.outs)
        expected = operand.tile.shape
        assert shape in (expected, expected[::-1])
        held = operand.fragment.registers * product.threads * 32
        assert held == operand.tile.elements * operand.tile.bits


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda i: i.name)
def test_one_product_covers_32_bytes_of_k(product: Instruction) -> None:
    assert product.operand("weight").tile.inner_bits == 256
    assert product.operand("activation").tile.inner_bits == 256


@pytest.mark.parametrize(
    "instruction,emits",
    [
        (isa.mma("bfloat16", tera_ops=1), "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        (isa.mma("int8", tera_ops=1), "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"),
        (
            isa.mma("uint8", tera_ops=1, activation="int8"),
            "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32",
        ),
        (isa.mma("int4", tera_ops=1), "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"),
        (
            isa.mma("int4", tera_ops=1, activation="uint4"),
            "mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32",
        ),
        (
            isa.wgmma("float16", 64, tera_ops=1),
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16",
        ),
        (isa.ldmatrix(2), "ldmatrix.sync.aligned.m8n8.x2.shared.b16"),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_ptx_spelling(instruction: Instruction, emits: str) -> None:
    assert instruction.emits == emits


def test_ldmatrix_x4_reads_the_paper_s_16_by_2_granules() -> None:
    assert str(isa.ldmatrix(4).operand("source").tile) == "16B[16, 2]"


@pytest.mark.parametrize(
    "weight,activation",
    [("float16", "int8"), ("int8", "fp8_e4m3fn"), ("nf4", "float16"), ("int4", "int8")],
)
def test_products_that_no_core_has_are_refused(weight: str, activation: str) -> None:
    with pytest.raises(DeviceError, match=r"no product of|no tensor-core operand type"):
        isa.mma(weight, tera_ops=1, activation=activation)


def test_integers_of_4_bits_multiply_with_any_sign_by_a_warp_alone() -> None:
    names = [i.name for i in isa.nibble_mmas(tera_ops=1)]
    assert names == [
        f"mma.m16n8k64.{pair}" for pair in ("int4", "int4.uint4", "uint4.int4", "uint4")
    ]
    with pytest.raises(DeviceError, match="no wgmma of int4"):
        isa.wgmma("int4", 64, tera_ops=1)
