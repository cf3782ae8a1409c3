"""A plan's meaning in NumPy, step by step: what the kernel computes, in the order in which it does.

    packed words --decode--> lane values   x lane values, per step, one accumulator a class, float32 or int32
    accumulators --group scale--> totals   total = fma(sum, s * (beta - z), fma(acc, s * alpha, total))
    totals of the K slices --sum, in order--> epilogue --> cast

Rounding that is not the kernel's: the products of one step are added by the CPU's matrix product, where tensor cores
add with truncation; an fma is rounded from float64, which differs from a single rounding in rare ties.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ladder.decode.machine import fragments
from ladder.errors import PlanError, ShapeError
from ladder.graph.static_codes import nearest_codes
from ladder.primitives import Primitive
from ladder.scheduler.operand_check import check_operands
from ladder.scheduler.packing import METADATA_ROWS, TILE_ROWS
from ladder.scheduler.plan import Plan
from ladder.scheduler.raster import index_of
from ladder.scheduler.scale_numbers import ScaleNumbers
from ladder.scheduler.single import Floats, dots, fma
from ladder.scheduler.steps import activation_padding
from ladder.scheduler.tiling import TILE_TOKENS
from ladder.scheduler.unit import further
from ladder.scheduler.zero import power, register_shifts
from ladder.ttype import Quantized, compute_type

if TYPE_CHECKING:
    from ladder.scheduler.dequantize_plan import DequantizePlan

Packed = Mapping[str, NDArray[Any]]

#: weights that are decoded at once
CHUNK_ELEMENTS = 1 << 22
#: rows and columns of a row tile and step that one fragment register holds, of all lanes
HALF_ROWS, HALF_COLUMNS = 8, 8


def run(
    plan: Plan,
    x: NDArray[Any],
    weights: Quantized,
    bias: NDArray[Any] | None = None,
    x_scale: NDArray[Any] | None = None,
    residual: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Pack the weights and run the plan: x ``[..., k]``, weights ``[n, k]`` -> y ``[..., out_n]``.

    Activations of 4 bits are given as kernels read them: x is uint8 ``[..., ceil(k / 2)]``, see
    :meth:`~ladder.ttype.ComputeType.pack`.

    Bias is ``[n]``, x_scale ``[...]``, residual of y's shape, each where the operator has one.

    Raises:
        ShapeError: an operand is no array of NumPy or has another shape or dtype than the operator asks for, or M is
            outside the plan's range.
        PackingError: the weights are not those of the operator.
    """
    check_operands(plan.op, x, bias, x_scale, residual)
    rows = x.reshape(-1, x.shape[-1])
    least, most = plan.m_range
    if not (least <= len(rows) and (most is None or len(rows) <= most)):
        raise ShapeError(
            f"x has {len(rows)} rows, the plan takes {plan.m_text}",
            at=plan.title,
            hint="schedule the operator with m=None for any number of rows",
        )
    scales = None if x_scale is None else x_scale.reshape(-1)
    added = None if residual is None else residual.reshape(-1, plan.op.out_n)
    y = run_packed(plan, rows, plan.packing.pack(weights), bias, scales, added)
    return y.reshape(*x.shape[:-1], plan.op.out_n)


def run_packed(
    plan: Plan,
    x: NDArray[Any],
    packed: Packed,
    bias: NDArray[Any] | None = None,
    x_scale: NDArray[Any] | None = None,
    residual: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Run the plan on packed weights: x ``[m, items(k)]`` as it is stored -> y ``[m, out_n]`` of the output's dtype.

    Bias is ``[n]``, x_scale ``[m]``, residual ``[m, out_n]``.
    """
    padded = load_activations(plan, x)
    tiles = plan.packing.row_tiles
    stored = np.empty((len(x), tiles * TILE_ROWS), np.float32)
    chunk = max(1, CHUNK_ELEMENTS // (TILE_ROWS * plan.packing.geometry.padded_k))
    with np.errstate(invalid="ignore", over="ignore"):
        for first in range(0, tiles, chunk):
            part = slice(first, min(first + chunk, tiles))
            rows = slice(part.start * TILE_ROWS, part.stop * TILE_ROWS)
            stored[:, rows] = _Rows(plan, packed, part).totals(padded)
        y = stored[:, plan.packing.row_places]
        operands = _Operands({name: packed[name] for name in ("global_scale",) if name in packed})
        if bias is not None:
            operands["bias"] = np.asarray(bias).astype(np.float32)
        if x_scale is not None:
            operands["x_scale"] = x_scale
        if residual is not None:
            operands["residual"] = residual.astype(np.float32)
        for step in plan.epilogue:
            y = step.evaluate(y, operands)
        codes = plan.op.codes
        return y.astype(plan.op.out.dtype) if codes is None else nearest_codes(y, codes.target)


class _Operands(dict[str, NDArray[Any]]):
    """What a kernel hands to its epilogue, by role; a role that it lacks is refused by name."""

    def __missing__(self, role: str) -> NDArray[Any]:
        raise PlanError(
            f"no operand {role!r} for a stage of the epilogue",
            at="Plan.run",
            hint=f"this plan has {', '.join(self) or 'none'}; a stage's own numbers are its fields",
        )


def load_activations(plan: Plan, x: NDArray[Any]) -> Floats:
    """Transform-Load of x ``[m, items(k)]``: every group and the last block padded with zeros -> float32 ``[m, padded_k]``.

    Slices and the swizzle of shared memory change places only and are undone by ldmatrix.
    """
    if not len(x):
        return np.zeros((0, plan.packing.geometry.padded_k), np.float32)
    x = plan.op.activation.unpack(x, plan.op.k)
    steps: tuple[Primitive, ...] = activation_padding(plan, len(x))
    for step in steps:
        x = step.evaluate(x)
    return x.astype(np.float32)


def decode_lanes(plan: Plan | DequantizePlan, packed: Packed, tiles: slice) -> Floats:
    """Lane values of some row tiles: packed words -> float32 ``[16 * tiles, padded_k]``, what the mma multiplies."""
    packing, program = plan.packing, plan.program
    words = packing.words_of(packing.weight_by_tile(packed["weight"])[tiles])
    registers = fragments(program, words)
    count, atoms = registers.shape[:2]
    # [tile, atom, step, (k half, row half), (g, t), lane] -> [tile, row half, g, atom, step, k half, t, lane]
    kind = compute_type(program.compute)
    words = np.ascontiguousarray(registers).astype("<u4")
    parts = kind.unpack(words.view(kind.storage), words.shape[-1] * program.lanes)
    split = parts.reshape(count, atoms, program.steps, 2, 2, 8, 4, program.lanes)
    lanes = split.transpose(0, 4, 5, 1, 2, 3, 6, 7).reshape(count * TILE_ROWS, -1)
    values: Floats = lanes.astype(np.float32)
    return values


@dataclass(frozen=True)
class _Rows:
    """Some row tiles of the weight, with what it takes to sum them up."""

    plan: Plan
    packed: Packed
    tiles: slice

    @cached_property
    def lanes(self) -> Floats:
        """Decoded weights ``[rows, padded_k]``."""
        return decode_lanes(self.plan, self.packed, self.tiles)

    def _metadata(self, name: str) -> Floats | None:
        """Scales or zeros as float32 ``[rows, padded_groups]``."""
        if name not in self.packed:
            return None
        packed = self.plan.packing.metadata_by_tile(self.packed[name])[self.tiles]
        rows = np.empty((len(packed), TILE_ROWS, packed.shape[1]), np.float32)
        rows[:, METADATA_ROWS] = packed.transpose(0, 2, 1).astype(np.float32)
        return rows.reshape(-1, packed.shape[1])

    @cached_property
    def scales(self) -> Floats | None:
        return self._metadata("scales")

    @cached_property
    def zeros(self) -> Floats | None:
        return self._metadata("zeros")

    def _by_row(self, g: float, h: float) -> Floats:
        """Factors of rows g and g+8 of every tile, as float32 ``[rows]``."""
        halves = np.array([g, h], np.float32).repeat(8)
        return np.tile(halves, len(self.lanes) // TILE_ROWS)

    def totals(self, x: Floats) -> Floats:
        """Finished sums ``[m, rows]``: K slices added in order."""
        if self.plan.persistent and self.plan.split > 1:
            return self._totals_of_tiles(x)
        return self._sum_of(x, k_slices(self.plan))

    def _sum_of(self, x: Floats, slices: tuple[range, ...]) -> Floats:
        part = self._columns_total if self.plan.access == "column" else self._slice_total
        first, *others = (part(x, blocks) for blocks in slices)
        return sum(others, first)

    def _totals_of_tiles(self, x: Floats) -> Floats:
        """Totals where the last output tiles, and only those, are shared by the CTAs of a cluster."""
        plan = self.plan
        whole = self._sum_of(x, (range(plan.packing.geometry.blocks),))
        tokens, channels = plan.tiling.tokens, plan.tiling.channels
        tiles = -(-len(x) // tokens) * plan.channel_tiles
        first = tiles - plan.shared_tiles(tiles)
        rows = np.arange(len(x))[:, None] // tokens
        columns = (self.tiles.start * TILE_ROWS + np.arange(whole.shape[1]))[None, :] // channels
        is_shared = index_of(plan, -(-len(x) // tokens), rows, columns) >= first
        if not is_shared.any():
            return whole
        totals: Floats = np.where(is_shared, self._sum_of(x, k_slices(plan)), whole)
        return totals

    def _slice_total(self, x: Floats, blocks: range) -> Floats:
        """Sum of some blocks of K."""
        plan = self.plan
        cut = plan.packing.geometry
        total = np.zeros((len(x), len(self.lanes)), np.float32)
        if plan.in_place:
            return self._in_place(total, x, blocks)
        if not plan.flushes_per_block:
            steps = [s for b in blocks for s in self._steps(b * cut.block_k, cut.block_k)]
            return self._flush(total, x, steps, 0)
        extent = cut.block_k // plan.flushes_per_block
        for block in blocks:
            for first in range(block * cut.block_k, (block + 1) * cut.block_k, extent):
                group = first // cut.padded_group if plan.has_groups else 0
                total = self._flush(total, x, self._steps(first, extent), group)
        return total

    def _columns_total(self, x: Floats, blocks: range) -> Floats:
        """The same where the columns of a product are steps: each has a total of its own, and they are added in the end."""
        cut = self.plan.packing.geometry
        totals = [np.zeros((len(x), len(self.lanes)), np.float32) for _ in range(TILE_TOKENS)]
        at_once = [blocks] if not self.plan.flushes_per_block else [[block] for block in blocks]
        for some in at_once:
            steps = [s for b in some for s in self._steps(b * cut.block_k, cut.block_k)]
            for column, total in enumerate(totals):
                mine = [s for s in steps if s % self.plan.block_steps % TILE_TOKENS == column]
                if mine:
                    k = mine[0] * self.plan.program.step_k
                    group = k // cut.padded_group if self.plan.has_groups else 0
                    totals[column] = self._flush(total, x, mine, group)
        pairs = [totals[i] + totals[i + 1] for i in range(0, TILE_TOKENS, 2)]
        return (pairs[0] + pairs[1]) + (pairs[2] + pairs[3])

    def _in_place(self, total: Floats, x: Floats, blocks: range) -> Floats:
        """Products that all add to the accumulators; what is left to them is applied once."""
        plan, cut = self.plan, self.plan.packing.geometry
        sums = np.zeros(total.shape, plan.accumulator)
        for block in blocks:
            for step in self._steps(block * cut.block_k, cut.block_k):
                k = self._columns(step)
                group = k.start // cut.padded_group if plan.has_groups else 0
                _add(sums, dots(x[:, k], self._fragment(step, group)))
        total = sums.astype(np.float32)
        if plan.scale == "register":
            unit: Floats = self.packed["unit"][1:]
            scaled: Floats = total * (unit * np.float32(further(plan)))
            return scaled
        ((g, h),) = plan.deferred
        factor: Floats = self._scale(0) * self._by_row(float(g.alpha), float(h.alpha))
        return total * factor

    def _scaled(self, lanes: Floats, atom_step: int, group: int) -> Floats:
        """Weights ``[rows, 16]`` of a step, scaled in registers: ``lane * S + Z`` rounded once, S and Z of the compute type."""
        compute = self.plan.op.activation.dtype
        numbers = ScaleNumbers(
            self.plan,
            self.packed["unit"][0] * np.float32(1 / further(self.plan)),
            self._scale(group).reshape(-1, 2, HALF_ROWS),
            None if self.zeros is None else self.zeros[:, group].reshape(-1, 2, HALF_ROWS),
        )
        scaled = np.empty_like(lanes)
        # [tile, row half, g, k half, column]; register i holds rows of half i & 1, columns of half i >> 1
        parts, out = (x.reshape(-1, 2, HALF_ROWS, 2, HALF_COLUMNS) for x in (lanes, scaled))
        for register in range(4):
            part = np.s_[:, register & 1, :, register >> 1]
            factor, offset = (
                x.astype(np.float64)[..., None] for x in numbers.of(atom_step, register)
            )
            out[part] = (parts[part] * factor + offset).astype(compute)
        return scaled

    def _flush(self, total: Floats, x: Floats, steps: list[int], group: int) -> Floats:
        """Multiply some k16 steps, then add their accumulators with scale, zero and deferred factors."""
        plan = self.plan
        program = plan.program
        accumulators = [np.zeros(total.shape, plan.accumulator) for _ in program.affine]
        sums = [np.zeros((len(x), 1), plan.accumulator) for _ in plan.sum_sets]
        for step in steps:
            cls = program.step_class[step % program.steps]
            k = self._columns(step)
            _add(accumulators[cls], dots(x[:, k], self._fragment(step, group)))
            into = plan.sum_set_of(cls)
            if into is not None:
                _add(sums[into], x[:, k].sum(axis=1, keepdims=True, dtype=np.float64))
        scale = self._scale(group)
        for (g, h), accumulator in zip(plan.deferred, accumulators, strict=True):
            alpha = self._by_row(float(g.alpha), float(h.alpha))
            total = fma(accumulator.astype(np.float32), scale * alpha, total)
        for (low, high), summed in zip(plan.sum_sets, sums, strict=True):
            offset = self._offset(scale, self._by_row(float(low), float(high)), group)
            total = fma(summed.astype(np.float32), offset, total)
        return total

    def _steps(self, first: int, extent: int) -> list[int]:
        """Indices of the steps from element ``first`` on."""
        step_k = self.plan.program.step_k
        return list(range(first // step_k, (first + extent) // step_k))

    def _columns(self, step: int) -> slice:
        step_k = self.plan.program.step_k
        return slice(step * step_k, (step + 1) * step_k)

    def _fragment(self, step: int, group: int) -> Floats:
        """Weights ``[rows, 16]`` of one step as the mma reads them: zero points taken off and scaled where that is in registers."""
        lanes, atom_step = self.lanes[:, self._columns(step)], step % self.plan.program.steps
        if self.plan.zero == "register":
            lanes = self._taken_off(lanes, self.plan.program.step_class[atom_step], group)
        return self._scaled(lanes, atom_step, group) if self.plan.scale == "register" else lanes

    def _taken_off(self, lanes: Floats, cls: int, group: int) -> Floats:
        """Lanes ``[rows, 16]`` without their zero points, exactly."""
        shifts = register_shifts(self.plan.reading)
        assert shifts is not None, "the plan checker admits exact subtraction only"
        units, betas = zip(
            *(
                (power(shift) / affine.alpha, affine.beta)
                for affine, shift in zip(self.plan.program.affine[cls], shifts[cls], strict=True)
            ),
            strict=True,
        )
        unit = self._by_row(*map(float, units))
        offset = self._by_row(*(float(u * b) for u, b in zip(units, betas, strict=True)))
        if self.zeros is not None:
            offset = offset - self.zeros[:, group] * unit
        factor = self._by_row(*(float(power(shift)) for shift in shifts[cls]))
        compute = self.plan.op.activation.dtype
        offset = offset.astype(compute).astype(np.float32)
        taken: Floats = (
            (lanes * factor[:, None] + offset[:, None]).astype(compute).astype(np.float32)
        )
        return taken

    def _scale(self, group: int) -> Floats:
        if self.scales is None:
            return np.ones(len(self.lanes), np.float32)
        return self.scales[:, group]

    def _offset(self, scale: Floats, beta: Floats, group: int) -> Floats:
        """What one unit of activation sum adds: ``s * (beta - z)``, or ``s * beta - z`` for rescaled zeros."""
        if self.zeros is None:
            return scale * beta
        zero = self.zeros[:, group]
        if self.plan.packing.weight.zero == "rescaled":
            return fma(scale, beta, -zero)
        return scale * (beta - zero)


def k_slices(plan: Plan) -> tuple[range, ...]:
    """Blocks of each K slice: CTAs of a cluster have one part after the other, slices of a CTA take its blocks in turns."""
    blocks, slices = plan.packing.geometry.blocks, plan.tiling.warps_k
    ends = [rank * blocks // plan.split for rank in range(plan.split + 1)]
    return tuple(
        range(first + index, last, slices)
        for first, last in itertools.pairwise(ends)
        for index in range(slices)
    )


def _add(sums: NDArray[Any], step: NDArray[Any]) -> None:
    """Add the products of a step, rounded to what sums are kept in; integers are exact there."""
    sums += step.astype(sums.dtype)
