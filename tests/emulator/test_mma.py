"""Fragment maps and products, against the compiler's layouts, against CuTe's strides, and against brute force."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from ladder.emulator import Fault
from ladder.emulator.mma import ELEMENTS, Shape, a_matrices, accumulators, b_matrices, mma
from ladder.emulator.report import Site
from ladder.ttile import fragments

SITE = Site(0, "mma")


class AnyWarp:
    """A warp whose lanes are all there."""

    index = 0

    def meet(self, mask, what):
        assert mask is None


def colexicographic(shape, strides, coordinate):
    """A flat CuTe layout mode at a coordinate."""
    offset = 0
    for extent, stride in zip(shape, strides, strict=True):
        offset += coordinate % extent * stride
        coordinate //= extent
    return offset


def cute(lane_shape, lane_strides, value_shape, value_strides):
    return lambda lane, value: (
        colexicographic(lane_shape, lane_strides, lane)
        + colexicographic(value_shape, value_strides, value)
    )


#: CuTe's traits of SM80_16x8x16_F32F16F16F32_TN, SM80_16x8x32_S32S8S8S32_TN and SM80_16x8x64_S32S4S4S32_TN: (lane, value) -> m + 16*k, n + 8*k, m + 16*n
CUTE = {
    "a16": cute((4, 8), (32, 1), (2, 2, 2), (16, 8, 128)),
    "b16": cute((4, 8), (16, 1), (2, 2), (8, 64)),
    "c": cute((4, 8), (32, 1), (2, 2), (16, 8)),
    "a8": cute((4, 8), (64, 1), (4, 2, 2), (16, 8, 256)),
    "b8": cute((4, 8), (32, 1), (4, 2), (8, 128)),
    "a4": cute((4, 8), (128, 1), (8, 2, 2), (16, 8, 512)),
    "b4": cute((4, 8), (64, 1), (8, 2), (8, 256)),
}


def pack(matrix, place, per_word, dtype):
    """Registers of a fragment: values of column-major ``matrix`` at ``place(lane, value)``."""
    flat = matrix.T.reshape(-1)
    count = matrix.size // 32
    values = np.array([[flat[place(lane, v)] for v in range(count)] for lane in range(32)])
    words = np.ascontiguousarray(values.astype(dtype)).view(np.uint32)
    return [np.ascontiguousarray(words[:, i]) for i in range(count // per_word)]


TYPES = {
    "f16": ("16", 2, np.float16),
    "bf16": ("16", 2, ml_dtypes.bfloat16),
    "s8": ("8", 4, np.int8),
    "u8": ("8", 4, np.uint8),
    "e4m3": ("8", 4, ml_dtypes.float8_e4m3fn),
    "e5m2": ("8", 4, ml_dtypes.float8_e5m2),
}


def pack_nibbles(matrix, place):
    """Registers of a fragment of 4-bit integers, put together bit by bit in Python's integers."""
    flat = matrix.T.reshape(-1)
    count = matrix.size // 32
    return [
        np.array(
            [
                sum((int(flat[place(lane, 8 * r + i)]) & 15) << 4 * i for i in range(8))
                for lane in range(32)
            ],
            np.uint32,
        )
        for r in range(count // 8)
    ]


@pytest.mark.parametrize("right", ["s4", "u4"])
@pytest.mark.parametrize("left", ["s4", "u4"])
def test_products_of_4_bits_match_cute_maps(left, right):
    """Sixteen times sixteen columns: every pair of codes meets in one product."""
    low = {"s4": -8, "u4": 0}
    a = low[left] + (np.arange(16)[:, None] + np.arange(64) // 16) % 16
    b = low[right] + (np.arange(8)[:, None] + np.arange(64)) % 16
    pairs = {(x, y) for i in range(16) for j in range(8) for x, y in zip(a[i], b[j], strict=True)}
    assert len(pairs) == 256
    c = np.random.default_rng(7).integers(-(2**20), 2**20, (16, 8))
    shape = Shape.parse(f"mma.sync.aligned.m16n8k64.row.col.s32.{left}.{right}.s32", SITE)
    assert (shape.a_registers, shape.b_registers) == (4, 2)
    operands = [
        *pack_nibbles(a, CUTE["a4"]),
        *pack_nibbles(b, CUTE["b4"]),
        *[x.view(np.int32) for x in pack(c, CUTE["c"], 1, np.int32)],
    ]
    d = mma(AnyWarp(), None, SITE, shape, [operands])
    expected = (a @ b.T + c).T.reshape(-1)
    for value, lane in itertools.product(range(4), range(32)):
        assert d[value][lane] == expected[CUTE["c"](lane, value)]


@pytest.mark.parametrize("element", TYPES)
def test_products_match_cute_maps(element):
    bits, per_word, dtype = TYPES[element]
    k = 16 if bits == "16" else 32
    rng = np.random.default_rng(3)
    low = 0 if element == "u8" else -7
    a, b = rng.integers(low, 8, (16, k)), rng.integers(low, 8, (8, k))
    c = rng.integers(-100, 100, (16, 8))
    kind = "s32" if element in ("s8", "u8") else "f32"
    shape = Shape.parse(
        f"mma.sync.aligned.m16n8k{k}.row.col.{kind}.{element}.{element}.{kind}", SITE
    )
    number = np.int32 if kind == "s32" else np.float32
    operands = [
        *pack(a, CUTE[f"a{bits}"], per_word, dtype),
        *pack(b, CUTE[f"b{bits}"], per_word, dtype),
        *[x.view(number) for x in pack(c, CUTE["c"], 1, number)],
    ]
    d = mma(AnyWarp(), None, SITE, shape, [operands, operands])
    expected = (a @ b.T + c).T.reshape(-1)
    for value, lane in itertools.product(range(4), range(32)):
        assert d[value][lane] == expected[CUTE["c"](lane, value)]
        assert d[4 + value][lane] == d[value][lane]


def test_the_compilers_layout_of_4_bits_says_the_same():
    rng = np.random.default_rng(4)
    ma, mb = rng.integers(-8, 8, (16, 64)), rng.integers(-8, 8, (64, 8))
    for matrix, layout, names, registers in (
        (ma, fragments.MMA_M16N8K64_A.layout, ("row", "k"), 4),
        (mb, fragments.MMA_M16N8K64_B.layout, ("k", "column"), 2),
    ):
        words = np.zeros((registers, 32), np.int64)
        for r, lane, i in itertools.product(range(registers), range(32), range(8)):
            place = layout.apply(register=r, lane=lane, nibble=i)
            words[r, lane] |= (int(matrix[tuple(place[n] for n in names)]) & 15) << 4 * i
        read, natural = (a_matrices, ma) if matrix is ma else (b_matrices, mb.T)
        found = read(ELEMENTS["s4"], [list(words.astype(np.uint32))])[0]
        assert (found == natural).all()


def _layout_values(layout, registers, inner, matrix, names):
    """Words of a fragment by the compiler's layout."""
    out = np.zeros((registers, 32, inner), matrix.dtype)
    for r, lane, h in itertools.product(range(registers), range(32), range(inner)):
        inputs = {"register": r, "lane": lane, "half": h, "byte": h}
        place = layout.apply(**{n: inputs[n] for n, _ in layout.ins})
        out[r, lane, h] = matrix[tuple(place[n] for n in names)]
    return list(np.ascontiguousarray(out).view(np.uint32)[..., 0])


@pytest.mark.parametrize(
    "a, b, element, dtype",
    [
        (fragments.MMA_M16N8K16_A, fragments.MMA_M16N8K16_B, "f16", np.float16),
        (fragments.MMA_M16N8K32_A, fragments.MMA_M16N8K32_B, "s8", np.int8),
    ],
    ids=["k16", "k32"],
)
def test_the_compilers_layouts_say_the_same(a, b, element, dtype):
    k = 16 if element == "f16" else 32
    per_word = ELEMENTS[element].per_word
    rng = np.random.default_rng(4)
    ma, mb = rng.integers(-9, 9, (16, k)).astype(dtype), rng.integers(-9, 9, (k, 8)).astype(dtype)
    wa = _layout_values(a.layout, 4, per_word, ma, ("row", "k"))
    wb = _layout_values(b.layout, 2, per_word, mb, ("k", "column"))
    assert (a_matrices(ELEMENTS[element], [wa])[0] == ma).all()
    assert (b_matrices(ELEMENTS[element], [wb])[0] == mb.T).all()


def test_accumulators_follow_the_compilers_layout():
    matrix = np.arange(128, dtype=np.float32).reshape(1, 16, 8)
    registers = accumulators(matrix)[0]
    layout = fragments.MMA_M16N8_C.layout
    for r, lane in itertools.product(range(4), range(32)):
        place = layout.apply(register=r, lane=lane)
        assert registers[r][lane] == matrix[0, place["row"], place["column"]]


@pytest.mark.parametrize("operation", ["and.popc", "xor.popc"])
def test_binary_products_count_bits(operation):
    """PTX ISA, mma.m16n8k256.b1: register i of A holds bits 32*t.. of row g + 8*(i&1), half i>>1."""
    rng = np.random.default_rng(5)
    words = rng.integers(0, 1 << 32, (6, 32), dtype=np.uint64).astype(np.uint32)
    text = f"mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.{operation}"
    zero = [np.zeros(32, np.int32)] * 4
    d = mma(AnyWarp(), None, SITE, Shape.parse(text, SITE), [[*words, *zero]])
    for value, lane in itertools.product(range(4), range(32)):
        g, t = lane // 4, lane % 4
        row, column = g + 8 * (value >> 1), 2 * t + (value & 1)
        count = 0
        for half, part in itertools.product(range(2), range(4)):
            x = int(words[2 * half + row // 8][row % 8 * 4 + part])
            y = int(words[4 + half][column * 4 + part])
            count += (x & y if operation == "and.popc" else x ^ y).bit_count()
        assert d[value][lane] == count


def test_half_accumulators_round_to_pairs():
    rng = np.random.default_rng(6)
    a, b, c = (rng.standard_normal(s).astype(np.float16) for s in ((16, 16), (8, 16), (16, 8)))
    text = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
    pairs = np.zeros((2, 32, 2), np.float16)
    for i, lane, h in itertools.product(range(2), range(32), range(2)):
        pairs[i, lane, h] = c[lane // 4 + 8 * i, lane % 4 * 2 + h]
    operands = [
        *pack(a, CUTE["a16"], 2, np.float16),
        *pack(b, CUTE["b16"], 2, np.float16),
        *pairs.view(np.uint32)[..., 0],
    ]
    d = np.stack(mma(AnyWarp(), None, SITE, Shape.parse(text, SITE), [operands]))
    got = d[..., None].view(np.float16)
    want = (a.astype(np.float32) @ b.astype(np.float32).T + c).astype(np.float16)
    for i, lane, h in itertools.product(range(2), range(32), range(2)):
        assert got[i, lane, h] == pytest.approx(want[lane // 4 + 8 * i, lane % 4 * 2 + h], rel=2e-3)


@pytest.mark.parametrize(
    "text",
    [
        "mma.sync.aligned.m16n8k64.row.col.s32.s4.s8.s32",
        "mma.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16",
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32",
    ],
)
def test_unknown_variants_are_refused(text):
    with pytest.raises(Fault) as caught:
        Shape.parse(text, SITE)
    assert caught.value.kind == "unsupported"
