"""The exact choice: the cheapest assignment of many variables whose costs are sums of small tables.

Variables are eliminated one by one (bucket elimination, Dechter 1999): all tables that mention one are added, its best value is
noted for each combination of its neighbours, and the table of the minima takes their place. Graphs of models are chains with
few branches, so the tables stay small.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
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
    waiting = set(domains)
    pool = list(factors)
    steps: list[tuple[Hashable, tuple[Hashable, ...], NDArray[Any]]] = []
    fixed: list[Hashable] = []
    while waiting:
        variable = min(waiting, key=lambda one: (_size(one, pool, domains), str(one)))
        waiting.remove(variable)
        if _size(variable, pool, domains) > LARGEST:
            fixed.append(variable)
            pool = [_restricted(factor, variable) for factor in pool]
            continue
        touching = [factor for factor in pool if variable in factor.variables]
        pool = [factor for factor in pool if variable not in factor.variables]
        if not touching:
            steps.append((variable, (), np.zeros((), np.int64)))
            continue
        joined = _joined(touching, variable)
        steps.append((variable, joined.variables[1:], np.argmin(joined.costs, axis=0)))
        pool.append(Factor(joined.variables[1:], np.min(joined.costs, axis=0)))
    chosen: dict[Hashable, int] = dict.fromkeys(fixed, 0)
    for variable, neighbours, best in reversed(steps):
        chosen[variable] = int(best[tuple(chosen[one] for one in neighbours)])
    return chosen, fixed


def total(factors: Sequence[Factor], chosen: Mapping[Hashable, int]) -> float:
    """The sum of an assignment."""
    return float(sum(f.costs[tuple(chosen[one] for one in f.variables)] for f in factors))


def _size(variable: Hashable, pool: Sequence[Factor], domains: Mapping[Hashable, int]) -> int:
    """Entries of the table that eliminating a variable would make."""
    scope = {one for factor in pool if variable in factor.variables for one in factor.variables}
    size = 1
    for one in scope:
        size *= domains[one]
    return size


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
