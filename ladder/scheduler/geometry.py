"""How the K axis of a weight is cut: groups are padded so that each starts on a step of the product instruction.

``K`` elements in groups of ``g`` become ``groups`` spans of ``padded_group`` elements, and those together are rounded up
to whole *blocks* of ``block_k``: the unit that a kernel loads at once.

    [K=200, g=100] --pad each group--> [2, 128] --pad to blocks--> [256]

A padded position holds a code of small magnitude and meets a zero activation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

#: span of K that one mma consumes: that of 16-bit operands (m16n8k16); of 8-bit ones twice as much, of 4-bit ones four times
STEP_K = 16

#: k steps of an atom (16 for 1-bit codes) whose many values leave the compiler no room to mix them with those of another block
LONG_ATOM_STEPS = 16

#: longest step of products of warpgroups
WARPGROUP_STEP_K = 32

#: groups that a block touches, at most, where it may be halved and weights are not scaled in registers
MOST_GROUPS = 2

#: block that a kernel loads at once, unless a group or an atom asks for another
DEFAULT_BLOCK_K = 128
#: and so many steps of the product instruction at least, between which copies and fragments of the next are made
BLOCK_STEPS = 4

#: most bytes of a block in one row of a weight: beside wider codes, a ring would have room for too few blocks
BLOCK_BYTES = 128


def round_up(value: int, unit: int) -> int:
    """The smallest multiple of ``unit`` that is not below ``value``."""
    return -(-value // unit) * unit


def counted(count: int, noun: str) -> str:
    """``1 block``, ``2 blocks``; nouns that end in s take ``es``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith(('s', 'sh')) else 's'}"


@dataclass(frozen=True)
class KGeometry:
    """The cut of K into groups and blocks, in elements.

    Attributes:
        k: logical extent.
        group: elements of a group along K (``k`` for one group).
        atom_k: extent of a decode atom.
        padded_group: extent of a group after padding; divides ``block_k`` or is a multiple of it.
        block_k: unit of loading, a multiple of ``atom_k``.
    """

    k: int
    group: int
    atom_k: int
    padded_group: int
    block_k: int

    @classmethod
    def of(
        cls, k: int, group: int | None, atom_k: int, bits: int = 1, step_k: int = STEP_K
    ) -> KGeometry:
        """Cut ``k`` for groups of ``group`` elements (None: one group), codes of ``bits``, atoms of ``atom_k``, steps of ``step_k``."""
        usual = max(DEFAULT_BLOCK_K, BLOCK_STEPS * step_k)
        block = max(min(usual, 8 * BLOCK_BYTES // bits), atom_k)
        if group is None or group >= k:
            return cls(k, k, atom_k, round_up(k, block), block)
        # A block of narrow operands is no longer than the rows of 128 bytes that wgmma reads: it cannot be halved.
        unit = atom_k if step_k == STEP_K else block
        padded = step_k
        while padded < min(group, unit):
            padded *= 2
        if padded < group:
            padded = round_up(group, unit)
        while padded % block and block % padded:
            block //= 2
        # Sums of more groups and their zero points, in one stretch of code, cost the compiler more registers than there are.
        while step_k > WARPGROUP_STEP_K and block > max(MOST_GROUPS * padded, atom_k):
            block //= 2
        return cls(k, group, atom_k, padded, block)

    @cached_property
    def groups(self) -> int:
        """Groups along K, the last of which may be short."""
        return -(-self.k // self.group)

    @cached_property
    def padded_k(self) -> int:
        """Extent of K after padding groups and blocks."""
        return round_up(self.groups * self.padded_group, self.block_k)

    @cached_property
    def blocks(self) -> int:
        """Blocks along K."""
        return self.padded_k // self.block_k

    @cached_property
    def padded_groups(self) -> int:
        """Groups that the packed metadata hold, counting those that only pad the last block."""
        return -(-self.padded_k // self.padded_group)

    @cached_property
    def groups_per_block(self) -> int:
        """Groups that one block touches."""
        return max(1, self.block_k // self.padded_group)

    @cached_property
    def is_contiguous(self) -> bool:
        """Whether a padded position below ``k`` is the logical one (no padding inside)."""
        return self.groups == 1 or self.padded_group == self.group


def vector_widths(words: int) -> tuple[int, ...]:
    """Split the words of a lane into load vectors of 4, 2 and 1 words, widest first."""
    widths: list[int] = []
    for width in (4, 2, 1):
        widths += [width] * (words // width)
        words %= width
    return tuple(widths)
