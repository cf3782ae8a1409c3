"""Lowering of plans that decode a whole weight into memory.

packed words of an atom -> registers of its lanes, by loads as wide as the packing allows
decode program -> fragments; scale and zero in float32, by row and group
fragments -> the dense packing, 16 bytes a lane and k16 step
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import STORAGE
from ladder.codegen.kernel import Launch, LoweredKernel, Parameter
from ladder.codegen.listing import listing
from ladder.codegen.stages.decode import AtomDecoder, lane_address, look_up, replicate
from ladder.codegen.tvm_api import IRBuilder, T, lower_to_cuda
from ladder.codegen.widen import narrow_pair, widen, widen_pair
from ladder.errors import LoweringError
from ladder.scheduler.dequantize_plan import LANES, DequantizePlan
from ladder.scheduler.geometry import STEP_K, vector_widths
from ladder.scheduler.packing import BAND_TILES, TILE_ROWS

#: packed array that only products read
UNREAD = "unit"


class _Dequantizer:
    """The kernel under construction. Made inside an open PrimFunc frame."""

    def __init__(self, plan: DequantizePlan) -> None:
        self.plan, self.packing, self.program = plan, plan.packing, plan.program
        self.compute = plan.op.compute.name
        self.arg = self._declare()
        T.device_entry()
        self.block = T.cta_id([plan.ctas])
        self.thread = T.thread_id([plan.threads])
        self.lane = e.bind(self.thread % LANES, "lane")
        self.warp = e.bind(self.thread // LANES, "warp")
        self.lane_address = lane_address(self.thread)
        self.shared = T.alloc_buffer(
            (plan.shared_bytes // 4,), "uint32", scope="shared.dyn", align=128
        )
        IRBuilder.name("table_of_lanes", self.shared)
        self.shared_base = e.bind(e.shared_pointer(self.shared, 0), "shared_base")

    def _declare(self) -> dict[str, Any]:
        declared: dict[str, Any] = {}
        for role, dtype, extent in arguments_of(self.plan):
            handle = T.arg(role, T.handle())
            declared[role] = T.match_buffer(handle, (extent,), STORAGE[dtype], align=2)
            IRBuilder.name(role, declared[role])
        return declared

    def emit(self) -> None:
        table = self.program.table
        if table is not None:
            with e.stage("decode table"):
                replicate(
                    table, self.arg["table"], self.shared, 0, (self.thread, self.plan.threads)
                )
            e.sync_cta()
        count = self.plan.atoms
        first = e.bind((self.block * self.plan.warps + self.warp) * count, "first_atom")
        with e.loop(count, "turn", together=1) as turn:
            atom = e.bind(first + turn, "atom")
            covered = self.plan.ctas * self.plan.warps * count == self.plan.total_atoms
            with e.when(True if covered else atom < self.plan.total_atoms):
                self._atom(atom)

    def _atom(self, atom: Any) -> None:
        """Decode one atom and write its steps."""
        program, packing = self.program, self.packing
        with e.stage("load"):
            words = self._words(atom)
        decoder = AtomDecoder(
            program, words, lambda at: look_up(self.shared_base, at), self.lane_address, {}, ""
        )
        per_block = packing.atoms_per_block
        rest = e.bind(atom // per_block, "rest")
        tile = e.bind(rest % BAND_TILES, "tile")
        behind = e.bind(rest // BAND_TILES, "behind")
        block = e.bind(behind % packing.geometry.blocks, "block")
        band = e.bind(behind // packing.geometry.blocks, "band")
        first = e.bind((block * per_block + atom % per_block) * program.steps, "first_step")
        factors: _Factors | None = None
        for index in range(program.steps):
            step = e.bind(first + index, "step")
            with e.stage("convert"):
                if factors is None or index * STEP_K % packing.geometry.padded_group == 0:
                    factors = _Factors(self, band, tile, step)
                registers = [
                    self._scaled(register, index, half % 2, factors)
                    for half, register in enumerate(decoder.fragment(index))
                ]
            with e.stage("store"):
                self._store(registers, (band, tile, step))

    def _words(self, atom: Any) -> list[Any]:
        """The lane's packed words of an atom."""
        count = self.program.words
        words, first = e.registers("words", count, "uint32"), 0
        start = e.i64(atom) * e.i64(LANES * count)
        for width in vector_widths(count):
            at = self.arg["weight"].ptr_to([start + e.i64(LANES * first + self.lane * width)])
            vector = f".v{width}" if width > 1 else ""
            e.ptx(f"ld.global{vector}.b32", *(words[first + i] for i in range(width)), at)
            first += width
        return [words[i] for i in range(count)]

    def _scaled(self, register: Any, step: int, half: int, factors: _Factors) -> Any:
        """A register of a fragment, its two lane values scaled; rows g stand in even registers, g + 8 in odd ones."""
        affine = self.program.affine[self.program.step_class[step]][half]
        if affine.is_identity and factors.are_none:
            return register
        pair = widen_pair(self.compute, register)
        assert pair is not None, "compute types have 16 bits"
        alpha, beta = float(affine.alpha), float(affine.beta)
        low, high = (factors.apply(value, alpha, beta, half) for value in pair)
        return narrow_pair(self.compute, low, high)

    def _store(self, registers: list[Any], place: tuple[Any, Any, Any]) -> None:
        band, tile, step = place
        target = self.plan.target
        per_block, steps = (
            target.geometry.block_k // STEP_K,
            target.geometry.padded_k // STEP_K,
        )
        words = 4 * LANES
        blocks = e.i64(band) * e.i64(target.geometry.blocks) + e.i64(step // per_block)
        at = ((blocks * e.i64(BAND_TILES) + e.i64(tile)) * e.i64(per_block)) * e.i64(words)
        inside = e.i64(step % per_block * words + self.lane * 4)
        fits = self.packing.geometry.padded_k // STEP_K == steps
        with e.when(True if fits else step < steps):
            held = [e.hold(register, "out", "uint32") for register in registers]
            e.ptx("st.global.v4.b32", self.arg["y"].ptr_to([at + inside]), *held)


class _Factors:
    """Scale and zero of the rows g and g + 8 of a lane in one group, and the scale of the whole weight."""

    def __init__(self, kernel: _Dequantizer, band: Any, tile: Any, step: Any) -> None:
        packing = kernel.packing
        cut = packing.geometry
        group = step // (cut.padded_group // STEP_K) if cut.padded_groups > 1 else 0
        row = ((band * cut.padded_groups + group) * BAND_TILES + tile) * TILE_ROWS
        first = e.bind(row + kernel.lane // 4 * 2, "metadata")
        self.after = packing.weight.zero == "rescaled"

        def read(name: str, dtype: Any) -> list[Any] | None:
            if dtype is None:
                return None
            stored = kernel.arg[name]
            return [
                e.hold(widen(dtype.name, stored[first + half]), f"{name}_of_row", "float32")
                for half in range(2)
            ]

        self.scales = read("scales", packing.scale_dtype)
        self.zeros = read("zeros", packing.zero_dtype)
        if self.after and self.zeros is not None:
            self.zeros = [e.hold(e.f32(0.0) - zero, "negated", "float32") for zero in self.zeros]
        self.whole = kernel.arg["global_scale"][0] if packing.has_global_scale else None

    @property
    def are_none(self) -> bool:
        """Whether lane values are the numbers already."""
        return self.scales is None and self.zeros is None and self.whole is None

    def apply(self, value: Any, alpha: float, beta: float, half: int) -> Any:
        """``fma(value, alpha, beta - zero) * scale``, or with a rescaled zero ``fma(.., scale, -zero)``."""
        zero = None if self.zeros is None else self.zeros[half]
        if zero is not None and not self.after:
            value = e.fma(value, e.f32(alpha), e.f32(beta) - zero)
        elif beta:  # -0 + 0 would lose its sign
            value = e.fma(value, e.f32(alpha), e.f32(beta))
        else:
            value = value * e.f32(alpha)
        if self.scales is not None:
            scale = self.scales[half]
            rescales = zero is not None and self.after
            value = e.fma(value, scale, zero) if rescales else value * scale
        return value if self.whole is None else value * self.whole


def arguments_of(plan: DequantizePlan) -> tuple[tuple[str, str, int], ...]:
    """Role, dtype and number of elements of the arguments of a plan's kernel."""
    given = {name: found for name, found in plan.packing.shapes().items() if name != UNREAD}
    shapes = {**given, "y": plan.target.shapes()["weight"]}
    counts = []
    for role, (shape, dtype) in shapes.items():
        count = 1
        for extent in shape:
            count *= extent
        counts.append((role, dtype, count))
    return tuple(counts)


def build_dequantize(plan: DequantizePlan, name: str) -> Any:
    """The PrimFunc of a plan's kernel."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        _Dequantizer(plan).emit()
    return builder.get()


def lower_dequantize(plan: DequantizePlan) -> LoweredKernel:
    """Lower a plan through TensorIR to CUDA text and an instruction listing.

    Raises:
        PlanError: the plan breaks a rule of its device.
        LoweringError: TVM is missing or another release than the pinned one.
    """
    plan.verify()
    digest = hashlib.sha256(plan.to_json().encode()).hexdigest()[:12]
    element = re.sub(r"\W", "_", plan.op.element.name)
    name = f"ladder_dequantize_{plan.op.compute.name}_{element}_{digest}"
    device = lower_to_cuda(build_dequantize(plan, name), plan.device.arch)
    declared = {role: dtype for role, dtype, _ in arguments_of(plan)}
    ordered = []
    for parameter in device.parameters:
        role = parameter.removesuffix("_ptr")
        if role not in declared:
            raise LoweringError(
                f"the lowered kernel has a parameter {parameter!r} that no argument declared",
                at=device.name,
            )
        ordered.append(Parameter(parameter, "buffer", declared[role], role))
    return LoweredKernel(
        name=device.name,
        source=device.source,
        parameters=tuple(ordered),
        launch=Launch(
            grid=(plan.ctas, 1, 1), block=(plan.threads, 1, 1), shared_bytes=plan.shared_bytes
        ),
        listing=listing(device.function),
        device_arch=plan.device.arch,
    )
