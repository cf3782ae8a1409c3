"""Codes of an atom to packed words and back, and the decoded values, all by the program's own description.

``pack_atom`` and ``unpack_atom`` are inverse bijections between ``codes[16, atom_k]`` and ``words[words, 32]``; codes are
uint8, or uint16 where they have 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ladder.decode.geometry import LANES, REGISTERS, ROWS, fragment_index
from ladder.decode.lanes import FORMATS, FloatArray, Words
from ladder.decode.machine import fragments
from ladder.decode.program import DecodeProgram
from ladder.errors import PackingError

Codes = npt.NDArray[np.unsignedinteger[Any]]
Index = npt.NDArray[np.intp]
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class _Places:
    """Slots as arrays; codes are numbered ``(step*4 + register)*lanes + lane``.

    ``position[code, i]`` is where stored bit i lies; ``code[word, bit]`` and ``bit[word, bit]`` are the inverse.
    """

    position: Index
    code: Index
    bit: Index
    relabel: Codes
    restore: Codes


@lru_cache(maxsize=256)
def _places(program: DecodeProgram) -> _Places:
    slots = [slot for step in program.slots for register in step for slot in register]
    position = np.array([slot.bits for slot in slots], np.intp)
    inverse = np.full((program.words * 32, 2), -1, np.intp)
    for number, bits in enumerate(position):
        for i, p in enumerate(bits):
            inverse[p] = number, i
    if (inverse < 0).any():
        raise PackingError(
            "some bit of the packed words holds no code",
            at=program.element,
            hint="prove the program first",
        )
    dtype = code_dtype(program)
    tables = np.array(program.relabels, dtype)
    relabel = tables[[slot.relabel for slot in slots]]
    restore = np.argsort(tables, axis=1).astype(dtype)[[slot.relabel for slot in slots]]
    code, bit = inverse.reshape(program.words, 32, 2).transpose(2, 0, 1)
    return _Places(position, code, bit, relabel, restore)


def code_dtype(program: DecodeProgram) -> np.dtype[Any]:
    """dtype of the codes of a program: that of ``TType.code_dtype``."""
    return np.dtype(np.uint8 if program.bits <= 8 else np.uint16)


def _check(array: npt.NDArray[np.generic], shape: tuple[int, int], what: str) -> None:
    if array.shape[-2:] != shape:
        raise PackingError(
            f"an atom's {what} are [..., {shape[0]}, {shape[1]}], not {array.shape}", at=what
        )


def pack_atom(program: DecodeProgram, codes: Codes) -> Words:
    """Codes ``[..., 16, atom_k]`` to words ``uint32[..., words, 32]`` (word w of lane l at ``[w, l]``).

    Raises:
        PackingError: another shape, or a code that does not fit the type's width.
    """
    _check(codes, (ROWS, program.atom_k), "codes")
    if codes.size and int(codes.max()) >> program.bits:
        raise PackingError(
            f"code {int(codes.max())} does not fit {program.bits} bits",
            at=program.element,
            hint="codes are 0 .. 2**bits-1",
        )
    where = _places(program)
    index = fragment_index(program.steps, program.lanes)
    places = len(where.position)
    fragment = codes[..., index.row, index.k].reshape(*codes.shape[:-2], LANES, places)
    if program.is_identity:
        pairs = np.ascontiguousarray(fragment).astype("<u2").view("<u4").astype(np.uint32)
        return np.ascontiguousarray(np.swapaxes(pairs, -1, -2))
    stored = where.relabel[np.arange(places), fragment]
    words = np.zeros((*codes.shape[:-2], LANES, program.words), np.uint32)
    for bit in range(32):
        source = stored[..., where.code[:, bit]] >> where.bit[:, bit].astype(stored.dtype) & 1
        words |= source.astype(np.uint32) << np.uint32(bit)
    return np.ascontiguousarray(np.swapaxes(words, -1, -2))


def unpack_atom(program: DecodeProgram, words: Words) -> Codes:
    """Inverse of :func:`pack_atom`: ``uint32[..., words, 32]`` to codes ``[..., 16, atom_k]``."""
    _check(words, (program.words, LANES), "words")
    where = _places(program)
    by_lane = np.swapaxes(words, -1, -2)
    stored = np.zeros((*by_lane.shape[:-1], len(where.position)), code_dtype(program))
    for i in range(program.bits):
        word, bit = np.divmod(where.position[:, i], 32)
        stored |= ((by_lane[..., word] >> bit.astype(np.uint32) & 1) << i).astype(stored.dtype)
    fragment = where.restore[np.arange(len(where.position)), stored]
    return _to_matrix(
        program, fragment.reshape(*by_lane.shape[:-1], program.steps, REGISTERS, program.lanes)
    )


def decode_atom(program: DecodeProgram, words: Words) -> FloatArray:
    """Decoded values ``float64[..., 16, atom_k]`` of packed words: the program's operations, then its deferred affine maps
    (in float64: exact for values and factors of at most 53 bits together).
    """
    _check(words, (program.words, LANES), "words")
    registers = fragments(program, words)
    lanes = FORMATS[program.compute].table[lane_patterns(program, registers)]
    for step in range(program.steps):
        for register in range(REGISTERS):
            affine = program.deferred(step, register)
            part = lanes[..., step, register, :, :]
            part *= float(affine.alpha)
            part += float(affine.beta)
    order = np.moveaxis(lanes, -2, -4)
    return _to_matrix(program, order)


def lane_patterns(program: DecodeProgram, registers: Words) -> Words:
    """The lanes of registers on a new last axis, lowest first."""
    shifts = np.arange(0, 32, program.lane_bits, dtype=np.uint32)
    patterns: Words = registers[..., None] >> shifts & np.uint32((1 << program.lane_bits) - 1)
    return patterns


def _to_matrix(program: DecodeProgram, fragment: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """``[..., 32 threads, steps, 4, lanes]`` to ``[..., 16, atom_k]``."""
    index = fragment_index(program.steps, program.lanes)
    out = np.empty((*fragment.shape[:-4], ROWS, program.atom_k), fragment.dtype)
    out[..., index.row, index.k] = fragment
    return out
