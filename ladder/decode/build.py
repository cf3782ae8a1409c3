"""From fields to operations: fresh registers, shared rotations, and the fragment order of the outputs.

``(word >>> 8) & 0x000f000f`` is one shift, shared by all fields of that word and rotation, and one lop3.
"""

from __future__ import annotations

from collections.abc import Sequence

from ladder.decode.form import Field, Piece
from ladder.decode.program import Const, Op, Operand, OpKind

#: truth tables of lop3, bit ``a<<2 | b<<1 | c``
AND, AND_OR = 0xC0, 0xEA
#: mask of all bits of a register
ALL = 0xFFFFFFFF


class Builder:
    """Appends operations, each writing a fresh register.

    Args:
        words: registers ``0 .. words-1`` that hold the packed words.
        lane_bits: 16, 8 or 4, where all lanes of a word are treated alike, or 32.
        ordered: whether the halves have to stay in their order: rotations are then those of the 32-bit word.
    """

    def __init__(self, words: int, lane_bits: int = 16, *, ordered: bool = False) -> None:
        self.lane_bits, self.ordered = lane_bits, ordered
        self.ops: list[Op] = []
        self._next = words
        self._wanted: dict[tuple[int, int], int] = {}
        self._moved: dict[tuple[int, int], tuple[int, int]] = {}
        self._constants: dict[tuple[object, ...], int] = {}

    def emit(self, kind: OpKind, *args: Operand, imm: int = 0, fmt: str = "") -> int:
        """Append one operation and return its register; what constants alone make is made once."""
        op = Op(kind, self._next, args, imm, fmt)
        if all(isinstance(arg, Const) for arg in args):
            # No code changes it: copies would each stay in a register of their own throughout a kernel's main loop.
            known = self._constants.setdefault((kind, args, imm, fmt), op.dst)
            if known != op.dst:
                return known
        self.ops.append(op)
        self._next += 1
        return op.dst

    def spread(self, lane: int) -> int:
        """A lane's bits in every lane of a 32-bit register."""
        return lane * (ALL // ((1 << self.lane_bits) - 1))

    def expect(self, fields: Sequence[Field]) -> None:
        """Learn which bits of which rotations will be read, so that each word is moved once for all its fields."""
        for field in fields:
            for piece in field.pieces:
                if piece.rotation and not is_byte_move(piece, field, self.lane_bits):
                    key = (piece.word, piece.rotation)
                    self._wanted[key] = self._wanted.get(key, 0) | piece.mask

    def _rotated(self, word: int, rotation: int) -> tuple[int, int]:
        """A register with ``word`` rotated left (or shifted, where no wanted bit wraps round), and the full distance.

        With 16-bit lanes a distance and the same plus 16 are alike but for the order of the halves, with narrower lanes so are four or eight.
        """
        if (word, rotation) not in self._moved:
            mask = self.spread(self._wanted[word, rotation])
            self._moved[word, rotation] = self._rotate(word, rotation, mask)
        return self._moved[word, rotation]

    def _rotate(self, word: int, rotation: int, mask: int) -> tuple[int, int]:
        for distance in range(rotation, 32, 32 if self.ordered else self.lane_bits):
            low = (1 << distance) - 1
            if mask & ~low == 0:
                return self.emit("shr", word, imm=32 - distance), distance
            if mask & low == 0:
                return self.emit("shl", word, imm=distance), distance
        return self.emit("shf", word, imm=rotation), rotation

    def source(self, piece: Piece) -> tuple[int, int]:
        """The register that holds a piece's bits in place, and by how much its word was rotated left."""
        return self._rotated(piece.word, piece.rotation) if piece.rotation else (piece.word, 0)

    def gather(self, field: Field, base: Operand) -> tuple[int, list[tuple[int, int]]]:
        """Emit a field's bits or-ed onto ``base``; also ``(word, distance)`` for each position of the form."""
        pieces = field.pieces
        if len(pieces) == 1 and is_byte_move(pieces[0], field, self.lane_bits):
            register, distance = self._byte_move(pieces[0], base)
            return register, [(pieces[0].word, distance)] * len(field.form.positions)
        register = -1
        where: dict[int, tuple[int, int]] = {}
        for piece in pieces:
            source, distance = self.source(piece)
            mask = Const(self.spread(piece.mask))
            register = self._and_or(source, mask, base)
            base = register
            for p in range(self.lane_bits):
                if piece.mask >> p & 1:
                    where[p] = (piece.word, distance)
        return register, [where[p] for p in field.form.positions]

    def _and_or(self, source: int, mask: Const, base: Operand) -> int:
        if isinstance(base, Const) and base.bits == 0:
            if mask.bits == ALL:
                return source  # the codes fill their lanes: nothing is to be cut out
            return self.emit("lop3", source, mask, Const(0), imm=AND)
        return self.emit("lop3", source, mask, base, imm=AND_OR)

    def _byte_move(self, piece: Piece, base: Operand) -> tuple[int, int]:
        """One prmt brings the bytes of a piece into place and takes the other bytes from ``base``."""
        mask, selector = self.spread(piece.mask), 0
        distance = piece.rotation
        for i in range(4):
            moved = (i - distance // 8) % 4
            selector |= (moved if mask >> 8 * i & 1 else 4 + i) << 4 * i
        return self.emit("prmt", piece.word, base, Const(selector)), distance


def is_byte_move(piece: Piece, field: Field, lane_bits: int) -> bool:
    """Whether one prmt serves the field: a single piece of whole bytes, moved by whole bytes."""
    whole = all(piece.mask >> 8 * i & 0xFF in (0, 0xFF) for i in range(lane_bits // 8))
    return len(field.pieces) == 1 and whole and piece.rotation % 8 == 0 and piece.rotation != 0


def packed_bits(
    places: Sequence[tuple[int, int]], positions: Sequence[int], offset: int = 0
) -> tuple[int, ...]:
    """Packed bits behind register bits ``positions + offset``: bit p came from ``(p - distance) mod 32`` of its word."""
    return tuple(
        32 * word + (p + offset - distance) % 32
        for (word, distance), p in zip(places, positions, strict=True)
    )
