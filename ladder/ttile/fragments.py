"""Instruction fragments as layouts: which element of a matrix lies in which register of which lane.

Inputs are ``register`` (32-bit registers of a lane, in operand order), ``lane`` and the element's place inside the
register: ``half`` for 16-bit, ``byte`` for 8-bit, ``nibble`` for 4-bit elements; accumulators are one f32 or s32 per register. A
warpgroup instruction has ``warp`` as outermost input. Outputs are ``row`` (m), ``column`` (n), ``k``.

    >>> print(MMA_M16N8K16_A.layout)
    (register:4, lane:32, half:2) -> (row:16, k:16)
      row = lane.2 lane.3 lane.4 register.0
      k = half.0 lane.0 lane.1 register.1
"""

from __future__ import annotations

from dataclasses import dataclass

from ladder.errors import LayoutError
from ladder.ttile.layout import Coordinates, Layout


@dataclass(frozen=True, slots=True)
class Fragment:
    """One operand of one instruction.

    Attributes:
        name: instruction and operand, for example ``mma.m16n8k16.a``.
        layout: hardware coordinates to matrix coordinates, a bijection.
        source: section of the PTX ISA that defines it.
    """

    name: str
    layout: Layout
    source: str

    @property
    def registers(self) -> int:
        """32-bit registers per lane."""
        return 1 << dict(self.layout.ins)["register"]

    def __str__(self) -> str:
        return f"{self.name}: {self.layout}"


_LANE = ("lane", 5)
_HALF = ("half", 1)
_BYTE = ("byte", 2)
_NIBBLE = ("nibble", 3)


def _registers(bits: int, *inner: tuple[str, int]) -> Coordinates:
    return (("register", bits), _LANE, *inner)


MMA_M16N8K16_A = Fragment(
    "mma.m16n8k16.a",
    Layout.from_bits(
        _registers(2, _HALF),
        (("row", 4), ("k", 4)),
        {"row": "lane.2 lane.3 lane.4 register.0", "k": "half.0 lane.0 lane.1 register.1"},
    ),
    "PTX ISA, Matrix Fragments for mma.m16n8k16 with floating point type",
)

MMA_M16N8K16_B = Fragment(
    "mma.m16n8k16.b",
    Layout.from_bits(
        _registers(1, _HALF),
        (("k", 4), ("column", 3)),
        {"k": "half.0 lane.0 lane.1 register.0", "column": "lane.2 lane.3 lane.4"},
    ),
    "PTX ISA, Matrix Fragments for mma.m16n8k16 with floating point type",
)

MMA_M16N8_C = Fragment(
    "mma.m16n8.c",
    Layout.from_bits(
        _registers(2),
        (("row", 4), ("column", 3)),
        {"row": "lane.2 lane.3 lane.4 register.1", "column": "register.0 lane.0 lane.1"},
    ),
    "PTX ISA, Matrix Fragments for mma.m16n8k16 with floating point type (the same for k32 and k64)",
)

MMA_M16N8K32_A = Fragment(
    "mma.m16n8k32.a",
    Layout.from_bits(
        _registers(2, _BYTE),
        (("row", 4), ("k", 5)),
        {"row": "lane.2 lane.3 lane.4 register.0", "k": "byte.0 byte.1 lane.0 lane.1 register.1"},
    ),
    "PTX ISA, Matrix Fragments for mma.m16n8k32",
)

MMA_M16N8K32_B = Fragment(
    "mma.m16n8k32.b",
    Layout.from_bits(
        _registers(1, _BYTE),
        (("k", 5), ("column", 3)),
        {"k": "byte.0 byte.1 lane.0 lane.1 register.0", "column": "lane.2 lane.3 lane.4"},
    ),
    "PTX ISA, Matrix Fragments for mma.m16n8k32",
)


MMA_M16N8K64_A = Fragment(
    "mma.m16n8k64.a",
    Layout.from_bits(
        _registers(2, _NIBBLE),
        (("row", 4), ("k", 6)),
        {
            "row": "lane.2 lane.3 lane.4 register.0",
            "k": "nibble.0 nibble.1 nibble.2 lane.0 lane.1 register.1",
        },
    ),
    "PTX ISA, Matrix Fragments for mma.m16n8k64",
)

MMA_M16N8K64_B = Fragment(
    "mma.m16n8k64.b",
    Layout.from_bits(
        _registers(1, _NIBBLE),
        (("k", 6), ("column", 3)),
        {
            "k": "nibble.0 nibble.1 nibble.2 lane.0 lane.1 register.0",
            "column": "lane.2 lane.3 lane.4",
        },
    ),
    "PTX ISA, Matrix Fragments for mma.m16n8k64",
)


def ldmatrix(count: int, *, trans: bool = False) -> Fragment:
    """What ``ldmatrix.m8n8.x{count}.b16`` leaves in the registers.

    Output ``matrix`` is the number of the 8x8 matrix of 16-bit elements, ``row`` the line whose address
    a lane gave (:func:`ldmatrix_address`), ``column`` the element in that line.

    Raises:
        LayoutError: count is not 1, 2 or 4.
    """
    bits = _count_bits(count)
    matrix = " ".join(f"register.{i}" for i in range(bits))
    outer, inner = "lane.2 lane.3 lane.4", "half.0 lane.0 lane.1"
    row, column = (inner, outer) if trans else (outer, inner)
    return Fragment(
        f"ldmatrix.x{count}{'.trans' if trans else ''}",
        Layout.from_bits(
            _registers(bits, _HALF),
            (("matrix", bits), ("row", 3), ("column", 3)),
            {"matrix": matrix, "row": row, "column": column},
        ),
        "PTX ISA, Warp-level matrix load instruction: ldmatrix",
    )


def ldmatrix_address(count: int) -> Layout:
    """Which line (``matrix``, ``row``) the address of each lane names; lanes above ``8*count`` are not read."""
    bits = _count_bits(count)
    return Layout.identity((("matrix", bits), ("row", 3))).as_(ins=(("lane", 3 + bits),))


def _count_bits(count: int) -> int:
    if count not in (1, 2, 4):
        raise LayoutError(f"ldmatrix loads 1, 2 or 4 matrices, not {count}", at=f"x{count}")
    return count.bit_length() - 1


def _warpgroup(warp: Fragment, name: str, source: str) -> Fragment:
    """Four warps, one under the other: warp w holds rows 16*w .. 16*w+15."""
    four = Layout.from_bits((("warp", 2),), (("row", 2),), {"row": "warp.0 warp.1"})
    return Fragment(name, four * warp.layout, source)


WGMMA_M64K16_A = _warpgroup(
    MMA_M16N8K16_A,
    "wgmma.m64k16.a",
    "PTX ISA, Register Fragments for wgmma.mma_async.m64nNk16, Matrix A",
)

WGMMA_M64K32_A = _warpgroup(
    MMA_M16N8K32_A,
    "wgmma.m64k32.a",
    "PTX ISA, Register Fragments for wgmma.mma_async.m64nNk32, Matrix A",
)


def wgmma_accumulator(n: int) -> Fragment:
    """Accumulators of ``wgmma.m64n{n}k16`` and ``k32``: n/2 registers per lane.

    Raises:
        LayoutError: n is not one of 8, 16, 32, 64, 128, 256. (Other multiples of 8 are legal for the
            instruction, but not a power of two; they are n/8 blocks of n = 8, four registers each.)
    """
    if n not in (8, 16, 32, 64, 128, 256):
        raise LayoutError(
            f"n = {n} is no power of two from 8 to 256",
            at=f"wgmma.m64n{n}.c",
            hint="use n/8 copies of wgmma_accumulator(8), four registers each",
        )
    blocks = n.bit_length() - 4
    column = " ".join(f"register.{i}" for i in range(blocks))
    outer = Layout.from_bits((("register", blocks),), (("column", blocks),), {"column": column})
    one = _warpgroup(MMA_M16N8_C, "", "")
    names = [name for name, _ in one.layout.ins]
    layout = (outer * one.layout).reorder(ins=names, outs=("row", "column"))
    return Fragment(
        f"wgmma.m64n{n}.c",
        layout,
        "PTX ISA, Register Fragments for wgmma.mma_async.m64nNk16, Matrix D",
    )


#: fragments that do not depend on a parameter
FRAGMENTS = (
    MMA_M16N8K16_A,
    MMA_M16N8K16_B,
    MMA_M16N8_C,
    MMA_M16N8K32_A,
    MMA_M16N8K32_B,
    MMA_M16N8K64_A,
    MMA_M16N8K64_B,
    WGMMA_M64K16_A,
    WGMMA_M64K32_A,
)
