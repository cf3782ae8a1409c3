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
from ladder.scheduler.tiling import TILE_TOKENS

#: values of (name, row tile) for rows g and g + 8, None where the type has none
Reader = Callable[[str, int], tuple[Any, Any] | None]


@dataclass(frozen=True)
class _Term:
    """``total += factor * source`` for one row half of one row tile: a class of products, or a set of activation sums.

    There is a factor for both columns that a lane holds, or one for each.
    """

    row_tile: int
    half: int
    source: Any
    factors: tuple[Any, ...]
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
            return self._terms([self.metadata.single_rows])
        groups = [group] if self.kernel.plan.access != "column" else self._groups_of_columns()
        return self._terms(
            [partial(self.metadata.rows_in_slot, slot=slot, group=group) for group in groups]
        )

    def _groups_of_columns(self) -> list[Any]:
        """Groups of the block that a lane's two columns belong to, where columns are steps; one if it is the same."""
        plan = self.kernel.plan
        groups = plan.packing.geometry.groups_per_block
        steps = plan.block_steps // groups
        first = self.kernel.lane % 4 * 2
        columns = [first, first + 1] if steps == 1 else [first // steps]
        if plan.block_steps < TILE_TOKENS:  # the others hold zeros
            return [e.least(group, groups - 1) for group in columns]
        return columns if groups > 1 else [0]

    def flush(self, terms: list[_Term], tiles: Sequence[int]) -> None:
        """Add the accumulators of some token tiles to the totals and clear them."""
        with e.stage(self.stage.name):
            for tile in tiles:
                for term in terms:
                    self._accumulate(term, tile)
                self.multiply.clear(tile)

    def flush_last(self) -> None:
        """Flush everything with the only group there is."""
        self.flush(self._terms([self.metadata.single_rows]), range(self.multiply.stage.token_tiles))

    def _terms(self, columns: list[Reader]) -> list[_Term]:
        """Terms of a flush; ``columns`` read for both columns of a lane, or for each."""
        with e.stage(self.stage.name):
            self.flushes += 1
            return [
                term
                for row_tile in range(self.multiply.stage.row_tiles)
                for term in self._tile_terms(row_tile, columns)
            ]

    def _tile_terms(self, row_tile: int, columns: list[Reader]) -> list[_Term]:
        multiply, plan = self.multiply, self.kernel.plan
        scales = [self._rows(read, "scales", row_tile) for read in columns]
        zeros = [self._rows(read, "zeros", row_tile) if plan.sum_sets else None for read in columns]
        terms = []
        for half in range(2):
            scale = [None if rows is None else rows[half] for rows in scales]
            zero = [None if rows is None else rows[half] for rows in zeros]
            for cls, affine in enumerate(plan.deferred):
                factors = tuple(self._factor(s, float(affine[half].alpha)) for s in scale)
                place = partial(multiply.acc_index, row_tile, cls=cls)
                terms.append(_Term(row_tile, half, multiply.acc, factors, place))
            for index, betas in enumerate(plan.sum_sets):
                beta, pairs = float(betas[half]), zip(scale, zero, strict=True)
                offsets = [self._zero_factor(s, z, beta) for s, z in pairs]
                if offsets[0] is not None:
                    factors = tuple(e.hold(offset, "o", "float32") for offset in offsets)
                    place = partial(multiply.sum_index, index)
                    terms.append(_Term(row_tile, half, multiply.sum, factors, place))
        return terms

    def _rows(self, read: Reader, name: str, row_tile: int) -> tuple[Any, Any] | None:
        """Held values of rows g and g + 8."""
        rows = read(name, row_tile)
        if rows is None:
            return None
        return e.hold(rows[0], name, "float32"), e.hold(rows[1], name, "float32")

    def _factor(self, scale: Any, alpha: float) -> Any:
        """Factor of a class of products."""
        if scale is None:
            return e.f32(alpha)
        return scale if alpha == 1.0 else e.hold(scale * e.f32(alpha), "f", "float32")

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
            factor = term.factors[j % len(term.factors)]
            value = e.as_f32(self.multiply.kind, term.source[at + j])
            e.store(self.total, first + j, e.fma(value, factor, self.total[first + j]))
