"""``convert``: another number type, same elements. convert(nf4 -> float16 at shared) : nf4[16, 64] -> float16[16, 64]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import ml_dtypes
import numpy as np

from ladder.errors import ScheduleError, ShapeError, TypeDeclarationError
from ladder.primitives.base import Array, Cost, NoInverse
from ladder.ttile import Device, Tile, type_bits, type_name
from ladder.ttile.tile import DType
from ladder.ttype import COMPUTE_TYPES, Exact, MayOverflow, Rounds, TType, losslessness
from ladder.ttype.arrays import integer_limits, is_integer

#: where a conversion may stand, outermost first (see the design, "Primitives and plans")
PLACEMENTS = ("offline", "source", "global", "shared", "register")

Fidelity = Literal["exact", "rounds", "may overflow"]

#: lane instructions per 8 elements of shifts, masks, conversion and arithmetic without any trick; a decode program's
#: own count replaces it
PLAIN_PIPES = (("alu", 14.0), ("fma", 12.0), ("xu", 8.0))
#: packed conversions between hardware types do two elements at once
HARDWARE_PIPES = (("alu", 4.0),)

#: NumPy types of the hardware types that a tile may name
NUMPY_TYPES: dict[str, Any] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "fp8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
    "int32": np.int32,
    "int8": np.int8,
    "uint8": np.uint8,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
}

_COMPUTE_NAMES = frozenset(compute.name for compute in COMPUTE_TYPES)
_VERDICTS: dict[type, Fidelity] = {
    Exact: "exact",
    Rounds: "rounds",
    MayOverflow: "may overflow",
}


def element_of(dtype: DType) -> DType:
    """The element of a grouped type, every other type itself."""
    return getattr(dtype, "element", dtype)


def has_codes(dtype: DType) -> bool:
    """Whether arrays of this type hold codes (an element type) rather than numbers (a compute type)."""
    return hasattr(element_of(dtype), "decode")


def numpy_type(dtype: DType) -> np.dtype[Any]:
    """NumPy type of the numbers of a compute or hardware type.

    Raises:
        TypeDeclarationError: the type has no NumPy form.
    """
    found: Any = getattr(dtype, "dtype", None) or NUMPY_TYPES.get(type_name(dtype))
    if found is None:
        raise TypeDeclarationError(
            f"{type_name(dtype)} is no type that numbers can be computed in",
            at="convert",
            hint="one of " + ", ".join(NUMPY_TYPES),
        )
    form: np.dtype[Any] = np.dtype(found)
    return form


def numbers(array: Array, dtype: DType) -> Array:
    """The numbers of an array of a type: codes decoded to float64, numbers as they are."""
    return np.asarray(element_of(dtype).decode(array)) if has_codes(dtype) else array


def store(values: Array, dtype: DType) -> Array:
    """Numbers as a type: encoded to codes, or rounded to the NumPy type (a float to an integer type to nearest)."""
    if has_codes(dtype):
        return np.asarray(element_of(dtype).encode(values))
    target = numpy_type(dtype)
    if not is_integer(target):
        return values.astype(target)
    limits = integer_limits(target)
    return np.clip(np.rint(values.astype(np.float64)), limits.min, limits.max).astype(target)


def fidelity(source: DType, target: DType) -> Fidelity:
    """Whether ``target`` holds every finite number of ``source``: tried for all of them up to 16 bits.

    Wider sources are judged by precision and range. The answer is about the decoded operand; group scales are
    applied elsewhere. For an element and a compute type it is that of :func:`ladder.ttype.losslessness`.
    """
    if type_name(source) == type_name(target):
        return "exact"
    element = element_of(source)
    if isinstance(element, TType) and type_name(target) in _COMPUTE_NAMES:
        return _VERDICTS[type(losslessness(element, type_name(target)))]
    low, high = _range(target)
    if type_bits(source) > 16:
        least, most = _range(source)
        if least < low or most > high:
            return "may overflow"
        return "exact" if not has_codes(target) and _finer(target, source) else "rounds"
    values = _all_numbers(source)
    if values.min() < low or values.max() > high:
        return "may overflow"
    kept = numbers(store(values, target), target).astype(np.float64)
    return "exact" if np.array_equal(kept, values) else "rounds"


def _all_numbers(dtype: DType) -> Array:
    """Every finite number of a type of at most 16 bits, float64."""
    if has_codes(dtype):
        values = np.asarray(element_of(dtype).values, dtype=np.float64)
    else:
        form = numpy_type(dtype)
        patterns = np.arange(1 << 8 * form.itemsize).astype(f"u{form.itemsize}")
        with np.errstate(invalid="ignore"):  # signalling NaNs are among the patterns
            values = patterns.view(form).astype(np.float64)
    return values[np.isfinite(values)]


def _range(dtype: DType) -> tuple[float, float]:
    """Least and largest finite number."""
    if has_codes(dtype):
        values = _all_numbers(dtype)
        return float(values.min()), float(values.max())
    limits = _limits(numpy_type(dtype))
    return float(limits.min), float(limits.max)


def _limits(form: np.dtype[Any]) -> Any:
    finfo: Any = ml_dtypes.finfo  # it carries no types
    return integer_limits(form) if is_integer(form) else finfo(form)


def _finer(target: DType, source: DType) -> bool:
    """Whether ``target`` has the precision of ``source`` and reaches as far down."""
    pairs = []
    for dtype in (source, target):
        form = numpy_type(dtype)
        limits = _limits(form)
        whole = is_integer(form)
        bits = limits.bits - (limits.min < 0) if whole else limits.nmant + 1
        pairs.append((bits, 1.0 if whole else float(limits.smallest_subnormal)))
    return pairs[0][0] <= pairs[1][0] and pairs[1][1] <= pairs[0][1]


@dataclass(frozen=True, slots=True)
class Convert:
    """Elements of one type as elements of another, of the same value where the target has it.

    Attributes:
        source: type before.
        target: type after.
        level: where it happens, one of :data:`PLACEMENTS`.
        pipes: ``(pipe, lane instructions per 8 elements)``, for example of a decode program; empty means a plain
            conversion.

    Raises:
        ScheduleError: the placement is unknown.
    """

    source: DType
    target: DType
    level: str = "register"
    pipes: tuple[tuple[str, float], ...] = ()
    name: ClassVar[str] = "convert"

    def __post_init__(self) -> None:
        if self.level not in PLACEMENTS:
            raise ScheduleError(
                f"no placement {self.level!r}", at=self, hint="one of " + ", ".join(PLACEMENTS)
            )

    @property
    def fidelity(self) -> Fidelity:
        """Whether the target holds every number of the source, see :func:`fidelity`."""
        return fidelity(self.source, self.target)

    def result(self, tile: Tile) -> Tile:
        """The same box in the other type.

        Raises:
            ShapeError: the tile holds another type.
        """
        if type_name(tile.dtype) != type_name(self.source):
            raise ShapeError(
                f"the tile holds {type_name(tile.dtype)}, not {type_name(self.source)}",
                at=f"{self} on {tile}",
            )
        return tile.with_(dtype=self.target)

    def evaluate(self, array: Array) -> Array:
        """Codes or numbers of the source to codes or numbers of the target."""
        with np.errstate(over="ignore"):
            return store(numbers(array, self.source), self.target)

    def cost(self, tile: Tile, device: Device) -> Cost:  # noqa: ARG002 - the same on every device
        """Its instructions; in memory also the read of the source and the write of the target."""
        plain = PLAIN_PIPES if has_codes(self.source) else HARDWARE_PIPES
        work = tuple(
            sorted((pipe, count * tile.elements / 8) for pipe, count in self.pipes or plain)
        )
        if self.level == "offline" or type_name(self.source) == type_name(self.target):
            return Cost()  # done before, or the same bits read in another way
        through = {"source": "dram", "global": "dram"}.get(self.level, "shared")
        passed = 0 if self.level == "register" else tile.nbytes + self.result(tile).nbytes
        return Cost(through, passed, work)

    def inverse(self, tile: Tile) -> Convert | NoInverse:  # noqa: ARG002 - a question about the types
        """The conversion back, where every code comes back as itself."""
        if self.fidelity != "exact":
            return NoInverse(
                f"{type_name(self.target)} does not hold every number of "
                f"{type_name(self.source)} ({self.fidelity})"
            )
        back = Convert(self.target, self.source, self.level)
        if has_codes(self.source):
            codes = np.arange(1 << type_bits(self.source), dtype=element_of(self.source).code_dtype)
            codes = codes[np.isfinite(np.asarray(element_of(self.source).values, np.float64))]
            lost = codes[back.evaluate(self.evaluate(codes)) != codes]
            if lost.size:
                return NoInverse(f"codes {lost.tolist()} share their number with another code")
        return back

    def __str__(self) -> str:
        return f"convert({type_name(self.source)} -> {type_name(self.target)} at {self.level})"
