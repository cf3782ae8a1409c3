"""Extents of tensors: whole numbers, or sums of products of symbols such as ``batch * sequence``.

A dynamic axis of an imported model stays a symbol, so that one graph serves every batch and every sequence. Sums and
products are all that shapes of models need (a concatenation adds, a flattening multiplies); they are kept in one normal
form, so that equal extents are equal values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Union

from ladder.errors import ShapeError

#: what each symbol is when a graph runs
Sizes = Mapping[str, int]
#: a product of symbols, sorted
Monomial = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Symbolic:
    """A sum of products of symbols that is no plain number.

    Attributes:
        terms: ``(symbols of a product, coefficient)``, sorted by symbols, no coefficient 0.
    """

    terms: tuple[tuple[Monomial, int], ...]

    @property
    def symbols(self) -> frozenset[str]:
        """Names of all symbols."""
        return frozenset(name for monomial, _ in self.terms for name in monomial)

    def __add__(self, other: Extent) -> Extent:
        return _normal([*self.terms, *_terms(other)])

    def __radd__(self, other: int) -> Extent:
        return self + other

    def __sub__(self, other: Extent) -> Extent:
        return self + times(other, -1)

    def __rsub__(self, other: int) -> Extent:
        return times(self, -1) + other

    def __mul__(self, other: Extent) -> Extent:
        return _normal(
            (tuple(sorted(a + b)), x * y) for a, x in self.terms for b, y in _terms(other)
        )

    def __rmul__(self, other: int) -> Extent:
        return self * other

    def __str__(self) -> str:
        words = [
            "*".join([*([str(factor)] if factor != 1 or not names else []), *names])
            for names, factor in sorted(self.terms, key=lambda term: (-len(term[0]), term[0]))
        ]
        return "+".join(words).replace("+-", "-")

    def __repr__(self) -> str:
        return str(self)


Extent = Union[int, Symbolic]
Shape = tuple[Extent, ...]


def symbol(name: str) -> Symbolic:
    """The extent of a dynamic axis."""
    return Symbolic((((name,), 1),))


def times(one: Extent, other: Extent) -> Extent:
    """The product, whichever of the two is symbolic."""
    return one * other


def product(extents: Iterable[Extent]) -> Extent:
    """The product of all extents: elements of a shape."""
    result: Extent = 1
    for extent in extents:
        result = times(result, extent)
    return result


def divided(whole: Extent, part: Extent) -> Extent | None:
    """``whole / part`` where it is exact for every value of the symbols, else None.

    The divisor is a number or a single product; that is all that ``-1`` in a reshape needs.
    """
    if whole == 0 and part != 0:
        return 0
    divisor = _terms(part)
    if len(divisor) != 1:
        return 1 if whole == part else None
    names, factor = divisor[0]
    result: list[tuple[Monomial, int]] = []
    for monomial, coefficient in _terms(whole):
        left = list(monomial)
        for name in names:
            if name not in left:
                return None
            left.remove(name)
        if factor == 0 or coefficient % factor:
            return None
        result.append((tuple(left), coefficient // factor))
    return _normal(result)


def value_of(extent: Extent, sizes: Sizes) -> int:
    """The extent as a number.

    Raises:
        ShapeError: a symbol has no size.
    """
    if isinstance(extent, int):
        return extent
    if missing := sorted(extent.symbols - set(sizes)):
        raise ShapeError(
            f"{extent} is not known: no input says what {', '.join(missing)} is",
            at="run",
            hint="give an input whose shape names it",
        )
    return sum(factor * prod(sizes[name] for name in monomial) for monomial, factor in extent.terms)


def shape_of(shape: Sequence[Extent], sizes: Sizes) -> tuple[int, ...]:
    """A shape in numbers."""
    return tuple(value_of(extent, sizes) for extent in shape)


def is_symbolic(shape: Iterable[Extent]) -> bool:
    """Whether any extent is not a number."""
    return any(isinstance(extent, Symbolic) for extent in shape)


def bind(shape: Sequence[Extent], actual: Sequence[int], sizes: dict[str, int], at: str) -> None:
    """Learn symbols from an array's shape, and compare all the rest.

    Raises:
        ShapeError: the array does not have the shape, or a symbol already has another size.
    """
    if len(shape) != len(actual):
        raise ShapeError(
            f"the array is {list(actual)}, expected {_words(shape)}",
            at=at,
            hint="give as many axes as the graph's input has",
        )
    for extent, found in zip(shape, actual, strict=True):
        if isinstance(extent, Symbolic) and len(extent.terms) == 1 and len(extent.symbols) == 1:
            (name,), factor = extent.terms[0] if len(extent.terms[0][0]) == 1 else (("",), 0)
            if factor == 1:
                sizes.setdefault(name, found)
        if value_of(extent, sizes) != found:
            raise ShapeError(
                f"the array is {list(actual)}, expected {_words(shape)} with {dict(sizes)}",
                at=at,
                hint="axes of one name have one size in a call",
            )


def broadcast(shapes: Iterable[Shape], at: object) -> Shape:
    """NumPy's broadcast of shapes; a symbol meets itself or 1.

    Raises:
        ShapeError: two extents are different and neither is 1.
    """
    given = list(shapes)
    rank = max((len(shape) for shape in given), default=0)
    result: list[Extent] = [1] * rank
    for shape in given:
        for place, extent in enumerate(shape, start=rank - len(shape)):
            if extent == 1 or extent == result[place]:
                continue
            if result[place] != 1:
                raise ShapeError(
                    f"{extent} does not meet {result[place]}: {' and '.join(map(_words, given))}",
                    at=at,
                    hint="extents are equal, or one of them is 1",
                )
            result[place] = extent
    return tuple(result)


def _words(shape: Sequence[Extent]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _terms(extent: Extent) -> tuple[tuple[Monomial, int], ...]:
    return extent.terms if isinstance(extent, Symbolic) else (((), extent),)


def _normal(terms: Iterable[tuple[Monomial, int]]) -> Extent:
    sums: dict[Monomial, int] = {}
    for monomial, factor in terms:
        sums[monomial] = sums.get(monomial, 0) + factor
    kept = tuple(sorted((m, f) for m, f in sums.items() if f))
    if all(not monomial for monomial, _ in kept):
        return sum(factor for _, factor in kept)
    return Symbolic(kept)


def same(one: Extent, other: Extent, what: str, at: object) -> Extent:
    """The extent that two tensors share.

    Raises:
        ShapeError: they differ.
    """
    if one != other:
        raise ShapeError(f"{what}: {one} and {other}", at=at, hint="both have to be the same")
    return one
