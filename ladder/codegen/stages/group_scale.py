"""Apply what decoding deferred, zero points and group scales, in float32 on the accumulators.

    total += s * alpha * acc + s * (beta - z) * sum            zero conventions "integer" and "float"
    total += s * alpha * acc + (s * beta - z) * sum            "rescaled"

per class, with s and z of the row (a lane holds rows g and g+8), alpha and beta of the row half. Where zero points are
taken off in registers no sum appears.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.metadata import Metadata
from ladder.codegen.stages.multiply import MultiplyEmitter
from ladder.codegen.stages.warpgroup import WarpgroupEmitter
from ladder.scheduler.stage import GroupScale

#: value of (name, row tile, half), None where the type has none
Reader = Callable[[str, int, int], Any]


@dataclass(frozen=True)
class _Term:
    """``total += factor * source`` for one row half of one row tile: a class of products, or a set of activation sums."""

    row_tile: int
    half: int
    source: Any
    factor: Any
    first: Callable[[int], int]


class GroupScaleEmitter:
    """Emits the flushes of one kernel and holds its totals.

    A flush is opened with the group's metadata and then applied token tile by token tile, so that the products of one
    tile hide the flush of another.
    """

    def __init__(
        self,
        kernel: Kernel,
        stage: GroupScale,
        multiply: MultiplyEmitter | WarpgroupEmitter,
        metadata: Metadata,
    ) -> None:
        self.kernel, self.stage, self.multiply, self.metadata = kernel, stage, multiply, metadata
        self.total = e.registers("total", stage.accumulators, "float32")
        for i in range(stage.accumulators):
            e.store(self.total, i, e.f32(0.0))
        self.flushes = 0

    def open(self, slot: Any, group: int) -> list[_Term]:
        """Terms of a flush with group ``group`` of the block in a ring slot, or with the single group."""
        if not self.kernel.plan.has_groups:
            return self._terms(self.metadata.single)
        return self._terms(
            lambda name, row_tile, half: self.metadata.in_slot(name, slot, group, row_tile, half)
        )

    def flush(self, terms: list[_Term], tiles: Sequence[int]) -> None:
        """Add the accumulators of some token tiles to the totals and clear them."""
        with e.stage(self.stage.name):
            for tile in tiles:
                for term in terms:
                    self._accumulate(term, tile)
                self.multiply.clear(tile)

    def flush_last(self) -> None:
        """Flush everything with the only group there is."""
        self.flush(self._terms(self.metadata.single), range(self.multiply.stage.token_tiles))

    def _terms(self, read: Reader) -> list[_Term]:
        with e.stage(self.stage.name):
            self.flushes += 1
            return [
                term
                for row_tile in range(self.multiply.stage.row_tiles)
                for half in range(2)
                for term in self._row_terms(row_tile, half, read)
            ]

    def _row_terms(self, row_tile: int, half: int, read: Reader) -> list[_Term]:
        tag, multiply = f"{self.flushes}_{row_tile}_{half}", self.multiply
        plan = self.kernel.plan
        scale = self._held(read("scales", row_tile, half), f"s{tag}")
        terms = []
        for cls, affine in enumerate(plan.deferred):
            alpha = float(affine[half].alpha)
            factor = e.f32(alpha) if scale is None else scale
            if scale is not None and alpha != 1.0:
                factor = self._held(scale * e.f32(alpha), f"f{tag}_{cls}")
            place = partial(multiply.acc_index, row_tile, cls=cls)
            terms.append(_Term(row_tile, half, multiply.acc, factor, place))
        zero = self._held(read("zeros", row_tile, half), f"z{tag}") if plan.sum_sets else None
        for index, betas in enumerate(plan.sum_sets):
            factor = self._zero_factor(scale, zero, float(betas[half]))
            if factor is not None:
                place = partial(multiply.sum_index, index)
                factor = self._held(factor, f"o{tag}_{index}")
                terms.append(_Term(row_tile, half, multiply.sum, factor, place))
        return terms

    def _held(self, value: Any, name: str) -> Any:
        return None if value is None else e.hold(value, name, "float32")

    def _zero_factor(self, scale: Any, zero: Any, beta: float) -> Any:
        """Factor of a set of activation sums, or None when it is zero."""
        offset = e.f32(beta) if beta else None
        if zero is not None and self.kernel.plan.packing.weight.zero == "rescaled":
            negated = e.f32(0.0) - zero
            return negated if offset is None else e.fma(scale, offset, negated)
        if zero is not None:
            offset = (e.f32(0.0) if offset is None else offset) - zero
        return offset if offset is None or scale is None else scale * offset

    def _accumulate(self, term: _Term, tile: int) -> None:
        """One FFMA for each of the two tokens of a row half."""
        first = (term.row_tile * self.multiply.stage.token_tiles + tile) * 4 + 2 * term.half
        at = term.first(tile) + 2 * term.half
        for j in range(2):
            value = e.as_f32(self.multiply.kind, term.source[at + j])
            e.store(self.total, first + j, e.fma(value, term.factor, self.total[first + j]))
