"""Groups: which elements of a weight share a scale and a zero, and what these mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ladder.checks import TEXT, accept, instance, integer, is_integer, one_of, optional, shown
from ladder.errors import ShapeError, TypeDeclarationError
from ladder.ttype.scale import ScaleType, scale_type

if TYPE_CHECKING:
    from ladder.ttype.element import TType

#: rows and columns of a group; None is the whole axis
Group = tuple[int | None, int | None]
Granularity = int | Literal["tensor", "channel"] | Group
Zero = Literal["integer", "float", "rescaled"]

ZERO = optional(one_of(("integer", "float", "rescaled")))
SECOND = optional(one_of(("float32",)))
ELEMENT = 'ladder.types["int4"], or a TType of your own'

TENSOR: Group = (None, None)
CHANNEL: Group = (1, None)


@dataclass(frozen=True, slots=True)
class GroupedType:
    """What a weight is made of: an element, and the metadata that a group of elements shares.

    With a code q, the value table v, the scale s and the zero z of its group, a weight is

    ============  ==================================  =====================================
    zero          weight                              z
    ============  ==================================  =====================================
    None          ``w = s * v[q]``
    ``integer``   ``w = s * (v[q] - v[z])``           a code of the element, uint8
    ``float``     ``w = s * (v[q] - z)``              a number in the scale's type
    ``rescaled``  ``w = s * v[q] - z``                a number in the scale's type
    ============  ==================================  =====================================

    where s is the product of the group's scale and, if there is a second level, the tensor's. An
    element by itself (``scale=None``) has weights ``w = v[q]``.

    Attributes:
        element: the number format of the codes.
        group: (rows, columns) of a group, None for the whole axis.
        scale: name of the scale type, or None for no scale.
        zero: the convention of the zero point.
        second: ``float32``, or None for a single level.
        label: a short name such as ``mxfp4``; it takes no part in equality.

    Raises:
        TypeDeclarationError: the parts do not fit each other.
    """

    element: TType
    group: Group = TENSOR
    scale: str | None = "float16"
    zero: Zero | None = None
    second: str | None = None
    label: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        from ladder.ttype.element import TType

        accept(
            self.element,
            instance(TType, ELEMENT),
            "element",
            at="GroupedType",
            error=TypeDeclarationError,
        )
        accept(self.label, TEXT, "label", at="GroupedType", error=TypeDeclarationError)
        _check_extents(self.group)
        object.__setattr__(self, "group", (_extent(self.group[0]), _extent(self.group[1])))
        if self.scale is None:
            self._check_bare()
            return
        self.element.check_scalable()
        scale = scale_type(self.scale)
        self._check_zero(scale)
        self._check_second(scale)

    def _check_zero(self, scale: ScaleType) -> None:
        """A zero follows a convention that is known; one that is a number has to fit the scale's type."""
        if not ZERO.fits(self.zero):
            raise TypeDeclarationError(
                f"unknown zero convention {shown(self.zero)}",
                at=self.element,
                hint="choose None, integer, float or rescaled",
            )
        if self.zero not in ("float", "rescaled"):
            return
        if scale.bits < 16:
            raise TypeDeclarationError(
                f"a {self.zero} zero is kept in the scale's type, and {scale} is too coarse for it",
                at=self.element,
                hint="use zero='integer', or a scale of 16 or 32 bits",
            )
        if max(-self.element.min, self.element.max) > scale.max:
            raise TypeDeclarationError(
                f"a {self.zero} zero has to hold values of {self.element}, and {scale} ends at "
                f"{scale.max:.6g}",
                at=self.element,
                hint="use zero='integer', or a wider scale type",
            )

    def _check_second(self, scale: ScaleType) -> None:
        """A second level is float32, over scales of 8 bits."""
        if not SECOND.fits(self.second):
            raise TypeDeclarationError(
                f"a second-level scale is float32, found {shown(self.second)}",
                at=self.element,
                hint="one scale per tensor costs nothing more; drop second for a single level",
            )
        if self.second is not None and self.scale != "fp8_e4m3fn":
            raise TypeDeclarationError(
                f"a second-level scale widens fp8_e4m3fn scales, found {scale} scales",
                at=self.element,
                hint="drop second, or use scale='fp8_e4m3fn'",
            )

    def _check_bare(self) -> None:
        """Without a scale there is nothing for a group to share."""
        if self.zero is not None or self.second is not None or self.group != TENSOR:
            raise TypeDeclarationError(
                "a weight without a scale has no groups, zeros or second level",
                at=self.element,
                hint="use the element itself as weight type, or give a scale",
            )

    @property
    def name(self) -> str:
        """The label, or what the type prints as."""
        return self.label or self.describe()

    @property
    def bits(self) -> int:
        """Width of a code, metadata not counted."""
        return self.element.bits

    @property
    def scale_type(self) -> ScaleType | None:
        """The scale type as a value."""
        return None if self.scale is None else scale_type(self.scale)

    @property
    def scale_dtype(self) -> np.dtype[Any] | None:
        """dtype of ``Quantized.scales``."""
        return None if self.scale is None else scale_type(self.scale).dtype

    @property
    def zero_dtype(self) -> np.dtype[Any] | None:
        """dtype of ``Quantized.zeros``: uint8 codes, or the scale's."""
        if self.zero is None:
            return None
        return np.dtype(np.uint8) if self.zero == "integer" else self.scale_dtype

    def group_extents(self, n: int, k: int) -> tuple[int, int]:
        """Rows and columns of a full group in a weight [n, k].

        Raises:
            ShapeError: an extent is not a positive integer.
        """
        n, k = (
            accept(extent, integer(1), axis, at=self, error=ShapeError, hint="weights are [n, k]")
            for axis, extent in (("n", n), ("k", k))
        )
        rows, columns = self.group
        return (n if rows is None else rows, k if columns is None else columns)

    def scale_shape(self, n: int, k: int) -> tuple[int, int]:
        """Shape of scales and zeros of a weight [n, k], short last groups included.

        Raises:
            ShapeError: an extent is not a positive integer.
        """
        rows, columns = self.group_extents(n, k)
        return (-(-int(n) // rows), -(-int(k) // columns))

    def bits_per_weight(self, n: int, k: int) -> float:
        """Bits that a weight [n, k] takes per element, metadata shared out."""
        zero_bits = (
            self.bits if self.zero == "integer" else 8 * getattr(self.zero_dtype, "itemsize", 0)
        )
        scale_bits = 8 * getattr(self.scale_dtype, "itemsize", 0)
        groups = prod(self.scale_shape(n, k))
        second = 32 if self.second else 0
        return float(self.bits + (groups * (scale_bits + zero_bits) + second) / (n * k))

    def describe(self) -> str:
        """All parts in one line: ``int4 g128 scale=float16 zero=integer``."""
        if self.scale is None:
            return self.element.name
        parts = [self.element.name, _describe_group(self.group), f"scale={self.scale}"]
        parts += [f"zero={self.zero}"] * (self.zero is not None)
        parts += [f"second={self.second}"] * (self.second is not None)
        return " ".join(parts)

    def __str__(self) -> str:
        return f"{self.label} ({self.describe()})" if self.label else self.describe()


def group_shape(granularity: Granularity) -> Group:
    """(rows, columns) of a granularity: ``128`` -> ``(1, 128)``, ``"channel"`` -> ``(1, None)``.

    Raises:
        TypeDeclarationError: it is none of the forms that :meth:`TType.grouped` lists.
    """
    named: dict[object, Group] = {"tensor": TENSOR, "channel": CHANNEL}
    if isinstance(granularity, str):
        if granularity in named:
            return named[granularity]
    elif isinstance(granularity, (tuple, list)):
        if len(granularity) == 2:
            return (_extent(granularity[0]), _extent(granularity[1]))
    elif granularity is not None:
        return (1, _extent(granularity))
    raise TypeDeclarationError(
        f"unknown granularity {shown(granularity)}",
        at="TType.grouped",
        hint="give a number of columns, 'channel', 'tensor' or (rows, columns)",
    )


def _extent(extent: object) -> int | None:
    """A plain int of whatever counts as an index, such as numpy.int64."""
    if is_integer(extent):
        return int(extent)  # type: ignore[call-overload, no-any-return]  # an integer, as just seen
    return extent  # type: ignore[return-value]  # checked, with a reason, by GroupedType


def _check_extents(group: object) -> None:
    if not isinstance(group, tuple) or len(group) != 2:
        raise TypeDeclarationError(
            f"a group is (rows, columns), found {shown(group)}",
            at="GroupedType",
            hint="TType.grouped takes the short forms: 128, 'channel', 'tensor'",
        )
    for extent, axis in zip(group, ("rows", "columns"), strict=True):
        if extent is None:
            continue
        if not integer(1).fits(extent):
            raise TypeDeclarationError(
                f"a group spans at least one of the {axis}, found {shown(extent)}",
                at="GroupedType",
                hint="None spans the whole axis; 'channel' is one scale per row",
            )


def _describe_group(group: Group) -> str:
    rows, columns = group
    if group == TENSOR:
        return "tensor"
    if rows == 1:
        return "channel" if columns is None else f"g{columns}"
    return f"g{'*' if rows is None else rows}x{'*' if columns is None else columns}"
