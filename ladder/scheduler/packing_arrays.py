"""Packing for arrays of any library that follows the array API (torch, CuPy, NumPy), on the device where they lie.

The same bytes as :meth:`Packing.pack`, found another way: each code's bits are moved to their slot, a run of bits at a
time, with 32-bit signed integers (torch has no shifts of unsigned ones). Scales and zeros travel as raw bits, so that a
library needs to know no 8-bit float.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladder.checks import MAPPING, accept, refuse_unknown, shown
from ladder.decode.program import DecodeProgram
from ladder.errors import PackingError
from ladder.scheduler.array_tools import (
    RAW,
    Array,
    Namespace,
    as_uint32,
    constant,
    contiguous,
    lookup,
    namespace,
    pad_columns,
    pad_rows,
    raw_bits,
)
from ladder.scheduler.packing import BAND_TILES, METADATA_ROWS, TILE_ROWS, Packing
from ladder.scheduler.row_order import sources
from ladder.scheduler.unit import (
    largest_finite_bits,
    magnitude_mask,
    magnitude_of,
    unit_for,
)

#: what may stand beside the codes
METADATA = ("scales", "zeros", "global_scale")

#: codes that are moved at once, so that 32-bit copies of them stay small
CHUNK_CODES = 1 << 24


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive bits of one code that stand together: ``word[position:] = code[low : low + count]``."""

    word: int
    position: int
    code: int
    low: int
    count: int

    @property
    def mask(self) -> int:
        """Ones for the bits of the run, at bit 0."""
        return (1 << self.count) - 1


def runs(program: DecodeProgram) -> tuple[Run, ...]:
    """Where the bits of a thread's codes stand, codes numbered ``(step * 4 + register) * lanes + lane``."""
    found: list[Run] = []
    slots = [slot for step in program.slots for register in step for slot in register]
    for code, slot in enumerate(slots):
        first = 0
        for bit in range(1, len(slot.bits) + 1):
            ends = bit == len(slot.bits) or (
                slot.bits[bit] != slot.bits[bit - 1] + 1 or slot.bits[bit] % 32 == 0
            )
            if ends:
                word, position = divmod(slot.bits[first], 32)
                found.append(Run(word, position, code, first, bit - first))
                first = bit
    return tuple(found)


def pack_arrays(
    packing: Packing,
    codes: Array,
    scales: Array | None = None,
    zeros: Array | None = None,
    global_scale: float | None = None,
) -> dict[str, Array]:
    """Pack codes ``[n, k]`` with their metadata, all arrays of one library on one device.

    Args:
        packing: how.
        codes: as in :class:`~ladder.ttype.Quantized`; those of 16 bits as int16 too, for example a float16 tensor's
            ``view(torch.int16)``.
        scales: ``[ceil(n / rows), ceil(k / columns)]``, in the scale's type or as its raw bits.
        zeros: as scales: uint8 codes, or numbers in the scale's type.
        global_scale: the second-level scale.

    Raises:
        PackingError: shapes do not fit the packing, parts are missing, or a code occurs that the decode cannot carry.
    """
    xp = namespace("codes", codes)
    for name, array in (("scales", scales), ("zeros", zeros)):
        if array is not None:
            namespace(name, array)
    _check(xp, packing, codes, {"scales": scales, "zeros": zeros})
    weight = _pack_codes(xp, packing, codes)
    arrays = {"weight": weight}
    if packing.scale_dtype is not None:
        arrays["scales"] = _pack_metadata(xp, packing, scales)
    if packing.zero_dtype is not None:
        values = _zero_values(xp, packing, zeros) if packing.weight.zero == "integer" else zeros
        arrays["zeros"] = _pack_metadata(xp, packing, values)
    device = codes.device
    if packing.has_unit:
        arrays["unit"] = _unit(xp, packing, arrays)
    if packing.has_global_scale:
        arrays["global_scale"] = xp.asarray([global_scale], dtype=xp.float32, device=device)
    if packing.program.table is not None:
        entries = np.asarray(packing.program.table.entries, np.uint32).view(np.int32)
        arrays["table"] = as_uint32(xp, constant(xp, entries, codes))
    return arrays


def unpack_arrays(packing: Packing, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The inverse of :func:`pack_arrays`: codes, and scales, zeros and global_scale where there are some.

    Raises:
        PackingError: an array is missing, or has another shape than the packing says.
    """
    check_packed(packing, arrays, exact=False)
    xp = namespace("weight", arrays["weight"])
    parts: dict[str, Array] = {"codes": _unpack_codes(xp, packing, arrays["weight"])}
    if packing.scale_dtype is not None:
        parts["scales"] = _unpack_metadata(xp, packing, arrays["scales"])
    if packing.zero_dtype is not None:
        zeros = _unpack_metadata(xp, packing, arrays["zeros"])
        integer = packing.weight.zero == "integer"
        parts["zeros"] = _zero_codes(xp, packing, zeros) if integer else zeros
    if packing.has_global_scale:
        parts["global_scale"] = float(arrays["global_scale"][0])
    return parts


def known_metadata(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is passed beside codes, by name.

    Raises:
        PackingError: a name is unknown.
    """
    refuse_unknown(given, METADATA, "there is no", at="pack_arrays", error=PackingError)
    return dict(given)


def check_packed(packing: Packing, arrays: Mapping[str, Array], *, exact: bool) -> None:
    """Refuse packed arrays of other shapes than the packing says; ``exact``: arrays of NumPy, and of its dtypes too.

    Raises:
        PackingError: with what was found and what was expected.
    """
    accept(arrays, MAPPING, "arrays", at=packing.title, error=PackingError)
    for name, (shape, dtype) in packing.shapes().items():
        found = arrays.get(name)
        fits = not exact or (isinstance(found, np.ndarray) and found.dtype.name == dtype)
        if not fits or tuple(getattr(found, "shape", ())) != shape:
            raise PackingError(
                f"packed {name} is {'missing' if found is None else shown(found)}, expected {dtype}{list(shape)}",
                at=packing.title,
                hint="give what was packed, as it was",
            )


# -- codes ------------------------------------------------------------------------------------------------------


def _pack_codes(xp: Namespace, packing: Packing, codes: Array) -> Array:
    tiles, cut = packing.stored_tiles, packing.geometry
    if codes.dtype.itemsize == 2:  # libraries can do more with signed integers
        codes = raw_bits(xp, codes)
    padded = pad_rows(xp, _pad_groups(xp, packing, codes), tiles * TILE_ROWS, packing.pad_code)
    padded = _stored(xp, packing, padded)
    step = max(1, CHUNK_CODES // (TILE_ROWS * cut.padded_k))
    places = runs(packing.program)
    parts = [
        _pack_tiles(xp, packing, padded[first * TILE_ROWS : (first + step) * TILE_ROWS], places)
        for first in range(0, tiles, step)
    ]
    by_tile = xp.concat(parts, axis=0)
    banded = xp.reshape(
        by_tile, (packing.bands, BAND_TILES, cut.blocks, packing.atoms_per_block, -1)
    )
    return as_uint32(xp, xp.permute_dims(banded, (0, 2, 1, 3, 4)))


def _pack_tiles(xp: Namespace, packing: Packing, codes: Array, places: tuple[Run, ...]) -> Array:
    """Codes ``[16 * tiles, padded_k]`` -> int32 ``[tiles, atoms, 32 * words]``."""
    program = packing.program
    stored = _fragment(xp, packing, codes)
    if not program.is_identity:
        index = stored + constant(xp, _table_offsets(program), codes)
        stored = lookup(xp, np.asarray(program.relabels, np.int32), index)
    words: list[Array] = [xp.zeros_like(stored[..., 0]) for _ in range(program.words)]
    for run in places:
        bits = (stored[..., run.code] >> run.low) & run.mask
        words[run.word] = words[run.word] | (bits << run.position)
    by_word = xp.stack(words, axis=2)
    flat = xp.reshape(by_word, (*by_word.shape[:2], -1))
    return xp.take(flat, constant(xp, packing.word_order, codes), axis=2)


def _unpack_codes(xp: Namespace, packing: Packing, weight: Array) -> Array:
    program, cut = packing.program, packing.geometry
    step = max(1, CHUNK_CODES // (TILE_ROWS * cut.padded_k))
    places = runs(program)
    inverse = np.argsort(packing.word_order)
    parts = []
    raw = xp.permute_dims(raw_bits(xp, weight), (0, 2, 1, 3, 4))
    by_tile = xp.reshape(raw, (packing.stored_tiles, packing.atoms, packing.atom_words))
    for first in range(0, packing.stored_tiles, step):
        flat = by_tile[first : first + step, ...]
        words = xp.take(flat, constant(xp, inverse, weight), axis=2)
        words = xp.reshape(words, (*flat.shape[:2], program.words, 32))
        parts.append(_unpack_tiles(xp, packing, words, places))
    codes = _drop_groups(xp, packing, _natural(xp, packing, xp.concat(parts, axis=0)))
    return contiguous(xp, codes).view(getattr(xp, packing.element.code_dtype.name))


def _unpack_tiles(xp: Namespace, packing: Packing, words: Array, places: tuple[Run, ...]) -> Array:
    """int32 ``[tiles, atoms, words, 32]`` -> raw codes ``[16 * tiles, padded_k]``."""
    program = packing.program
    stored: list[Array] = [xp.zeros_like(words[:, :, 0, :]) for _ in range(program.codes)]
    for run in places:
        # an arithmetic shift brings copies of the sign; the mask takes them off
        bits = (words[:, :, run.word, :] >> run.position) & run.mask
        stored[run.code] = stored[run.code] | (bits << run.low)
    codes = xp.stack(stored, axis=3)
    if not program.is_identity:
        restore = np.argsort(np.asarray(program.relabels, np.int32), axis=1)
        codes = lookup(xp, restore, codes + constant(xp, _table_offsets(program), words))
    tiles, atoms = words.shape[:2]
    split = xp.reshape(codes, (tiles, atoms, 8, 4, program.steps, 2, 2, program.lanes))
    #       tile atom g t step k_half row_half lane -> tile row_half g atom step k_half t lane
    ordered = xp.permute_dims(split, (0, 6, 2, 1, 4, 5, 3, 7))
    raw = getattr(xp, RAW[packing.element.code_dtype.itemsize])
    return xp.astype(xp.reshape(ordered, (tiles * TILE_ROWS, -1)), raw)


def _fragment(xp: Namespace, packing: Packing, codes: Array) -> Array:
    """Codes ``[16 * tiles, padded_k]`` -> int32 ``[tiles, atoms, 32, codes]``, a thread's codes together."""
    program, atoms = packing.program, packing.atoms
    tiles = codes.shape[0] // TILE_ROWS
    view = (tiles, 2, 8, atoms, program.steps, 2, 4, program.lanes)
    split = xp.reshape(xp.astype(codes, xp.int32), view)
    #       tile row_half g atom step k_half t lane -> tile atom g t step k_half row_half lane
    ordered = xp.permute_dims(split, (0, 3, 2, 6, 4, 5, 1, 7))
    return xp.reshape(ordered, (tiles, atoms, 32, program.codes))


def _stored(xp: Namespace, packing: Packing, rows: Array) -> Array:
    """All rows, padding included, in the order in which they are stored."""
    places = packing.row_places
    if isinstance(places, slice):
        return rows
    order = sources(places, packing.stored_tiles * TILE_ROWS)
    return xp.take(rows, constant(xp, order, rows), axis=0)


def _natural(xp: Namespace, packing: Packing, stored: Array) -> Array:
    """The inverse of :func:`_stored`, without the padding."""
    places = packing.row_places
    if isinstance(places, slice):
        return stored[places, :]
    return xp.take(stored, constant(xp, places, stored), axis=0)


def _table_offsets(program: DecodeProgram) -> NDArray[np.int32]:
    """Start of each code's relabelling in the flat table of all relabellings."""
    slots = [slot for step in program.slots for register in step for slot in register]
    return np.asarray([slot.relabel << program.bits for slot in slots], np.int32)


def _pad_groups(xp: Namespace, packing: Packing, codes: Array) -> Array:
    """``[n, k]`` -> ``[n, padded_k]``, every group padded, then the last block."""
    cut, fill = packing.geometry, packing.pad_code
    if cut.is_contiguous:
        return pad_columns(xp, codes, cut.padded_k, fill)
    n = codes.shape[0]
    whole = pad_columns(xp, codes, cut.groups * cut.group, fill)
    groups = xp.reshape(whole, (n * cut.groups, cut.group))
    padded = pad_columns(xp, groups, cut.padded_group, fill)
    return pad_columns(xp, xp.reshape(padded, (n, -1)), cut.padded_k, fill)


def _drop_groups(xp: Namespace, packing: Packing, codes: Array) -> Array:
    cut = packing.geometry
    if cut.is_contiguous:
        return codes[:, : cut.k]
    n = codes.shape[0]
    kept = codes[:, : cut.groups * cut.padded_group]
    groups = xp.reshape(kept, (n * cut.groups, cut.padded_group))[:, : cut.group]
    return xp.reshape(groups, (n, -1))[:, : cut.k]


# -- metadata ---------------------------------------------------------------------------------------------------


def _pack_metadata(xp: Namespace, packing: Packing, values: Array) -> Array:
    """``[ceil(n / rows), groups]`` -> ``[bands, padded_groups, 4, 16]``, same dtype; padding is all zero bits."""
    rows = packing.weight.group[0] or packing.n
    raw = raw_bits(xp, values)
    raw = xp.take(raw, constant(xp, np.arange(packing.n) // rows, values), axis=0)
    raw = pad_columns(xp, raw, packing.geometry.padded_groups, 0)
    raw = _stored(xp, packing, pad_rows(xp, raw, packing.stored_tiles * TILE_ROWS, 0))
    banded = xp.reshape(raw, (packing.bands, BAND_TILES, TILE_ROWS, -1))
    ordered = xp.take(banded, constant(xp, METADATA_ROWS, values), axis=2)
    return contiguous(xp, xp.permute_dims(ordered, (0, 3, 1, 2))).view(values.dtype)


def _unpack_metadata(xp: Namespace, packing: Packing, packed: Array) -> Array:
    raw = xp.permute_dims(raw_bits(xp, packed), (0, 2, 3, 1))
    raw = xp.take(raw, constant(xp, np.argsort(METADATA_ROWS), packed), axis=2)
    raw = xp.reshape(raw, (packing.stored_tiles * TILE_ROWS, -1))
    rows = packing.weight.group[0] or packing.n
    kept = _natural(xp, packing, raw)[::rows, : packing.geometry.groups]
    return contiguous(xp, kept).view(packed.dtype)


def _unit(xp: Namespace, packing: Packing, arrays: Mapping[str, Array]) -> Array:
    """The pair of :func:`ladder.scheduler.unit.unit_for`, from the largest scale and zero."""
    assert packing.scale_dtype is not None
    scale = _largest(xp, arrays["scales"], packing.scale_dtype)
    zero = None
    if packing.zero_dtype is not None:
        zero = _largest(xp, arrays["zeros"], packing.zero_dtype)
    pair = unit_for(packing, scale, zero)
    return xp.asarray(pair, dtype=xp.float32, device=arrays["scales"].device)


def _largest(xp: Namespace, array: Array, dtype: np.dtype[Any]) -> float:
    """The largest magnitude among the finite numbers of an array of floats.

    Floats without their sign are in the order of their bits, so that no library needs to know the type.
    """
    raw = xp.reshape(raw_bits(xp, array), (-1,))
    numbers = xp.astype(raw, xp.int32) & magnitude_mask(dtype)
    finite = xp.where(numbers <= largest_finite_bits(dtype), numbers, xp.zeros_like(numbers))
    return magnitude_of(int(xp.max(finite)), dtype)


def _zero_values(xp: Namespace, packing: Packing, zeros: Array) -> Array:
    assert packing.zero_dtype is not None
    bits = lookup(xp, packing.zero_bits, xp.astype(zeros, xp.int32))
    raw = contiguous(xp, xp.astype(bits, getattr(xp, RAW[packing.zero_dtype.itemsize])))
    return raw.view(getattr(xp, packing.zero_dtype.name))


def _zero_codes(xp: Namespace, packing: Packing, zeros: Array) -> Array:
    raw = raw_bits(xp, zeros)
    codes = xp.zeros_like(raw)
    bits = packing.zero_bits
    for code in reversed(packing.element.number_codes):
        codes = xp.where(raw == int(bits[code]), xp.full_like(raw, code), codes)
    return xp.astype(codes, xp.uint8)


def _check(xp: Namespace, packing: Packing, codes: Array, metadata: Mapping[str, Any]) -> None:
    if tuple(codes.shape) != (packing.n, packing.k):
        raise PackingError(
            f"codes are {list(codes.shape)}, the packing is for {[packing.n, packing.k]}",
            at=packing.weight,
            hint="weights are [n, k]: output channels first",
        )
    wanted = {"scales": packing.scale_dtype, "zeros": packing.zero_dtype}
    shape = packing.weight.scale_shape(packing.n, packing.k)
    for name, array in metadata.items():
        if (wanted[name] is None) != (array is None):
            what = "missing" if array is None else "not part of the type"
            raise PackingError(f"{name} are {what}", at=packing.weight, hint="see TType.grouped")
        if array is not None and tuple(array.shape) != shape:
            raise PackingError(
                f"{name} are {list(array.shape)}, expected {list(shape)}",
                at=packing.weight,
                hint="a last group may be short: its count is rounded up",
            )
    if not xp.isdtype(codes.dtype, "integral"):
        raise PackingError(
            f"codes are {codes.dtype}, not integers",
            at=packing.weight,
            hint=f"one code per element, {packing.element.code_dtype}, not packed: view numbers as integers",
        )
    for code in packing.program.undefined:
        if bool(xp.any(codes == code)):
            raise PackingError(
                f"code {code} occurs, which {packing.program.form} cannot carry",
                at=packing.weight,
                hint="replace such weights before packing",
            )
