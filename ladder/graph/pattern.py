"""Patterns of operators, as values: what a rewrite looks for.

    SILU = multiply(X, op("sigmoid", X))

Operands of sums, products, maxima and minima match in either order. A cast between real types is looked through: it changes
no number that a graph means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations

from ladder.graph.draft import Draft
from ladder.graph.graph import Node
from ladder.graph.operators import Binary, Cast, Operator, Unary
from ladder.graph.tensor import FLOATS

#: pattern variable -> name of the value that it stands for
Found = dict[str, str]

COMMUTE = frozenset({"add", "multiply", "maximum", "minimum"})


class Pattern:
    """Something that a value may look like."""

    def match(self, draft: Draft, name: str, found: Found) -> Iterator[Found]:
        """Every way in which the value ``name`` looks like this, as extensions of ``found``."""
        raise NotImplementedError


@dataclass(frozen=True)
class Variable(Pattern):
    """Any value; the same one wherever the variable stands.

    Attributes:
        key: its name in the result.
        holds: what has to be true of the value, given the draft and its name.
    """

    key: str
    holds: Callable[[Draft, str], bool] | None = None

    def match(self, draft: Draft, name: str, found: Found) -> Iterator[Found]:
        """The value behind casts."""
        name = behind_casts(draft, name)
        if found.get(self.key, name) == name and (self.holds is None or self.holds(draft, name)):
            yield {**found, self.key: name}


@dataclass(frozen=True)
class Number(Pattern):
    """A constant with one element: near ``value``, or any if that is None."""

    value: float | None = None
    key: str = ""

    def match(self, draft: Draft, name: str, found: Found) -> Iterator[Found]:
        """To six digits, as far as float32 literals go."""
        number = number_of(draft, name)
        if number is None:
            return
        if self.value is None or abs(number - self.value) <= 1e-6 * abs(self.value):
            yield {**found, self.key: name} if self.key else found


@dataclass(frozen=True)
class Made(Pattern):
    """A value that a node of some operator makes from operands that match.

    Attributes:
        holds: what has to be true of the operator.
        operands: patterns of all inputs.
        key: the node's name in the result, "" for none.
        either: whether operands match in any order.
    """

    holds: Callable[[Operator], bool]
    operands: tuple[Pattern, ...]
    key: str = ""
    either: bool = False

    def match(self, draft: Draft, name: str, found: Found) -> Iterator[Found]:
        """Operand by operand, each in the light of those before."""
        node = draft.nodes.get(behind_casts(draft, name))
        if node is None or len(node.inputs) != len(self.operands) or not self.holds(node.op):
            return
        if self.key:
            found = {**found, self.key: node.name}
        orders = permutations(node.inputs) if self.either else [node.inputs]
        for order in orders:
            yield from self._operands(draft, tuple(order), found, 0)

    def _operands(
        self, draft: Draft, names: tuple[str, ...], found: Found, place: int
    ) -> Iterator[Found]:
        if place == len(names):
            yield found
            return
        for more in self.operands[place].match(draft, names[place], found):
            yield from self._operands(draft, names, more, place + 1)


@dataclass(frozen=True)
class Either(Pattern):
    """One of several patterns, the first that fits."""

    patterns: tuple[Pattern, ...]

    def match(self, draft: Draft, name: str, found: Found) -> Iterator[Found]:
        """In order."""
        for pattern in self.patterns:
            yield from pattern.match(draft, name, found)


def op(function: str, *operands: Pattern, key: str = "") -> Pattern:
    """A function of one or two numbers, by name."""
    kind = Unary if len(operands) == 1 else Binary
    return Made(
        lambda given: isinstance(given, kind) and given.function == function,
        operands,
        key,
        either=function in COMMUTE,
    )


def of(kind: type[Operator], *operands: Pattern, key: str = "") -> Pattern:
    """Any operator of a class."""
    return Made(lambda given: isinstance(given, kind), operands, key)


def either(*patterns: Pattern) -> Pattern:
    """One of several."""
    return Either(patterns)


def first(pattern: Pattern, draft: Draft, node: Node) -> Found | None:
    """The first way in which a node looks like a pattern."""
    return next(pattern.match(draft, node.name, {}), None)


def behind_casts(draft: Draft, name: str) -> str:
    """The value that casts between real types were made of."""
    node = draft.nodes.get(name)
    while (
        node is not None
        and isinstance(node.op, Cast)
        and node.op.dtype in FLOATS
        and draft.type(node.inputs[0]).is_float
    ):
        name = node.inputs[0]
        node = draft.nodes.get(name)
    return name


def number_of(draft: Draft, name: str) -> float | None:
    """The number that a constant of one element holds."""
    constant = draft.constants.get(behind_casts(draft, name))
    if constant is None or constant.type.elements != 1 or constant.type.weight is not None:
        return None
    return float(constant.values().reshape(()))
