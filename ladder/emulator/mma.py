"""Tensor-core products of one warp: mma.sync (PTX ISA "Matrix Fragments for mma.m16n8k16", "...k32", "...k64", "...k256").

Lane ``l`` has ``g = l//4`` and ``t = l%4``. An operand register holds J elements of one row, J = 2, 4, 8 or 32 by type:
register ``i`` of A is row ``g + 8*(i&1)``, elements ``J*t .. J*t+J-1`` of k half ``i>>1``; register ``i`` of B is column ``g``,
k half ``i``; accumulator ``i`` is row ``g + 8*(i>>1)``, column ``2*t + (i&1)``.

Sums are taken in float32 (integers: exactly). The hardware adds the products of one instruction in an order and with a
truncation of its own, so that results agree with it to a few ulp of the largest term, not bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ladder.emulator.report import Fault, Site
from ladder.emulator.warp import Array, Mask, Warp
from ladder.scheduler.single import dots


def _plain(dtype: Any) -> Callable[[Array], Array]:
    def widen(words: Array) -> Array:
        out: Array = words.view(dtype).astype(np.float32)
        return out

    return widen


def _bfloat(words: Array) -> Array:
    out: Array = (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return out


def _nibbles(words: Array) -> Array:
    """Fields of 4 bits as numbers 0 .. 15, the lowest first."""
    raw = words.view(np.uint8)
    fields = np.stack([raw & np.uint8(15), raw >> np.uint8(4)], axis=-1)
    return fields.reshape(*raw.shape[:-1], -1)


def _signed_nibbles(words: Array) -> Array:
    """The same in two's complement, -8 .. 7: the sign bit counts -8."""
    signed: Array = (_nibbles(words) ^ np.uint8(8)).astype(np.float32) - np.float32(8)
    return signed


def _unsigned_nibbles(words: Array) -> Array:
    return _nibbles(words).astype(np.float32)


def _bits(words: Array) -> Array:
    return np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little").astype(np.float32)


@dataclass(frozen=True, slots=True)
class Element:
    """An operand type: elements in a register, and how to widen words to float32 elements along the last axis."""

    per_word: int
    widen: Callable[[Array], Array]


#: products of integers stay below 2**24 in one instruction, so float32 sums them exactly
ELEMENTS: dict[str, Element] = {
    "f16": Element(2, _plain(np.float16)),
    "bf16": Element(2, _bfloat),
    "s8": Element(4, _plain(np.int8)),
    "u8": Element(4, _plain(np.uint8)),
    "e4m3": Element(4, _plain(ml_dtypes.float8_e4m3fn)),
    "e5m2": Element(4, _plain(ml_dtypes.float8_e5m2)),
    "s4": Element(8, _signed_nibbles),
    "u4": Element(8, _unsigned_nibbles),
    "b1": Element(32, _bits),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A variant of mma.sync: types of D (and C), A and B, and the extent of k."""

    d: str
    a: str
    b: str
    k: int
    operation: str = ""

    @classmethod
    def parse(cls, text: str, site: Site) -> Shape:
        """Read ``mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32``."""
        words = [w for w in text.split(".") if w != "satfinite"]
        shape = next(w for w in words if w.startswith("m16n8k"))
        d, a, b, c = words[words.index("col") + 1 :][:4]
        operation = ".".join(words[words.index("col") + 5 :])
        k = int(shape.removeprefix("m16n8k"))
        known = a in ELEMENTS and b in ELEMENTS and d in ("f32", "s32", "f16") and c == d
        if not known or k not in (8 * ELEMENTS[a].per_word, 4 * ELEMENTS[a].per_word):
            raise Fault(f"unsupported: {text}", at=site)
        if ELEMENTS[a].per_word != ELEMENTS[b].per_word:
            raise Fault(f"unsupported: {text}", at=site)
        if (a == "b1") != bool(operation):
            raise Fault(f"unsupported: {text}", at=site)
        return cls(d, a, b, k, operation)

    @property
    def a_registers(self) -> int:
        """Registers of the A fragment."""
        return self.k // (2 * ELEMENTS[self.a].per_word)

    @property
    def b_registers(self) -> int:
        """Registers of the B fragment."""
        return self.k // (4 * ELEMENTS[self.b].per_word)


def _words(fragments: Sequence[Sequence[Array]]) -> Array:
    rows = np.concatenate([r for fragment in fragments for r in fragment])
    return rows.view(np.uint32)


def a_matrices(element: Element, fragments: Sequence[Sequence[Array]]) -> Array:
    """A fragments as matrices: n fragments of 2h registers -> float32[n, 16, k]."""
    n, halves = len(fragments), len(fragments[0]) // 2
    values = element.widen(_words(fragments).reshape(n, halves, 2, 8, 4, 1))
    out: Array = values.transpose(0, 2, 3, 1, 4, 5).reshape(n, 16, -1)
    return out


def b_matrices(element: Element, fragments: Sequence[Sequence[Array]]) -> Array:
    """B fragments as matrices: n fragments of h registers -> float32[n, 8, k], rows are columns of B."""
    n, halves = len(fragments), len(fragments[0])
    values = element.widen(_words(fragments).reshape(n, halves, 8, 4, 1))
    out: Array = values.transpose(0, 2, 1, 3, 4).reshape(n, 8, -1)
    return out


def accumulators(matrices: Array) -> Array:
    """Matrices as accumulator registers: [n, 16, 8] -> [n, 4, 32]."""
    n = len(matrices)
    parts = matrices.reshape(n, 2, 8, 4, 2).transpose(0, 1, 4, 2, 3)
    out: Array = parts.reshape(n, 4, 32)
    return out


def products(shape: Shape, a: Sequence[Sequence[Array]], b: Sequence[Sequence[Array]]) -> Array:
    """Products of pairs of fragments as accumulator registers: float32[n, 4, 32].

    Fragments that occur in several pairs are unpacked once.
    """
    ea, eb = ELEMENTS[shape.a], ELEMENTS[shape.b]
    unique_a, index_a = _unique(a)
    unique_b, index_b = _unique(b)
    left = a_matrices(ea, unique_a)
    right = b_matrices(eb, unique_b)
    if shape.operation == "xor.popc":
        left, right = 1 - 2 * left, 1 - 2 * right
    grid = _grid(left, right, index_a, index_b)
    if shape.operation == "xor.popc":
        grid = (shape.k - grid) / 2
    return accumulators(grid)


def _grid(left: Array, right: Array, index_a: list[int], index_b: list[int]) -> Array:
    """Products [n, 16, 8] of chosen pairs; one multiplication when most pairs are wanted."""
    na, nb, k = len(left), len(right), left.shape[2]
    if 2 * len(index_a) >= na * nb:
        whole = dots(left.reshape(na * 16, k), right.reshape(nb * 8, k))
        tiles: Array = whole.reshape(na, 16, nb, 8).transpose(0, 2, 1, 3)[index_a, index_b]
        return tiles
    out: Array = dots(left[index_a], right[index_b])
    return out


def _unique(fragments: Sequence[Sequence[Array]]) -> tuple[list[Sequence[Array]], list[int]]:
    places: dict[tuple[int, ...], int] = {}
    unique: list[Sequence[Array]] = []
    index = []
    for fragment in fragments:
        key = tuple(map(id, fragment))
        if key not in places:
            places[key] = len(unique)
            unique.append(fragment)
        index.append(places[key])
    return unique, index


@dataclass(frozen=True, slots=True)
class Batch:
    """Products of one shape that are done together.

    Attributes:
        shape: of the instructions.
        count: instructions.
        blocks: rows and columns of fragments that are multiplied as one matrix each, and where its tiles go:
            (A fragments, B fragments, tiles of the block, instructions).
        layers: instructions that add to different accumulators, in the order of the text: (instructions, accumulators).
    """

    shape: Shape
    count: int
    blocks: tuple[tuple[Any, Any, Any, Any], ...]
    layers: tuple[tuple[Any, Any], ...]

    @classmethod
    def of(cls, shape: Shape, pairs: Sequence[tuple[int, int, int]]) -> Batch:
        """Arrange (A fragment, B fragment, accumulators) of the instructions."""
        partners: dict[int, dict[int, list[int]]] = {}
        layers: dict[int, list[tuple[int, int]]] = {}
        depth: dict[int, int] = {}
        for instruction, (a, b, target) in enumerate(pairs):
            partners.setdefault(a, {}).setdefault(b, []).append(instruction)
            layers.setdefault(depth.get(target, 0), []).append((instruction, target))
            depth[target] = depth.get(target, 0) + 1
        alike: dict[tuple[int, ...], list[int]] = {}
        for a, row in partners.items():
            alike.setdefault(tuple(sorted(row)), []).append(a)
        blocks = []
        for columns, rows in alike.items():
            places = [
                (i * len(columns) + j, instruction)
                for i, a in enumerate(rows)
                for j, b in enumerate(columns)
                for instruction in partners[a][b]
            ]
            tiles, members = (np.array(part) for part in zip(*places, strict=True))
            blocks.append((np.array(rows), np.array(columns), tiles, members))
        steps = [
            tuple(np.array(part) for part in zip(*layer, strict=True)) for layer in layers.values()
        ]
        return cls(shape, len(pairs), tuple(blocks), tuple(steps))  # type: ignore[arg-type]


def mma_batch(
    batch: Batch,
    a: Sequence[Sequence[Array]],
    b: Sequence[Sequence[Array]],
    targets: Sequence[tuple[Any, ...]],
) -> None:
    """Run the products of a batch and add them to accumulators: (register list, indices...) of each."""
    shape = batch.shape
    left, right = a_matrices(ELEMENTS[shape.a], a), b_matrices(ELEMENTS[shape.b], b)
    if shape.operation == "xor.popc":
        left, right = 1 - 2 * left, 1 - 2 * right
    product = np.empty((batch.count, 16, 8), np.float32)
    for rows, columns, tiles, members in batch.blocks:
        na, nb = len(rows), len(columns)
        whole = dots(left[rows].reshape(16 * na, -1), right[columns].reshape(8 * nb, -1))
        product[members] = (
            whole.reshape(na, 16, nb, 8).transpose(0, 2, 1, 3).reshape(-1, 16, 8)[tiles]
        )
    if shape.operation == "xor.popc":
        product = ((shape.k - product) / 2).astype(np.float32)
    parts = accumulators(product)
    old = np.concatenate([values[i] for values, *indices in targets for i in indices])
    dtype = np.float32 if shape.d == "f32" else np.int32
    total = old.view(dtype).reshape(len(targets), 4, 32)
    for members, which in batch.layers:
        total[which] = parts[members].astype(dtype, copy=False) + total[which]
    rows_of = iter(total.view(old.dtype).reshape(-1, 32))
    for values, *indices in targets:
        for i in indices:
            values[i] = next(rows_of)


def mma(
    warp: Warp, mask: Mask, site: Site, shape: Shape, operands: Sequence[Sequence[Any]]
) -> list[Array]:
    """Run several mma of one shape, none of which reads what another writes.

    ``operands`` holds for each instruction the registers of A, B and C in order; the answer the D registers of all.
    """
    warp.meet(mask, site)
    na, nb = shape.a_registers, shape.b_registers
    a = [row[:na] for row in operands]
    b = [row[na : na + nb] for row in operands]
    c = [row[na + nb :] for row in operands]
    with np.errstate(all="ignore"):
        product = products(shape, a, b)
        if shape.d == "f32":
            old = np.concatenate([r for row in c for r in row]).view(np.float32)
            return list((product + old.reshape(product.shape)).reshape(-1, 32))
        if shape.d == "s32":
            dtype = c[0][0].dtype
            old = np.concatenate([r for row in c for r in row]).view(np.int32)
            total = product.astype(np.int32) + old.reshape(product.shape)
            return list(total.reshape(-1, 32).view(dtype))
        return _half_accumulators(product, c)


def _half_accumulators(product: Array, c: Sequence[Sequence[Array]]) -> list[Array]:
    """Add in float32 and round to pairs of float16: accumulator register ``i`` holds columns 2t, 2t+1 of row half i."""
    n = len(product)
    pairs = product.reshape(n, 2, 2, 32).transpose(0, 1, 3, 2)
    old = np.concatenate([r for row in c for r in row]).view(np.uint32)
    total = pairs + old.reshape(n, 2, 32, 1).view(np.float16).astype(np.float32)
    words = np.ascontiguousarray(total.astype(np.float16)).view(np.uint32)
    return list(words.reshape(n * 2, 32))
