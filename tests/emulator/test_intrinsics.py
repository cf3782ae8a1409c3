"""Every entry of the intrinsics table means in the emulator what PTX says, read from the text that the GPU runs."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.codegen import intrinsics as table
from ladder.emulator.intrinsics import meaning
from ladder.emulator.report import Fault

CARRIERS = {"r": "uint32", "h": "uint16", "f": "float32"}

#: by hand: operands -> result. Of two float32 operands the first goes into the high half (PTX ISA, cvt)
EXAMPLES: dict[str, tuple[tuple[float, ...], float]] = {
    "shf_l": ((0x80000001, 36), 0x00000018),
    "prmt": ((0x33221100, 0x77665544, 0x5140), 0x55114400),
    "low_twice": ((0x33221100,), 0x11001100),
    "high_twice": ((0x33221100,), 0x33223322),
    "max_s16x2": ((0x8000FFFF, 0x7FFF0001), 0x7FFF0001),
    "fma_f16x2": ((0x40003E00, 0xC2004000, 0x3C003400), 0xC5004280),  # 2 * -3 + 1, 1.5 * 2 + 0.25
    "fma_bf16x2": ((0x40003FC0, 0xC0404000, 0x3F803E80), 0xC0A04050),
    "cvt_f16x2_e4m3x2": ((0xB838,), 0xBC003C00),
    "cvt_f16x2_e5m2x2": ((0xC03C,), 0xC0003C00),
    "cvt_f32_f16": ((0x3E00,), 1.5),
    "cvt_f16_f32": ((1.5,), 0x3E00),
    "hold_f32": ((1.5,), 1.5),
    "hold_u32": ((0x33221100,), 0x33221100),
    "cvt_f16x2_f32": ((1.5, -2.0), 0x3E00C000),
    "cvt_bf16x2_f32": ((1.5, -2.0), 0x3FC0C000),
    "cvt_s8_f32": ((-300.0,), 0xFFFFFF80),
    "cvt_e4m3x2_f32": ((1.0, -1.0), 0x38B8),
    "cvt_bf16_f32": ((1.5,), 0x3FC0),
    "fma_f32": ((3.0, 1 / 3, -1.0), 2.0**-25),  # what the product of a rounded third was rounded by
    "abs_f16x2": ((0xBC004000,), 0x3C004000),
    "abs_bf16x2": ((0xBF804000,), 0x3F804000),
    "max_nan_f16x2": ((0x3C004000, 0x40003C00), 0x40004000),
    "max_nan_bf16x2": ((0x3F804000, 0x40003F80), 0x40004000),
    "ex2_f32": ((-3.0,), 0.125),
    "rcp_f32": ((-4.0,), -0.25),
    "lop3_96": ((0b1100, 0b1010, 0b1001), 0b1111),  # xor of three
    "lop3_e4": ((0xF0F0, 0xCCCC, 0xAAAA), 0xE4E4),
}


def test_every_entry_has_an_example() -> None:
    assert set(table.INTRINSICS) == {name for name in EXAMPLES if not name.startswith("lop3_")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_entry_means_what_its_instruction_means(name: str) -> None:
    entry = table.find(name)
    found = meaning(entry.symbol, entry.source)
    operands, result = EXAMPLES[name]
    carriers = [CARRIERS[kind] for kind in entry.operands]
    assert not found.carriers or list(found.carriers) == carriers
    lanes = [np.full(32, v, dtype) for v, dtype in zip(operands, carriers, strict=True)]
    with np.errstate(all="ignore"):  # as the emulator runs a kernel
        got = found.function(*lanes)
    assert got.dtype == entry.returns
    assert np.array_equal(got, np.full(32, result, entry.returns))


def test_a_text_without_a_meaning_is_refused_with_the_place_for_one() -> None:
    text = 'unsigned ladder_two(unsigned a) { asm("" : "+r"(a)); asm("" : "+r"(a)); return a; }'
    with pytest.raises(Fault, match="not one PTX instruction") as caught:
        meaning("ladder_two", text)
    assert "ladder/codegen/semantics.py" in str(caught.value)
