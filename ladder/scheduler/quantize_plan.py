"""The plan of a kernel that quantises activations: how rows are shared among warps, as one frozen value.

Warps of a CTA have a row together, or several rows between them. Each thread keeps its pieces of 16 bytes in registers
between the two passes (the largest magnitude, then the codes), so that x is read once. Rows that do not begin on a piece, and
rows too long for registers, are read element by element, twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from numpy.typing import NDArray

from ladder.checks import (
    Expected,
    accept,
    instance,
    integer,
    one_of,
    optional,
    several,
    shown,
)
from ladder.errors import PlanError, ShapeError
from ladder.graph.matmul import MAX_EXTENT
from ladder.graph.quantize_activations import QuantizeActivations
from ladder.scheduler.cost import LARGE_M, Bound, Cost
from ladder.scheduler.problem import Problem
from ladder.scheduler.single_plan import SinglePlan
from ladder.ttile import Device

LANES = 32
#: bytes of a piece: what a thread reads at once
PIECE_BYTES = 16
#: pieces that a thread keeps: 64 registers
MOST_PIECES = 16
#: pieces of a thread that the chosen plan has, at least: loads that are on their way together
FEW_PIECES = 2
MOST_WARPS = 32
#: warps of a row that the chosen plan has, at most, where registers hold the row: several CTAs have an SM, and one reads
#: while another writes (28672 columns on an H200, by hand-written kernels: 0.92 to 0.94 of the read floor)
FEW_WARPS = 16
#: warps of a CTA, at least, where rows are short
CTA_WARPS = 4

ACCESSES = ("vector", "scalar")
LAUNCHES = ("plain", "pdl")

COUNT = integer(1, MOST_WARPS)


@dataclass(frozen=True)
class QuantizePlan(SinglePlan):
    """One kernel's decisions; see the module's docstring.

    Attributes:
        op: what is computed.
        device: for which device.
        warps: warps that share a row.
        rows: rows of a CTA.
        access: how x is read and the codes written, "vector" (16-byte pieces) or "scalar".
        launch: "plain" or "pdl" (programmatic dependent launch).
        m_range: least and largest number of rows (None: no upper limit).
    """

    DECISIONS: ClassVar[Mapping[str, Expected[Any]]] = MappingProxyType(
        {
            "op": instance(QuantizeActivations),
            "device": instance(Device),
            "warps": COUNT,
            "rows": COUNT,
            "access": one_of(ACCESSES),
            "launch": one_of(LAUNCHES),
            "m_range": several(optional(integer(0, MAX_EXTENT)), "(least M, most M or None)", 2),
        }
    )
    FIXABLE: ClassVar[tuple[str, ...]] = ("warps", "rows", "access", "launch")

    op: QuantizeActivations
    device: Device
    warps: int
    rows: int
    access: str = "vector"
    launch: str = "plain"
    m_range: tuple[int, int | None] = (0, None)

    @property
    def row_threads(self) -> int:
        """Threads that share a row."""
        return LANES * self.warps

    @property
    def threads(self) -> int:
        """Threads of the CTA."""
        return self.row_threads * self.rows

    @property
    def piece(self) -> int:
        """Elements of x in a piece of 16 bytes."""
        return piece_of(self.op)

    @property
    def pieces(self) -> int:
        """Pieces of a thread."""
        return -(-self.op.k // (self.piece * self.row_threads))

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a CTA, in bytes: the largest magnitude that each warp found."""
        return max(128, 4 * self.rows * self.warps) if self.warps > 1 else 128

    @property
    def brief(self) -> str:
        """The decisions in one line, without operator and device."""
        return (
            f"{self.rows} x {self.warps} warps, {self.access} access"
            + (f" of {self.pieces} pieces a thread" if self.access == "vector" else "")
            + f", {self.launch} launch"
        )

    def __str__(self) -> str:
        kept = "kept in registers" if self.access == "vector" else "read twice"
        return "\n".join(
            [
                str(self.op),
                f"on {self.device.name}: {self.brief}",
                f"  cta      {self.rows} rows, {self.warps} warps a row, {self.threads} threads",
                f"  load     x, {self.access} access, {kept}",
                f"  reduce   largest |x| of a row, over lanes, then warps; scale = max(it / {self.op.top:g}, 2^-126)",
                f"  store    {self.op.target.name} codes to nearest even, float32 scales",
            ]
        )

    # -- what other modules do with a plan ---------------------------------------------------------------------

    def run(self, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The plan's NumPy meaning: x ``[..., k]`` of the source type -> codes ``[..., items(k)]``, scales ``[...]``.

        A maximum has no order, so that it is the operator's own.

        Raises:
            ShapeError: x does not fit the operator.
        """
        if getattr(x, "dtype", None) != self.op.source.dtype:
            raise ShapeError(
                f"x is {shown(x)}, the operator takes {self.op.source}",
                at=self.title,
                hint="cast x",
            )
        return self.op.reference(x)

    def cost(self, m: int | None = None) -> Cost:
        """The estimate for ``m`` rows (the operator's, else a large number): bytes read and written at the rate of dram.

        Raises:
            PlanError: ``m`` is no number of rows.
        """
        m = accept(
            m, optional(integer(0, MAX_EXTENT)), "m", at="QuantizePlan.cost", error=PlanError
        )
        rows = max(1, m if m is not None else LARGE_M if self.op.m is None else self.op.m)
        device, ctas = self.device, -(-rows // self.rows)
        resident = device.blocks_resident(
            threads=self.threads, registers=32, shared_bytes=self.shared_bytes
        )
        read, written = self.op.k * self.op.source.dtype.itemsize, self.op.codes.items(self.op.k)
        moved = rows * (read + written + 4)
        constants = device.cost
        return Cost(
            m=rows,
            ctas=ctas,
            resident=max(1, resident),
            waves=-(-ctas // (device.sms * max(1, resident))),
            in_flight=0,
            bounds=(Bound("BW dram", moved, "B", device.dram_bytes_per_second / 1e6),),
            launch_us=constants.launch_us,
            ramp_us=constants.pdl_ramp_us if self.launch == "pdl" else constants.ramp_us,
            refill_us=0.0,
        )

    def _rules(self) -> Iterator[Problem]:
        device, op = self.device, self.op
        if self.threads > device.threads_per_block:
            yield Problem(
                f"{self.threads} threads > {device.threads_per_block} of a block",
                "fewer rows or warps",
            )
        if self.access == "vector" and op.k % self.piece:
            yield Problem(
                f"vector access of {op.source} needs K to be a multiple of {self.piece}, not {op.k}",
                'access="scalar"',
            )
        if self.access == "vector" and self.pieces > MOST_PIECES:
            yield Problem(
                f"{self.pieces} pieces of a thread > {MOST_PIECES}",
                'more warps, or access="scalar"',
            )
        for feature, needed in (
            ("pdl", self.launch == "pdl"),
            ("cvt.e4m3x2", op.target.name == "fp8_e4m3fn"),
        ):
            if needed and not device.has(feature):
                yield Problem(f"{device.name} lacks {feature}", "choose another device or decision")
        least, most = self.m_range
        if most is not None and most < least:
            yield Problem(f"M from {least} to {most} is no range", "0 <= least <= most")
        elif op.m is not None and (op.m < least or (most is not None and op.m > most)):
            yield Problem(
                f"M = {op.m} of the operator is outside {least} .. {most}",
                f"m_range=({op.m}, {op.m})",
            )


def piece_of(op: QuantizeActivations) -> int:
    """Elements of x in a piece of 16 bytes."""
    return PIECE_BYTES // op.source.dtype.itemsize


def _warps(op: QuantizeActivations) -> int:
    """Warps of a row: as few as hold it in as few pieces a thread as it takes, so that the last piece is no waste."""
    of_warp = LANES * piece_of(op)
    pieces = min(max(-(-op.k // (of_warp * FEW_WARPS)), FEW_PIECES), MOST_PIECES)
    return min(-(-op.k // (of_warp * pieces)), MOST_WARPS)


def schedule_quantize(
    op: QuantizeActivations, device: Device, fixed: Mapping[str, Any]
) -> QuantizePlan:
    """The plan of an operator: warps enough that a thread has few pieces, and rows enough for a CTA of some warps.

    Raises:
        ScheduleError: a decision is unknown, or no legal plan exists.
    """
    wanted = QuantizePlan.wanted(fixed)
    piece = piece_of(op)
    fits = op.k % piece == 0 and op.k <= piece * LANES * MOST_WARPS * MOST_PIECES
    warps = wanted.get("warps", _warps(op))
    choice = {
        "access": "vector" if fits else "scalar",
        "warps": warps,
        "rows": max(1, CTA_WARPS // warps),
        **wanted,
    }
    plan = QuantizePlan(op, device, **choice, m_range=(0, None) if op.m is None else (op.m, op.m))
    plan.refuse_illegal(wanted, instead="choose another device or target")
    return plan
