"""The exact choice: the cheapest assignment of many variables whose costs are sums of small tables.

Variables are eliminated one by one (bucket elimination, Dechter 1999): all tables that mention one are added, its best value is
noted for each combination of its neighbours, and the table of the minima takes their place. Graphs of models are chains with
few branches, so the tables stay small.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: entries of the largest table; a variable that would need a larger one is fixed at its first value
LARGEST = 1 << 20

Table = NDArray[np.float64]


@dataclass(frozen=True)
class Factor:
    """A table of costs over some variables, one axis to each.

    Attributes:
        variables: in the order of the axes.
        costs: inf for what is impossible.
    """

    variables: tuple[Hashable, ...]
    costs: Table


def cheapest(
    domains: Mapping[Hashable, int], factors: Sequence[Factor]
) -> tuple[dict[Hashable, int], list[Hashable]]:
    """The assignment with the least sum, as an index for each variable; and the variables that had to be fixed at 0."""
    pool = _Pool(domains, factors)
    steps: list[tuple[Hashable, tuple[Hashable, ...], NDArray[Any]]] = []
    fixed: list[Hashable] = []
    while (variable := pool.smallest()) is not None:
        if pool.size(variable) > LARGEST:
            fixed.append(variable)
            pool.replace(variable, [_restricted(f, variable) for f in pool.touching(variable)])
            continue
        touching = pool.touching(variable)
        if not touching:
            steps.append((variable, (), np.zeros((), np.int64)))
            continue
        joined = _joined(touching, variable)
        steps.append((variable, joined.variables[1:], np.argmin(joined.costs, axis=0)))
        pool.replace(variable, [Factor(joined.variables[1:], np.min(joined.costs, axis=0))])
    chosen: dict[Hashable, int] = dict.fromkeys(fixed, 0)
    for variable, neighbours, best in reversed(steps):
        chosen[variable] = int(best[tuple(chosen[one] for one in neighbours)])
    return chosen, fixed


def total(factors: Sequence[Factor], chosen: Mapping[Hashable, int]) -> float:
    """The sum of an assignment."""
    return float(sum(f.costs[tuple(chosen[one] for one in f.variables)] for f in factors))


class _Pool:
    """The tables that are left, found by their variables, and the variable whose table would be smallest."""

    def __init__(self, domains: Mapping[Hashable, int], factors: Sequence[Factor]) -> None:
        self.domains = domains
        self.factors = dict(enumerate(factors))
        self.last = len(factors)
        self.of: dict[Hashable, set[int]] = {variable: set() for variable in domains}
        for number, factor in self.factors.items():
            for variable in factor.variables:
                self.of[variable].add(number)
        self.waiting = dict.fromkeys(domains)
        self.sizes: dict[Hashable, int] = {}
        self.heap: list[tuple[int, str, Hashable]] = []
        for variable in domains:
            self._measure(variable)

    def _measure(self, variable: Hashable) -> None:
        scope = {one for number in self.of[variable] for one in self.factors[number].variables}
        self.sizes[variable] = math.prod(self.domains[one] for one in scope)
        heappush(self.heap, (self.sizes[variable], str(variable), variable))

    def smallest(self) -> Hashable | None:
        """The next variable, which no longer waits; None at the end."""
        while self.heap:
            size, _, variable = heappop(self.heap)
            if variable in self.waiting and self.sizes[variable] == size:
                del self.waiting[variable]
                return variable
        return None

    def size(self, variable: Hashable) -> int:
        """Entries of the table that eliminating a variable would make."""
        return self.sizes[variable]

    def touching(self, variable: Hashable) -> list[Factor]:
        """The tables that mention a variable."""
        return [self.factors[number] for number in sorted(self.of[variable])]

    def replace(self, variable: Hashable, factors: Sequence[Factor]) -> None:
        """Other tables in place of those that mention a variable."""
        changed = set()
        for number in self.of.pop(variable):
            for one in self.factors.pop(number).variables:
                if one != variable:
                    self.of[one].discard(number)
                    changed.add(one)
        for factor in factors:
            self.last += 1
            self.factors[self.last] = factor
            for one in factor.variables:
                self.of[one].add(self.last)
        for one in changed & self.waiting.keys():
            self._measure(one)


def _joined(factors: Sequence[Factor], first: Hashable) -> Factor:
    """The sum of factors over all their variables, ``first`` on the first axis."""
    scope = dict.fromkeys((first, *(one for factor in factors for one in factor.variables)))
    order = tuple(scope)
    result: Table = np.zeros(())
    for factor in factors:
        places = sorted(
            range(len(factor.variables)), key=lambda i: order.index(factor.variables[i])
        )
        shape = [1] * len(order)
        for axis, variable in enumerate(factor.variables):
            shape[order.index(variable)] = factor.costs.shape[axis]
        result = result + factor.costs.transpose(places).reshape(shape)
    return Factor(order, result)


def _restricted(factor: Factor, variable: Hashable) -> Factor:
    if variable not in factor.variables:
        return factor
    axis = factor.variables.index(variable)
    kept = tuple(one for one in factor.variables if one != variable)
    return Factor(kept, np.take(factor.costs, 0, axis=axis))
