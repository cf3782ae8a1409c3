"""Packing: how a quantised weight lies in memory, as a value of its own.

A packing is chosen from (weight type, compute type, device features, N, K) before any plan; every plan of an operator
reads the same bytes. It is the inverse of what the consuming fragment and the decode program want:

* ``weight`` uint32 ``[bands, blocks, 4, atoms, 32 * words]``: one *atom* is 16 rows x ``atom_k`` columns as a warp decodes
  it, and a *band* is the 64 rows that a warpgroup multiplies: what a band needs of one block of K is one run of bytes, for
  one bulk copy. Inside an atom, word ``w`` of lane ``l`` stands in vectors of 4, 2 or 1 words, ``[vector][lane][word]``, so
  that a lane reads its words with the widest aligned loads and a warp reads consecutive bytes.
* ``scales`` and ``zeros`` ``[bands, groups, 4, 16]``: the rows of a tile as (g, half) with row = g + 8*half, so that one
  load brings both rows that a lane's accumulators hold.
* ``unit`` float32 ``[2]`` where the type has scales that registers may apply: 2^-e and 2^e, see :mod:`ladder.scheduler.unit`.
* ``global_scale`` float32 ``[1]`` where the type has a second-level scale.
* ``table`` uint32 ``[entries]`` where the decode program looks codes up.

Rows stand in the order of :mod:`ladder.scheduler.row_order` and are padded to 64, columns as :mod:`ladder.scheduler.geometry` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ladder.decode.lanes import LANE_FORMATS
from ladder.decode.program import DecodeProgram
from ladder.decode.reference import pack_atom, unpack_atom
from ladder.scheduler.geometry import KGeometry, counted, round_up, vector_widths
from ladder.scheduler.packing_check import check_weights
from ladder.scheduler.packing_zeros import zero_codes, zero_values
from ladder.scheduler.row_order import Places, places
from ladder.scheduler.unit import unit_of
from ladder.ttype import GroupedType, Quantized, TType, scale_type
from ladder.ttype.arrays import Codes

if TYPE_CHECKING:
    from ladder.scheduler.readings import Readings

#: rows of a tile: the M extent of mma.m16n8k16
TILE_ROWS = 16

#: tiles of a band: the M extent of wgmma.m64
BAND_TILES = 4

#: raised whenever the same weights would get other bytes
PACKING_VERSION = 4

#: rows of a tile as they stand in the metadata: (g, half) with row = g + 8 * half
METADATA_ROWS = np.arange(TILE_ROWS).reshape(2, 8).T.reshape(-1)


@dataclass(frozen=True)
class Packing:
    """See the module's docstring.

    Attributes:
        weight: the number format.
        n: rows (output channels) of the weight.
        k: columns.
        program: how one atom is decoded; its slots say where each bit lies.
        version: :data:`PACKING_VERSION` when it was made.
        order: in which order rows are stored, "natural" or "paired" (see :mod:`ladder.scheduler.row_order`).
    """

    weight: GroupedType
    n: int
    k: int
    program: DecodeProgram
    version: int = PACKING_VERSION
    order: str = "natural"

    @property
    def element(self) -> TType:
        """The element type of the codes."""
        return self.weight.element

    @cached_property
    def geometry(self) -> KGeometry:
        """How K is cut into groups and blocks."""
        program = self.program
        group = self.weight.group[1]
        return KGeometry.of(self.k, group, program.atom_k, program.bits, program.step_k)

    @cached_property
    def step_k(self) -> int:
        """Columns of one step of the product instruction."""
        return self.program.step_k

    @cached_property
    def block_steps(self) -> int:
        """Steps of the product instruction in one block of K."""
        return self.geometry.block_k // self.step_k

    @cached_property
    def row_tiles(self) -> int:
        """Tiles of 16 rows that hold some of the weight."""
        return round_up(self.n, TILE_ROWS) // TILE_ROWS

    @cached_property
    def row_places(self) -> Places:
        """The stored row of each row of the weight, as an index."""
        return places(self.order, self.n)

    @property
    def bands(self) -> int:
        """Bands of :data:`BAND_TILES` tiles."""
        return -(-self.row_tiles // BAND_TILES)

    @property
    def stored_tiles(self) -> int:
        """Tiles that lie in memory, those that only fill the last band included."""
        return self.bands * BAND_TILES

    @cached_property
    def atoms_per_block(self) -> int:
        """Atoms of one row tile in one block of K."""
        return self.geometry.block_k // self.program.atom_k

    @property
    def atoms(self) -> int:
        """Atoms along K."""
        return self.geometry.padded_k // self.program.atom_k

    @cached_property
    def scale_dtype(self) -> np.dtype[Any] | None:
        """dtype of the packed scales, or None where the type has none."""
        return None if self.weight.scale is None else scale_type(self.weight.scale).dtype

    @cached_property
    def zero_dtype(self) -> np.dtype[Any] | None:
        """dtype of the packed zeros: integer zeros become the value of their code, in float16 where that is exact."""
        if self.weight.zero is None:
            return None
        if self.weight.zero != "integer":
            return self.scale_dtype
        values = self.element.values
        finite = values[np.isfinite(values)]
        exact = bool(np.all(finite.astype(np.float16).astype(np.float64) == finite))
        return np.dtype(np.float16 if exact else np.float32)

    @cached_property
    def zero_bits(self) -> NDArray[Any]:
        """Integer zeros: the bits of the packed zero for every code, signed integers ``[2**bits]``; 0 for codes of no number."""
        assert self.zero_dtype is not None
        values = self.element.values
        numbers = np.where(np.isfinite(values), values, 0.0).astype(self.zero_dtype)
        return numbers.view(f"int{8 * self.zero_dtype.itemsize}")

    @property
    def has_unit(self) -> bool:
        """Whether decoded weights may be scaled in registers: there are scales, and lanes that hold scaled values."""
        return self.scale_dtype is not None and self.program.compute in LANE_FORMATS

    @property
    def has_global_scale(self) -> bool:
        """Whether the tensor has a second-level scale."""
        return self.weight.second is not None

    @property
    def atom_words(self) -> int:
        """32-bit words of an atom, all lanes together."""
        return 32 * self.program.words

    @property
    def block_words(self) -> int:
        """32-bit words of one row tile in one block of K."""
        return self.atoms_per_block * self.atom_words

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name -> (shape, dtype name) of every packed array."""
        arrays: dict[str, tuple[tuple[int, ...], str]] = {
            "weight": (
                (
                    self.bands,
                    self.geometry.blocks,
                    BAND_TILES,
                    self.atoms_per_block,
                    self.atom_words,
                ),
                "uint32",
            )
        }
        metadata = (self.bands, self.geometry.padded_groups, BAND_TILES, TILE_ROWS)
        if self.scale_dtype is not None:
            arrays["scales"] = (metadata, self.scale_dtype.name)
        if self.has_unit:
            arrays["unit"] = ((2,), "float32")
        if self.zero_dtype is not None:
            arrays["zeros"] = (metadata, self.zero_dtype.name)
        if self.has_global_scale:
            arrays["global_scale"] = ((1,), "float32")
        if self.program.table is not None:
            arrays["table"] = ((len(self.program.table.entries),), "uint32")
        return arrays

    @cached_property
    def one_class(self) -> Packing:
        """The same bytes, read by a program with one accumulator class (:mod:`ladder.decode.single`); self where there is none."""
        from ladder.decode.single import one_class

        program = one_class(self.element, self.program)
        return self if program in (None, self.program) else replace(self, program=program)

    @cached_property
    def in_registers(self) -> Packing | None:
        """The same bytes, read by a program that looks codes up in registers; None where none does (:mod:`ladder.decode.tables`)."""
        from ladder.decode.tables import in_registers

        program = in_registers(self.element, self.program)
        return None if program is None else replace(self, program=program)

    @cached_property
    def readings(self) -> Readings:
        """The same bytes, read without what a kernel does elsewhere (:mod:`ladder.scheduler.readings`)."""
        from ladder.scheduler.readings import Readings

        return Readings(self)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all packed arrays."""
        return sum(
            int(np.prod(shape)) * np.dtype(getattr(ml_dtypes, name, name)).itemsize
            for shape, name in self.shapes().values()
        )

    # -- packing ------------------------------------------------------------------------------------------------

    @cached_property
    def word_order(self) -> NDArray[np.intp]:
        """Position in an atom's memory -> flat index into ``[words, 32]``."""
        order: list[NDArray[np.intp]] = []
        first, lanes = 0, np.arange(32)
        for width in vector_widths(self.program.words):
            words = first + np.arange(width)
            order.append((words[None, :] * 32 + lanes[:, None]).reshape(-1))
            first += width
        return np.concatenate(order)

    @cached_property
    def pad_code(self) -> int:
        """Code that stands where no weight is: the defined one of smallest magnitude."""
        magnitude = np.abs(self.element.values)
        magnitude[~np.isfinite(magnitude)] = np.inf
        magnitude[list(self.program.undefined)] = np.inf
        return int(np.argmin(magnitude))

    def pack(self, weights: Quantized) -> dict[str, NDArray[Any]]:
        """Pack quantised weights ``[n, k]`` into the arrays of :meth:`shapes`.

        Raises:
            PackingError: the weights have another type or shape, or hold codes that this packing's decode cannot carry.
        """
        from ladder.scheduler.packing_metadata import pack_metadata

        check_weights(self, weights)
        tiles, atom_k, cut = self.stored_tiles, self.program.atom_k, self.geometry
        codes = np.full((tiles * TILE_ROWS, cut.padded_k), self.pad_code, weights.codes.dtype)
        codes[self.row_places] = self._pad_groups(weights.codes, self.pad_code)
        packed = np.empty((tiles, self.atoms, self.atom_words), np.uint32)
        per_tile = codes.reshape(tiles, TILE_ROWS, self.atoms, atom_k)
        chunk = max(1, (1 << 22) // (TILE_ROWS * cut.padded_k))
        for first in range(0, tiles, chunk):
            atoms = per_tile[first : first + chunk].transpose(0, 2, 1, 3)
            words = pack_atom(self.program, np.ascontiguousarray(atoms))
            packed[first : first + chunk] = words.reshape(*words.shape[:2], -1)[
                ..., self.word_order
            ]
        banded = packed.reshape(self.bands, BAND_TILES, cut.blocks, self.atoms_per_block, -1)
        arrays: dict[str, NDArray[Any]] = {
            "weight": np.ascontiguousarray(banded.transpose(0, 2, 1, 3, 4))
        }
        if self.scale_dtype is not None and weights.scales is not None:
            arrays["scales"] = pack_metadata(self, weights.scales, self.scale_dtype)
        if self.zero_dtype is not None:
            arrays["zeros"] = pack_metadata(self, zero_values(self, weights), self.zero_dtype)
        if self.has_unit:
            arrays["unit"] = unit_of(self, arrays["scales"], arrays.get("zeros"))
        if self.has_global_scale:
            arrays["global_scale"] = np.asarray([weights.global_scale], np.float32)
        if self.program.table is not None:
            arrays["table"] = np.asarray(self.program.table.entries, np.uint32)
        return arrays

    def unpack(self, arrays: Mapping[str, NDArray[Any]]) -> Quantized:
        """The inverse of :meth:`pack`: ``unpack(pack(q)) == q``.

        Raises:
            PackingError: an array is missing, or has another shape or type than the packing says.
        """
        from ladder.scheduler.packing_arrays import check_packed
        from ladder.scheduler.packing_metadata import unpack_metadata

        check_packed(self, arrays, exact=True)
        atoms = unpack_atom(self.program, self.words_of(self.weight_by_tile(arrays["weight"])))
        codes = atoms.transpose(0, 2, 1, 3).reshape(-1, self.geometry.padded_k)[self.row_places]
        fields: dict[str, Any] = {"codes": self._drop_padding(codes)}
        if self.scale_dtype is not None:
            fields["scales"] = unpack_metadata(self, arrays["scales"])
        if self.zero_dtype is not None:
            fields["zeros"] = zero_codes(self, unpack_metadata(self, arrays["zeros"]))
        if self.has_global_scale:
            fields["global_scale"] = float(arrays["global_scale"][0])
        return Quantized(self.weight, **fields)

    def weight_by_tile(self, weight: NDArray[Any]) -> NDArray[Any]:
        """Packed words as they lie in memory -> ``[stored_tiles, atoms, 32 * words]``."""
        tiles: NDArray[Any] = weight.transpose(0, 2, 1, 3, 4)
        return tiles.reshape(self.stored_tiles, self.atoms, self.atom_words)

    def metadata_by_tile(self, packed: NDArray[Any]) -> NDArray[Any]:
        """Packed scales or zeros as they lie in memory -> ``[stored_tiles, padded_groups, 16]``."""
        tiles: NDArray[Any] = packed.transpose(0, 2, 1, 3)
        return tiles.reshape(self.stored_tiles, -1, TILE_ROWS)

    def words_of(self, weight: NDArray[Any]) -> NDArray[np.uint32]:
        """Packed words in the order of memory ``[..., 32 * words]`` -> by word and lane ``[..., words, 32]``."""
        words = np.empty(weight.shape, np.uint32)
        words[..., self.word_order] = weight
        return words.reshape(*weight.shape[:-1], self.program.words, 32)

    def _pad_groups(self, codes: Codes, fill: int) -> Codes:
        """Codes ``[n, k]`` -> ``[n, padded_k]``: every group padded, then the last block."""
        cut = self.geometry
        spread = np.full((codes.shape[0], cut.padded_k), fill, codes.dtype)
        if cut.is_contiguous:
            spread[:, : cut.k] = codes
            return spread
        for index in range(cut.groups):
            part = codes[:, index * cut.group : (index + 1) * cut.group]
            start = index * cut.padded_group
            spread[:, start : start + part.shape[1]] = part
        return spread

    def _drop_padding(self, codes: Codes) -> Codes:
        cut = self.geometry
        if cut.is_contiguous:
            return np.ascontiguousarray(codes[:, : cut.k])
        kept = codes[:, : cut.groups * cut.padded_group]
        kept = kept.reshape(len(codes), cut.groups, cut.padded_group)[:, :, : cut.group]
        return np.ascontiguousarray(kept.reshape(len(codes), -1)[:, : cut.k])

    def pack_arrays(self, codes: Any, **metadata: Any) -> dict[str, Any]:
        """:meth:`pack` for arrays of torch, CuPy or another library, on their device; see :mod:`.packing_arrays`."""
        from ladder.scheduler.packing_arrays import known_metadata, pack_arrays

        return pack_arrays(self, codes, **known_metadata(metadata))

    def unpack_arrays(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """:meth:`unpack` for arrays of another library: the parts of a Quantized by name."""
        from ladder.scheduler.packing_arrays import unpack_arrays

        return unpack_arrays(self, arrays)

    def to_json(self) -> str:
        """Stable text that :meth:`from_json` reads back."""
        from ladder.scheduler.serial import dump_packing

        return dump_packing(self)

    @classmethod
    def from_json(cls, text: str) -> Packing:
        """Read what :meth:`to_json` wrote.

        Raises:
            PlanError: the text is no packing, or of another version.
        """
        from ladder.scheduler.serial import load_packing

        return load_packing(text)

    @property
    def title(self) -> str:
        """What is packed, in one line."""
        return f"packing v{self.version} of {self.weight}[{self.n}, {self.k}] for {self.program.compute}"

    def __str__(self) -> str:
        cut, program = self.geometry, self.program
        lines = [
            self.title,
            f"  atom     16 x {program.atom_k}, {program.words} words a lane, {program.form}",
            (
                f"  k        {counted(cut.groups, 'group')} of {cut.group} padded to {cut.padded_group},"
                f" {counted(cut.blocks, 'block')} of {cut.block_k}"
            ),
        ]
        if self.order != "natural":
            lines.append(f"  rows     {self.order}: row g of a tile is the gate of row g + 8")
        for name, (shape, dtype) in self.shapes().items():
            lines.append(f"  {name:<8} {dtype}{list(shape)}")
        return "\n".join(lines)
