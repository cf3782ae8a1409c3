"""Decode programs: straight-line register code from packed words to mma fragments, as a value.

A program is what one lane of a warp runs for one *atom* (16 rows x ``step_k*steps`` k of a weight): it reads the lane's packed
32-bit words and leaves ``4*steps`` fragment registers, two lane values of 16 bits each, four of 8 or eight of 4, in the order of
the A operand of ``mma.m16n8k16``, ``m16n8k32`` or ``m16n8k64`` (PTX ISA, "Matrix Fragments for mma.m16n8k16"). The program also says where each code's
bits lie in the words (the packer reads that), how codes are relabelled, and which affine map is left to the
accumulators: ``value = alpha * lane_value + beta``, constant over k for one class of steps and one row half.

Operands are register numbers (``int``) or :class:`Const`. Registers ``0 .. words-1`` are the packed words; every
operation writes a fresh register (single assignment).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import Literal

from ladder.decode.geometry import REGISTERS
from ladder.decode.lanes import FORMATS

OpKind = Literal["lop3", "shf", "shl", "shr", "prmt", "fma", "cvt", "lds"]

#: pipe that issues each operation on sm_80 .. sm_90 (ALU: LOP3, SHF, PRMT; FMA: HFMA2; LSU: LDS)
PIPE: dict[str, str] = {
    "lop3": "alu",
    "shf": "alu",
    "shl": "alu",
    "shr": "alu",
    "prmt": "alu",
    "fma": "fma",
    "cvt": "alu",
    "lds": "lsu",
}


@dataclass(frozen=True, slots=True)
class Const:
    """A 32-bit immediate operand."""

    bits: int

    def __str__(self) -> str:
        return f"0x{self.bits:08x}"


Operand = int | Const


@dataclass(frozen=True, slots=True)
class Op:
    """One operation ``register[dst] = kind(args)``.

    ========  =====================================  ==========================================================
    kind      args                                   meaning
    ========  =====================================  ==========================================================
    ``lop3``  a, b, c; ``imm`` = truth table         per bit ``imm[a<<2 | b<<1 | c]`` (PTX ISA lop3)
    ``shf``   a; ``imm`` = r                         rotate left by r
    ``shl``   a; ``imm`` = n                         shift left by n, zeros enter
    ``shr``   a; ``imm`` = n                         logical shift right by n
    ``prmt``  a, b, selector                         PTX ISA prmt, default mode (selector bit 3 replicates the msb)
    ``fma``   a, b, c; ``fmt``                       two lanes of ``a*b+c`` rounded once, ``fmt`` f16 or bf16
    ``cvt``   a; ``imm`` = byte pair 0 or 1          cvt.rn.f16x2.e4m3x2 / .e5m2x2 of the low or high half, ``fmt`` e4m3 or e5m2
    ``lds``   a                                      ``table[...]``, see :class:`Table`; ``a`` is the byte address inside the table
    ========  =====================================  ==========================================================
    """

    kind: OpKind
    dst: int
    args: tuple[Operand, ...]
    imm: int = 0
    fmt: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A lookup table in shared memory, replicated for each of the 32 lanes so that no two lanes share a bank.

    Entry ``i`` of lane ``l`` is the 32-bit word at byte ``i*stride + 4*l``; the program forms that address itself, from
    the register ``lane_address`` (a pseudo register that holds ``4*lane``).
    """

    entries: tuple[int, ...]
    stride: int = 128

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory that the table takes."""
        return len(self.entries) * self.stride


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one element's code lies: bit positions in the lane's words (``32*word + bit``), least significant stored bit first,
    and the index of the relabelling that turns a declared code into the stored bits.
    """

    bits: tuple[int, ...]
    relabel: int = 0


@dataclass(frozen=True, slots=True)
class Affine:
    """``value = alpha * lane_value + beta``, both exact."""

    alpha: Fraction = Fraction(1)
    beta: Fraction = Fraction(0)

    @property
    def is_identity(self) -> bool:
        """Whether nothing is deferred."""
        return self.alpha == 1 and self.beta == 0


#: pseudo register that holds 4*lane, read by programs with a table
LANE_ADDRESS = -1


#: operation -> the argument that goes into a register where another one is constant too: an instruction has room for one
#: immediate. Or-ed patterns and the lower halves of byte tables: masks and upper halves stay in the instruction.
HELD_ARGUMENT: dict[str, int] = {"lop3": 2, "prmt": 0}


def held_constant(op: Op) -> Const | None:
    """The constant of an operation that belongs into a register, or None."""
    held = op.args[HELD_ARGUMENT[op.kind]] if op.kind in HELD_ARGUMENT else None
    several = sum(isinstance(argument, Const) for argument in op.args) > 1
    return held if several and isinstance(held, Const) else None


@dataclass(frozen=True)
class DecodeProgram:
    """How one lane decodes one atom; see the module's docstring.

    Attributes:
        element: name of the element type it was derived from.
        bits: width of a code in bits, 1..8, or that of a lane value.
        compute: the type of the lane values, of :data:`ladder.decode.lanes.FORMATS`.
        form: name of the decode form that was chosen, for people ("subnormal", "magic+fma", "pair table", ...).
        words: packed 32-bit words per lane and atom.
        steps: steps per atom, of k16 (16-bit lanes), k32 or k64; the atom covers ``step_k*steps`` k.
        ops: the operations in order.
        outputs: ``[steps][4]`` register numbers of the A fragments a0..a3.
        slots: ``[steps][4][lanes]`` places of the codes of each fragment register's lanes, lowest first.
        relabels: tables ``code -> stored bits``, each a permutation of ``0 .. 2**bits-1``; a ``range`` keeps them as they are.
        step_class: ``[steps]`` accumulator class of each step.
        affine: ``[classes][2]`` what is deferred to the accumulators for rows g and g+8; ``[classes][4]``, for a0..a3, where
            lanes have to be scaled in registers (:mod:`ladder.decode.scaled`).
        table: lookup table or None.
        undefined: codes that must not occur in weights (NaN codes that the form cannot carry, unused codes).
        lossless: whether every defined code decodes to exactly its declared value.
        exhausted: whether the search looked at every candidate that could be cheaper; where False, its budget of counted
            work ran out before, and a cheaper program may exist (this one is proven all the same).
        held_constants: constants that are worth a register (:data:`HELD_ARGUMENT`), those that are used most first; derived.
    """

    element: str
    bits: int
    compute: str
    form: str
    words: int
    steps: int
    ops: tuple[Op, ...]
    outputs: tuple[tuple[int, int, int, int], ...]
    slots: tuple[tuple[tuple[Slot, ...], ...], ...]
    relabels: tuple[Sequence[int], ...]
    step_class: tuple[int, ...]
    affine: tuple[tuple[Affine, ...], ...]
    table: Table | None = None
    undefined: tuple[int, ...] = field(default=())
    lossless: bool = True
    exhausted: bool = True
    held_constants: tuple[int, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        uses = Counter(constant.bits for op in self.ops if (constant := held_constant(op)))
        object.__setattr__(self, "held_constants", tuple(bits for bits, _ in uses.most_common()))

    def __str__(self) -> str:
        from ladder.decode.text import listing

        return listing(self)

    @property
    def lanes(self) -> int:
        """Lanes of a fragment register, 2, 4 or 8."""
        return FORMATS[self.compute].count

    @property
    def lane_bits(self) -> int:
        """Width of a lane in bits, 16, 8 or 4."""
        return FORMATS[self.compute].bits

    @property
    def codes(self) -> int:
        """Codes of an atom that one thread decodes."""
        return 4 * self.lanes * self.steps

    @property
    def step_k(self) -> int:
        """Extent of a step along K, 16, 32 or 64 elements."""
        return 8 * self.lanes

    @property
    def atom_k(self) -> int:
        """Extent of an atom along K, in elements."""
        return self.step_k * self.steps

    @property
    def multiplies_words(self) -> bool:
        """Whether packed words are fragment registers as they are."""
        return any(register < self.words for step in self.outputs for register in step)

    @property
    def is_identity(self) -> bool:
        """Whether packed words are the fragment's registers: codes are lane values, in the order of the fragment."""
        return not self.ops and self.relabels == (range(1 << self.bits),)

    def deferred(self, step: int, register: int) -> Affine:
        """What register a0..a3 (0..3) of a step defers."""
        row = self.affine[self.step_class[step]]
        return row[register % len(row)]

    @property
    def is_scaled(self) -> bool:
        """Whether lanes have to be scaled in registers: registers of one row may defer different maps."""
        return any(len(row) == REGISTERS for row in self.affine)

    @property
    def classes(self) -> int:
        """Accumulator sets that the deferred factors need."""
        return len(self.affine)

    @cached_property
    def defers_zero(self) -> bool:
        """Whether the accumulators need the sums of the activations (some beta is not 0)."""
        return any(a.beta != 0 for pair in self.affine for a in pair)

    @cached_property
    def is_constant(self) -> bool:
        """Whether no code matters: all codes have one value (0 and -0 in one-bit sign and magnitude)."""
        read = (argument for op in self.ops for argument in op.args)
        given = (output for step in self.outputs for output in step)
        words = range(self.words)
        return not any(isinstance(o, int) and o in words for o in chain(read, given))

    def pipes(self) -> dict[str, float]:
        """Operations per 8 codes by pipe: ``{"alu": .., "fma": .., "lsu": ..}``."""
        return dict(self._pipes)

    @cached_property
    def _pipes(self) -> dict[str, float]:
        total = {"alu": 0, "fma": 0, "lsu": 0}
        for op in self.ops:
            total[PIPE[op.kind]] += 1
        eights = self.codes / 8
        return {pipe: count / eights for pipe, count in total.items()}
