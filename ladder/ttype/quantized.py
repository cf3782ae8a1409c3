"""A quantised weight: codes and metadata as separate arrays, and what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladder.checks import shown
from ladder.errors import ShapeError, TypeDeclarationError
from ladder.ttype.arrays import Array, Codes, Values, as_array, as_values, read_only, where
from ladder.ttype.compute import ComputeType
from ladder.ttype.element import TType
from ladder.ttype.group import GroupedType
from ladder.ttype.resolve import weight_type

#: elements that NumPy handles at once, so that float64 temporaries stay in the tens of megabytes
CHUNK_ELEMENTS = 1 << 20

#: codes that are taken as they were written, see :meth:`Quantized.restored`
LARGE_BYTES = 1 << 20


class Quantized:
    """A weight [N, K] in a grouped type; immutable, its arrays are read-only.

    Args:
        type: a grouped type, or an element for a weight without scales (also by name).
        codes: integers [N, K], each a code of the element; NaN codes and unused ones are refused.
        scales: ``type.scale_shape(N, K)``, finite. Kept in the scale type; other float dtypes are cast,
            to nearest for float16, bfloat16 and float32, and only if exact for the 8-bit types.
        zeros: of the same shape: codes for ``integer``, else finite numbers, cast like scales.
        global_scale: the scale of the whole tensor, for a type with a second level.

    Raises:
        TypeDeclarationError: an array does not hold what the type asks for.
        ShapeError: an array has another shape than the type asks for.
    """

    def __init__(
        self,
        type: GroupedType | TType | ComputeType | str,  # noqa: A002  # as the attribute is called
        codes: ArrayLike,
        scales: ArrayLike | None = None,
        zeros: ArrayLike | None = None,
        global_scale: ArrayLike | None = None,
    ) -> None:
        self._type = weight_type(type)
        self._codes = _codes(self._type, codes)
        self._scales = _scales(self._type, scales, self.shape)
        self._zeros = _zeros(self._type, zeros, self.shape)
        self._global_scale = _global_scale(self._type, global_scale)

    @classmethod
    def restored(
        cls,
        type: GroupedType,  # noqa: A002  # as the attribute is called
        codes: Array | None,
        scales: Array | None = None,
        zeros: Array | None = None,
        global_scale: ArrayLike | None = None,
    ) -> Quantized:
        """A weight from the arrays of another, which were written and read: shapes and dtypes are checked, large codes are not read.

        Raises:
            TypeDeclarationError: an array does not have the dtype that the type asks for.
            ShapeError: it has another shape.
        """
        if codes is None or codes.nbytes < LARGE_BYTES:
            return cls(type, () if codes is None else codes, scales, zeros, global_scale)
        if codes.ndim != 2 or codes.dtype != type.element.code_dtype:
            raise TypeDeclarationError(
                f"codes are {codes.dtype}{list(codes.shape)}",
                at=type,
                hint=f"codes are {type.element.code_dtype}[N, K]",
            )
        kept = codes.view()
        kept.flags.writeable = False
        n, k = kept.shape
        found = cls.__new__(cls)
        vars(found).update(
            _type=type,
            _codes=kept,
            _scales=_scales(type, scales, (n, k)),
            _zeros=_zeros(type, zeros, (n, k)),
            _global_scale=_global_scale(type, global_scale),
        )
        return found

    @property
    def type(self) -> GroupedType:
        """What the arrays mean."""
        return self._type

    @property
    def codes(self) -> Codes:
        """[N, K], uint8; uint16 for a dense type."""
        return self._codes

    @property
    def scales(self) -> Array | None:
        """[ceil(N/rows), ceil(K/columns)] in the scale's dtype, None for a bare element."""
        return self._scales

    @property
    def zeros(self) -> Array | None:
        """As scales: uint8 codes or numbers, None without a zero."""
        return self._zeros

    @property
    def global_scale(self) -> np.float32 | None:
        """The second-level scale."""
        return self._global_scale

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        n, k = self._codes.shape
        return n, k

    @property
    def nbytes(self) -> int:
        """Bytes that codes (tightly packed) and metadata take."""
        return -(-round(self.type.bits_per_weight(*self.shape) * self._codes.size) // 8)

    def dequantize(self) -> Values:
        """The weights, float64[N, K], by the type's own convention (see :class:`GroupedType`).

        Every operation is one float64 operation and none merges scale and zero beforehand, so a weight
        that equals its zero is exactly 0.0. Products of catalogue elements and scales are exact.
        """
        weights = np.empty(self.shape, np.float64)
        for rows in row_chunks(self.shape):
            weights[rows] = self._rows(rows)
        return weights

    def _rows(self, rows: slice) -> Values:
        values = self.type.element.values[self._codes[rows]]
        if self._scales is None:
            return values
        scales = self._spread(self._scales, rows)
        if self._global_scale is not None:
            scales *= np.float64(self._global_scale)
        zeros = None if self._zeros is None else self._spread(self._zero_values, rows)
        with np.errstate(invalid="ignore"):  # an infinite code times a zero scale is NaN by IEEE
            if zeros is None:
                return scales * values
            if self.type.zero == "rescaled":
                return scales * values - zeros
            return scales * (values - zeros)

    @property
    def _zero_values(self) -> Array:
        assert self._zeros is not None
        return self.type.element.values[self._zeros] if self.type.zero == "integer" else self._zeros

    def _spread(self, metadata: Array, rows: slice) -> Values:
        """One entry per element for the rows of a chunk, float64."""
        return spread(metadata, self.type.group_extents(*self.shape), self.shape, rows)

    def __eq__(self, other: object) -> bool:
        """Same type and the same bits everywhere."""
        if not isinstance(other, Quantized):
            return NotImplemented
        pairs = zip(self._arrays, other._arrays, strict=True)
        return self.type == other.type and all(_same_bits(a, b) for a, b in pairs)

    def __hash__(self) -> int:
        return hash((self.type, self.shape))

    def __reduce__(self) -> tuple[object, ...]:
        return (Quantized, (self.type, *self._arrays))

    @property
    def _arrays(self) -> tuple[Any, ...]:
        return (self._codes, self._scales, self._zeros, self._global_scale)

    def __repr__(self) -> str:
        n, k = self.shape
        per_weight = self.type.bits_per_weight(n, k)
        return f"Quantized({self.type}, [{n}, {k}], {per_weight:.4g} bits per weight)"


def row_chunks(shape: tuple[int, int]) -> Iterator[slice]:
    """Slices of rows that hold about CHUNK_ELEMENTS elements each."""
    n, k = shape
    step = max(1, CHUNK_ELEMENTS // k)
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def spread(
    metadata: Array, extents: tuple[int, int], shape: tuple[int, int], rows: slice
) -> Values:
    """Metadata of groups [N/rows, K/columns] -> one float64 per element [rows of the chunk, K]."""
    group_rows, group_columns = extents
    row = np.arange(rows.start, rows.stop) // group_rows
    column = np.arange(shape[1]) // group_columns
    values: Values = metadata[row].astype(np.float64)[:, column]
    return values


def _same_bits(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return np.shape(one) == np.shape(other) and bool(np.array_equal(_bytes(one), _bytes(other)))


def _bytes(array: Any) -> NDArray[np.uint8]:
    return np.atleast_1d(np.ascontiguousarray(array)).view(np.uint8)


def _codes(wt: GroupedType, codes: ArrayLike) -> Codes:
    given = as_array(codes, at=wt)
    if given.ndim != 2 or 0 in given.shape:
        raise ShapeError(
            f"codes are [N, K] with N, K >= 1, found shape {list(given.shape)}",
            at=wt,
            hint="one code per element, not packed; a stack of weights is quantised one by one",
        )
    return read_only(wt.element.check_codes(given, numbers_only=True))


def _scales(wt: GroupedType, scales: ArrayLike | None, shape: tuple[int, int]) -> Array | None:
    if wt.scale_dtype is None or scales is None:
        _check_presence("scales", wt, scales, wanted=wt.scale_dtype is not None)
        return None
    return _metadata("scales", wt, scales, wt.scale_dtype, shape)


def _zeros(wt: GroupedType, zeros: ArrayLike | None, shape: tuple[int, int]) -> Array | None:
    if wt.zero_dtype is None or zeros is None:
        _check_presence("zeros", wt, zeros, wanted=wt.zero_dtype is not None)
        return None
    if wt.zero != "integer":
        return _metadata("zeros", wt, zeros, wt.zero_dtype, shape)
    given = as_array(zeros, at=wt)
    _check_shape("zeros", wt, given, shape)
    checked = wt.element.check_codes(given, numbers_only=True)
    infinite = np.isinf(wt.element.values[checked])
    if infinite.any():
        raise TypeDeclarationError(
            f"infinite zeros in {where(infinite)}", at=wt, hint="give codes of finite values"
        )
    return read_only(checked)


def _global_scale(wt: GroupedType, scale: ArrayLike | None) -> np.float32 | None:
    if wt.second is None or scale is None:
        _check_presence("global_scale", wt, scale, wanted=wt.second is not None)
        return None
    given = as_values(scale, at=f"global_scale of {wt}")
    if given.size != 1:
        raise ShapeError(
            f"global_scale is one number, found {list(given.shape)}",
            at=wt,
            hint="scales of groups are given as scales",
        )
    with np.errstate(over="ignore"):
        single: np.float32 = np.float32(float(given.item()))
    if not np.isfinite(single):
        raise TypeDeclarationError(
            f"global_scale is {shown(scale)} and has to be finite in float32",
            at=wt,
            hint="look at the weights that it was made from",
        )
    return single


def _check_presence(what: str, wt: GroupedType, given: object, *, wanted: bool) -> None:
    if wanted:
        raise TypeDeclarationError(f"{what} are missing", at=wt, hint="the type asks for them")
    if given is not None:
        raise TypeDeclarationError(
            f"{what} were given, but the type has none", at=wt, hint="see TType.grouped"
        )


def _check_shape(what: str, wt: GroupedType, given: Array, shape: tuple[int, int]) -> None:
    wanted = wt.scale_shape(*shape)
    if given.shape != wanted:
        raise ShapeError(
            f"{what} of a weight {list(shape)} are {list(wanted)}, found {list(given.shape)}",
            at=wt,
            hint="a last group may be short: its count is rounded up",
        )


def _metadata(
    what: str, wt: GroupedType, given: ArrayLike, dtype: np.dtype[Any], shape: tuple[int, int]
) -> Array:
    """Scales or float zeros in their dtype, finite and of the right shape."""
    array = as_array(given, at=wt)
    _check_shape(what, wt, array, shape)
    if array.dtype.kind in "cOSU":  # a cast would drop imaginary parts, or read text as numbers
        raise TypeDeclarationError(
            f"{what} are real numbers, found dtype {array.dtype}",
            at=wt,
            hint="pass a float array; ml_dtypes' dtypes are welcome",
        )
    if dtype.itemsize == 1 and array.dtype.kind in "iub":
        raise TypeDeclarationError(
            f"{what} are numbers in {wt.scale}, found dtype {array.dtype}: bytes or numbers?",
            at=wt,
            hint=f"for bytes of a file pass {what}.view(ml_dtypes.{dtype.name}), for numbers a float dtype",
        )
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    numbers = cast.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise TypeDeclarationError(
            f"{what} are not finite in {wt.scale}: {where(~np.isfinite(numbers))}",
            at=wt,
            hint="a wider scale type, or a look at the weights they were made from",
        )
    inexact = numbers != array.astype(np.float64)
    if dtype.itemsize == 1 and inexact.any():
        kind = "no powers of two" if wt.scale == "e8m0" else "not exact"
        raise TypeDeclarationError(
            f"{what} are {kind} in {wt.scale}: {where(inexact)}",
            at=wt,
            hint=f"8-bit {what} are not rounded silently; cast to ml_dtypes.{dtype.name} on purpose",
        )
    return read_only(cast)
