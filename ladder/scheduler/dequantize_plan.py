"""The plan of a kernel that decodes a whole weight into memory: convert placed in global, as one frozen value.

Each warp takes atoms of the packed weight as they follow each other in memory, decodes them by the packing's own program,
applies scale and zero in float32, and writes fragments in the packing of a dense weight: what a lane decodes for one k16 step
is the 16 bytes that a lane of the product reads.

    codes --decode--> lane values --fma(v, alpha, beta - zero) * scale (* global scale)--> compute type, rounded once
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ladder.checks import Expected, instance, integer
from ladder.decode.program import DecodeProgram
from ladder.graph.dequantize import Dequantize
from ladder.graph.matmul import MatMul
from ladder.scheduler.choose import choose_packing
from ladder.scheduler.cost import Bound, Cost
from ladder.scheduler.geometry import STEP_K
from ladder.scheduler.interpret import decode_lanes
from ladder.scheduler.packing import METADATA_ROWS, TILE_ROWS, Packing
from ladder.scheduler.problem import Problem
from ladder.scheduler.single import fma
from ladder.scheduler.single_plan import SinglePlan
from ladder.ttile import Device
from ladder.ttile.device import GRID_LIMITS
from ladder.ttype import GroupedType, Quantized, element_type

LANES = 32
MOST_WARPS = 32
#: warps of a CTA, and atoms of a warp, unless others are asked for; with a table a CTA does more, since it fills one first
WARPS = 8
FEW_ATOMS, ATOMS_BESIDE_TABLE = 1, 8
MOST_ATOMS = 2**16

#: lane instructions for 8 codes besides decoding: widening and narrowing (alu), fma and scale (fma), a store (lsu)
WIDEN_ALU, SCALE_FMA, STORE_LSU = 12.0, 16.0, 1.0


def program_of(packing: Packing) -> DecodeProgram:
    """The program that decodes a packing: where there are two, the one without a table, of which every CTA makes a copy."""
    return (packing.in_registers or packing).program


@dataclass(frozen=True)
class DequantizePlan(SinglePlan):
    """One kernel's decisions; see the module's docstring.

    Attributes:
        op: what is computed.
        device: for which device.
        packing: how the low-bit weight lies in memory.
        target: how the dense weight lies there; it has no scales.
        warps: warps of a CTA.
        atoms: atoms that a warp decodes, one after the other.
    """

    DECISIONS: ClassVar[Mapping[str, Expected[Any]]] = MappingProxyType(
        {
            "op": instance(Dequantize),
            "device": instance(Device),
            "packing": instance(Packing, "plan.packing of a matmul with the weight"),
            "target": instance(Packing, "plan.packing of a matmul with a dense weight"),
            "warps": integer(1, MOST_WARPS),
            "atoms": integer(1, MOST_ATOMS),
        }
    )
    FIXABLE: ClassVar[tuple[str, ...]] = ("packing", "target", "warps", "atoms")

    op: Dequantize
    device: Device
    packing: Packing
    target: Packing
    warps: int = WARPS
    atoms: int = FEW_ATOMS

    @property
    def program(self) -> DecodeProgram:
        """The decode program."""
        return program_of(self.packing)

    @property
    def threads(self) -> int:
        """Threads of the CTA."""
        return LANES * self.warps

    @property
    def total_atoms(self) -> int:
        """Atoms of the packed weight, those that only pad it included."""
        return self.packing.stored_tiles * self.packing.atoms

    @property
    def ctas(self) -> int:
        """Blocks of the grid."""
        return -(-self.total_atoms // (self.warps * self.atoms))

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a CTA, in bytes: the decode program's table."""
        table = self.program.table
        return 128 if table is None else max(128, table.nbytes)

    @property
    def m_range(self) -> tuple[int, int | None]:
        """No rows of activations take part; any number may follow."""
        return (0, None)

    @property
    def access(self) -> str:
        """How packed words are read, as a matmul calls it."""
        return "vector"

    @property
    def brief(self) -> str:
        """The decisions in one line, without operator and device."""
        return f"{self.warps} warps, {self.atoms} x {self.program.atom_k} columns of 16 rows each"

    def __str__(self) -> str:
        read, written = self.packing.nbytes, self.target.nbytes
        return "\n".join(
            [
                str(self.op),
                f"on {self.device.name}: {self.brief}",
                f"  cta      {self.threads} threads, {self.ctas} in the grid",
                f"  load     {read} B of codes and metadata",
                f"  convert  {self.program.form}, then scale and zero in float32",
                f"  store    {written} B of {self.op.compute.name}, packed for products",
            ]
        )

    # -- what other modules do with a plan ---------------------------------------------------------------------

    def run(self, weights: Quantized) -> NDArray[Any]:
        """The plan's NumPy meaning: weights ``[n, k]`` -> numbers ``[n, k]`` of the compute type.

        Raises:
            PackingError: the weights are not those of the operator.
        """
        packed = self.packing.pack(weights)
        with np.errstate(over="ignore", invalid="ignore"):
            whole = _Values(self, packed).all().astype(self.op.compute.dtype)
        return np.ascontiguousarray(whole[self.packing.row_places, : self.op.k])

    def dense(self, weights: Quantized) -> Quantized:
        """The same as a dense weight, which a matmul without conversion takes.

        Raises:
            PackingError: as :meth:`run`.
        """
        return Quantized(self.target.weight, self.run(weights).view(np.uint16))

    def cost(self) -> Cost:
        """The estimate: bytes read and written at the rate of dram, and the pipes that decode."""
        device, ctas = self.device, self.ctas
        clock, constants = device.clock_hz / 1e6, device.cost
        resident = max(
            1,
            device.blocks_resident(
                threads=self.threads, registers=64, shared_bytes=self.shared_bytes
            ),
        )
        pipes = self.program.pipes()
        work = {
            "alu": pipes.get("alu", 0.0) + WIDEN_ALU,
            "fma": pipes.get("fma", 0.0) + SCALE_FMA,
            "lsu": pipes.get("lsu", 0.0) + STORE_LSU,
        }
        eights = self.packing.stored_tiles * TILE_ROWS * self.packing.geometry.padded_k / 8
        moved = self.packing.nbytes + self.target.nbytes
        return Cost(
            m=0,
            ctas=ctas,
            resident=resident,
            waves=-(-ctas // (device.sms * resident)),
            in_flight=0,
            bounds=(
                Bound("BW dram", moved, "B", device.dram_bytes_per_second / 1e6),
                *(
                    Bound(
                        f"P_D {pipe}",
                        eights * count / device.sms,
                        "lane instructions an SM",
                        device.pipe(pipe) * clock,
                    )
                    for pipe, count in work.items()
                ),
            ),
            launch_us=constants.launch_us,
            ramp_us=constants.ramp_us,
            refill_us=0.0,
        )

    def _rules(self) -> Iterator[Problem]:
        op, packing, target = self.op, self.packing, self.target
        for name, found, wanted in (
            ("packing", packing, (op.weight, op.n, op.k, op.compute.name)),
            ("target", target, (_dense(op), op.n, op.k, op.compute.name)),
        ):
            if (found.weight, found.n, found.k, found.program.compute) != wanted:
                yield Problem(
                    f"{name} is of another weight than {op}", "leave it to ladder.schedule"
                )
                return
        if packing.order != target.order:
            yield Problem(
                f"packing holds rows in {packing.order} order, target in the {target.order} one",
                "one order for both: rows stay where they are",
            )
        cut = packing.geometry
        if not cut.is_contiguous:
            yield Problem(
                f"groups of {cut.group} are padded to {cut.padded_group}, a dense weight has no groups",
                f"groups that are a multiple of {STEP_K} and fit the atoms, or convert elsewhere",
            )
        if self.shared_bytes > self.device.shared_bytes_per_block:
            yield Problem(
                f"{self.shared_bytes} B shared > {self.device.shared_bytes_per_block} of a block",
                "choose another device",
            )
        if self.threads > self.device.threads_per_block:
            yield Problem(
                f"{self.threads} threads > {self.device.threads_per_block} of a block",
                "fewer warps",
            )
        if self.ctas > GRID_LIMITS[0]:
            yield Problem(f"{self.ctas} CTAs > {GRID_LIMITS[0]} of a grid", "more atoms a warp")


class _Values:
    """Packed arrays of a weight as float32 numbers ``[rows, columns]``, all padding included."""

    def __init__(self, plan: DequantizePlan, packed: Mapping[str, NDArray[Any]]) -> None:
        self.plan, self.packed = plan, packed

    def all(self) -> NDArray[np.float32]:
        """Decoded, with what the program defers, zeros and scales applied in the kernel's order."""
        plan, packing = self.plan, self.plan.packing
        lanes = decode_lanes(plan, self.packed, slice(0, packing.stored_tiles))
        alpha, beta = self._affine("alpha"), self._affine("beta")
        scales, zeros = self._metadata("scales"), self._metadata("zeros")
        after = packing.weight.zero == "rescaled"
        if zeros is None or after:
            values = np.where(beta == 0, lanes * alpha, fma(lanes, alpha, beta))  # -0 stays
        else:
            values = fma(lanes, alpha, beta - zeros)
        if scales is not None:
            values = fma(values, scales, -zeros) if after and zeros is not None else values * scales
        if packing.has_global_scale:
            values = values * self.packed["global_scale"]
        return values

    def _affine(self, part: str) -> NDArray[np.float32]:
        """A deferred factor or offset of every row and column."""
        program, packing = self.plan.program, self.plan.packing
        pairs = [program.affine[cls] for cls in program.step_class]
        table = np.array([[float(getattr(a, part)) for a in pair] for pair in pairs], np.float32)
        rows = np.arange(packing.stored_tiles * TILE_ROWS) // 8 % 2
        steps = np.arange(packing.geometry.padded_k) // STEP_K % program.steps
        return table[steps[None, :], rows[:, None]]

    def _metadata(self, name: str) -> NDArray[np.float32] | None:
        if name not in self.packed:
            return None
        packing = self.plan.packing
        by_tile = packing.metadata_by_tile(self.packed[name])
        rows = np.empty((len(by_tile), TILE_ROWS, by_tile.shape[1]), np.float32)
        rows[:, METADATA_ROWS] = by_tile.transpose(0, 2, 1).astype(np.float32)
        groups = np.arange(packing.geometry.padded_k) // packing.geometry.padded_group
        return rows.reshape(-1, by_tile.shape[1])[:, groups]


def _dense(op: Dequantize) -> GroupedType:
    """The dense weight type of the result."""
    return GroupedType(element_type(op.compute), scale=None)


def schedule_dequantize(op: Dequantize, device: Device, fixed: Mapping[str, Any]) -> DequantizePlan:
    """The plan of an operator, between the packings that matmuls have.

    Raises:
        ScheduleError: a decision is unknown, or no legal plan exists.
    """
    wanted = DequantizePlan.wanted(fixed)
    source, target = (
        choose_packing(MatMul(None, op.n, op.k, op.compute, weight, op.compute), device.features)
        for weight in (op.weight, _dense(op))
    )
    packing = wanted.get("packing", source)
    atoms = FEW_ATOMS if program_of(packing).table is None else ATOMS_BESIDE_TABLE
    target = replace(target, order=packing.order)
    choice = {"packing": source, "target": target, "atoms": atoms, **wanted}
    plan = DequantizePlan(op, device, **choice)
    plan.refuse_illegal(sorted(wanted), instead="convert in registers or shared memory")
    return plan
