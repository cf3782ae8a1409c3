"""The plan: every decision about a kernel, as one frozen value.

A plan says what lies where and what happens between two levels: Transform-Load of weights, metadata and activations,
one Compute, Transform-Store of the output. Lowering obeys it; two equal plans give equal source.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ladder.checks import accept, integer, optional, refuse_unknown
from ladder.decode.program import Affine, DecodeProgram
from ladder.errors import PlanError
from ladder.graph.matmul import MAX_EXTENT, MatMul
from ladder.scheduler import registers, residency, walk
from ladder.scheduler.assemble import OUT_BYTES, load_ring, multiply, stages_of
from ladder.scheduler.packing import Packing
from ladder.scheduler.readings import reading_of
from ladder.scheduler.stage import CHUNK_BYTES, EpilogueStage, LoadRing, Multiply, Reduce, Stage
from ladder.scheduler.tiling import Tiling
from ladder.scheduler.words import brief, m_text
from ladder.scheduler.zero import betas, deferred
from ladder.ttile import Device
from ladder.ttile.isa import ACCUMULATOR, pair
from ladder.ttype import Quantized

if TYPE_CHECKING:
    from ladder.scheduler.cost import Cost

FAMILIES = ("skinny", "ring", "specialised")
PLACEMENTS = ("register", "shared")
ZEROS = ("sums", "register")
COMPUTES = ("mma", "wgmma")
LOOKUPS = ("shared", "register")
ACCESSES = ("vector", "scalar", "tensor", "column")
SCALES = ("accumulator", "register")
LAUNCHES = ("plain", "pdl")


@dataclass(frozen=True)
class Plan:
    """One kernel's decisions; see the module's docstring.

    Attributes:
        op: what is computed.
        device: for which device.
        packing: how the weight lies in memory.
        family: "skinny", "ring" or "specialised", the arrangement that the stages follow.
        tiling: the work of a CTA and its warps.
        depth: slots of a load ring.
        convert: where codes become compute values, "register" or "shared".
        lookup: where codes that no mask decodes are looked up, "shared" (as the packing's program does) or "register".
        zero: where zero points are taken off, "sums" or "register" (see :mod:`ladder.scheduler.zero`).
        scale: where scales are applied: to the float32 sums of a group ("accumulator"), or to decoded weights together with
            zero points ("register", see :mod:`ladder.scheduler.unit`), which rounds each weight once.
        split: CTAs that share the K of one output tile, as a cluster.
        persistent: whether one CTA an SM works through the output tiles, loading the next while it stores the last. With
            ``split`` only tiles that are left over share their K, where there are so few that each finds a cluster.
        multicast: CTAs of a cluster, side by side along the channels, that share their tokens: each loads a part for all.
        lookahead: whether the first fragments of a block are made beside the last products of the one before (keeps one
            slot less in flight, so depth >= 3; only where codes are converted in registers).
        access: how activations are read: "vector" (16-byte copies), "scalar", "tensor" (boxes), "column" (steps of one token).
        compute: the product instruction, "mma" (a warp's) or "wgmma" (a warpgroup's, activations read from shared memory).
        m_range: least and largest M that the kernel takes (None: no upper limit).
        launch: "plain" or "pdl" (programmatic dependent launch).
        epilogue: steps between the sums and the store.
    """

    op: MatMul
    device: Device
    packing: Packing
    family: str
    tiling: Tiling
    depth: int
    convert: str = "register"
    lookup: str = "shared"
    zero: str = "sums"
    scale: str = "accumulator"
    split: int = 1
    persistent: bool = False
    multicast: int = 1
    lookahead: bool = False
    access: str = "vector"
    compute: str = "mma"
    m_range: tuple[int, int | None] = (0, None)
    launch: str = "plain"
    epilogue: tuple[EpilogueStage, ...] = field(default=())

    @cached_property
    def reading(self) -> Packing:
        """The packing with the program that this plan decodes by (:mod:`ladder.scheduler.readings`); :attr:`packing` is the same
        bytes for all plans.
        """
        return reading_of(self)

    @property
    def program(self) -> DecodeProgram:
        """The decode program of this plan."""
        return self.reading.program

    @property
    def rows_loaded(self) -> int:
        """Activation rows of one slot: the CTA's tokens, or fewer when M cannot be larger."""
        most = self.m_range[1]
        if most is None or self.compute == "wgmma":
            return self.tiling.tokens
        return max(1, min(self.tiling.tokens, most))

    @property
    def load_warps(self) -> int:
        """Warps that only load; they come after those that multiply."""
        return 1 if self.family == "specialised" else 0

    @cached_property
    def threads(self) -> int:
        """Threads of the CTA."""
        return self.tiling.threads + 32 * self.load_warps

    @property
    def cluster(self) -> int:
        """CTAs of a cluster; 1 where there are none."""
        return self.split * self.multicast

    @property
    def persistent_ctas(self) -> int:
        """CTAs of a persistent kernel (:mod:`ladder.scheduler.walk`)."""
        return walk.persistent_ctas(self)

    def shared_tiles(self, tiles: int) -> int:
        """Tiles of a persistent kernel that clusters share, see :mod:`ladder.scheduler.walk`."""
        return walk.shared_tiles(self, tiles)

    @property
    def value_bits(self) -> int:
        """Bits of a compute value: of activations, and of weights decoded to shared memory."""
        return self.op.activation.bits

    def value_bytes(self, count: int) -> int:
        """Bytes of so many compute values, which fill whole ones."""
        return count * self.value_bits // 8

    @property
    def piece(self) -> int:
        """Activations in 16 bytes: what one copy brings, a swizzle moves and a line of ldmatrix holds."""
        return 8 * CHUNK_BYTES // self.value_bits

    @property
    def block_steps(self) -> int:
        """Steps of the product instruction in one block of K."""
        return self.packing.block_steps

    @property
    def chunk_steps(self) -> int:
        """Steps whose products a warpgroup issues together, see :mod:`ladder.scheduler.walk`."""
        return walk.chunk_steps(self)

    @property
    def chunks_in_flight(self) -> int:
        """Chunks whose products may be under way, see :mod:`ladder.scheduler.walk`."""
        return walk.chunks_in_flight(self)

    @property
    def turns_together(self) -> int:
        """Blocks of one turn of the loop, see :mod:`ladder.scheduler.walk`."""
        return walk.turns_together(self)

    @property
    def stores_fragments(self) -> bool:
        """Whether outputs are staged as fragments of two bytes, for wide stores; a residual comes the same way."""
        read = self.op.out if self.op.residual else self.op.stored
        widest = max(read.dtype.itemsize, self.op.stored.dtype.itemsize)
        return self.family == "specialised" and widest <= OUT_BYTES

    @property
    def sums_in_shared(self) -> bool:
        """Whether totals pass through shared memory before outputs are made of them."""
        return self.split * self.tiling.warps_k > 1 or not self.stores_fragments

    @property
    def in_place(self) -> bool:
        """Whether the accumulators are the totals."""
        return self.family == "specialised" and not self.flushes_per_block

    @property
    def atoms_per_block(self) -> int:
        """Atoms of one row tile in one block of K."""
        return self.packing.atoms_per_block

    @property
    def has_groups(self) -> bool:
        """Whether scales and zeros change along K, so that a slot of the ring carries those of its block."""
        return self.packing.geometry.groups > 1

    @cached_property
    def flushes_per_block(self) -> int:
        """Flushes of the accumulators per block; 0 means once, after the last block.

        A single group that needs activation sums is flushed every block: ``zero * sum`` then cancels within one block.
        """
        if self.scale == "register":
            return 0
        if self.has_groups:
            return 1 if self.access == "column" else self.packing.geometry.groups_per_block
        return 1 if self.sum_sets else 0

    @cached_property
    def has_zeros(self) -> bool:
        """Whether something is to be taken off: zero points of the weight, or a zero that its decoding defers."""
        return self.packing.zero_dtype is not None or self.program.defers_zero

    @cached_property
    def sum_sets(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """Deferred zeros (of rows g, of rows g+8) that each need a sum of activations; empty when nothing needs one."""
        if "register" in (self.zero, self.scale) or not self.has_zeros:
            return ()
        return tuple(dict.fromkeys(map(betas, self.program.affine)))

    @cached_property
    def deferred(self) -> tuple[tuple[Affine, ...], ...]:
        """What the accumulators have to apply, or S and Z, as :attr:`DecodeProgram.affine`."""
        return deferred(self)

    def sum_set_of(self, cls: int) -> int | None:
        """Index of the sum set that a class of steps adds to."""
        if not self.sum_sets:
            return None
        return self.sum_sets.index(betas(self.program.affine[cls]))

    @cached_property
    def instruction(self) -> str:
        """Name of the device's product instruction."""
        k, wgmma = self.packing.step_k, self.compute == "wgmma"
        shape = f"wgmma.m64n{self.tiling.tokens}k{k}" if wgmma else f"mma.m16n8k{k}"
        return f"{shape}.{pair(self.program.compute, self.op.activation.name)}" + ".rs" * wgmma

    @property
    def accumulator(self) -> str:
        """Type that products are added in."""
        return ACCUMULATOR[self.op.activation.name]

    @property
    def out_channels(self) -> int:
        """Columns of y that a CTA stores: its channels, or half of them where the other half are gates."""
        return self.tiling.channels // (2 if self.op.gated else 1)

    @property
    def channel_tiles(self) -> int:
        """Tiles of the output along its channels: a CTA each, but see :mod:`ladder.scheduler.residency`."""
        return -(-self.packing.row_tiles // self.tiling.tile_rows)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages, in the order in which a block of K meets them."""
        return stages_of(self)

    @cached_property
    def load_ring(self) -> LoadRing:
        """The stage that loads."""
        return load_ring(self)

    @cached_property
    def product(self) -> Multiply:
        """The stage that multiplies."""
        return multiply(self)

    @cached_property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a CTA, in bytes; the reduction reuses the ring's memory."""
        reused = max([s.reused_bytes for s in self.stages if isinstance(s, Reduce)], default=0)
        ring = self.load_ring.shared_bytes
        return sum([s.shared_bytes for s in self.stages]) - ring + max(ring, reused)

    @cached_property
    def launch_bytes(self) -> int:
        """Dynamic shared memory of a launch, in bytes, see :mod:`ladder.scheduler.residency`."""
        return residency.launch_bytes(self)

    @cached_property
    def register_estimate(self) -> registers.Estimate:
        """Registers per thread, see :mod:`ladder.scheduler.registers`."""
        return registers.estimate(self)

    @property
    def registers(self) -> int:
        """Registers per thread, estimated."""
        return self.register_estimate.kept

    @property
    def most_registers(self) -> int:
        """Registers per thread at the busiest point, estimated; with fewer the kernel would spill."""
        return self.register_estimate.most

    def with_(self, **decisions: Any) -> Plan:
        """A copy with some decisions fixed by hand, checked again.

        Some decisions rule out others, which are given up for them unless they are asked for by name: converting in shared memory
        warpgroup products and lookahead; what the specialised family has not, that family and what goes with it.

        Raises:
            PlanError: a decision is unknown, of another kind than the plan's, or makes the plan illegal.
            DeviceError: the name of a device is unknown.
        """
        from ladder.scheduler.decisions import DECISIONS, completed, decided
        from ladder.scheduler.verify import verify

        refuse_unknown(
            decisions, DECISIONS, "a plan has no decision", at="Plan.with_", error=PlanError
        )
        plan = replace(self, **completed(self, decided(decisions, "Plan.with_", PlanError)))
        verify(plan)
        return plan

    @property
    def m_text(self) -> str:
        """The M range for people: ``1``, ``0..8``, ``65..``."""
        return m_text(self)

    @property
    def brief(self) -> str:
        """The decisions in one line, without operator and device."""
        return brief(self)

    @property
    def title(self) -> str:
        """One line that tells this plan from others."""
        return f"M {self.m_text} of {self.op} on {self.device.name}: {self.brief}"

    def __str__(self) -> str:
        from ladder.scheduler.table import table

        return table(self)

    def check(self) -> tuple[str, ...]:
        """What is wrong with the plan, one sentence a broken rule; empty for a legal plan."""
        from ladder.scheduler.verify import check

        return check(self)

    def verify(self) -> None:
        """Raise where the plan breaks a rule.

        Raises:
            PlanError: some rule is broken; all of them are named.
        """
        from ladder.scheduler.verify import verify

        verify(self)

    def cost(self, m: int | None = None) -> Cost:
        """The estimate for ``m`` tokens (the operator's, else the most that the plan takes).

        Raises:
            PlanError: ``m`` is no number of tokens.
        """
        from ladder.scheduler.cost import estimate

        m = accept(m, optional(integer(0, MAX_EXTENT)), "m", at="Plan.cost", error=PlanError)
        return estimate(self, m)

    def explain(self) -> str:
        """What was chosen, why, what it should cost, and what was rejected."""
        from ladder.scheduler.explain import explain

        return explain(self)

    def run(
        self,
        x: NDArray[Any],
        weights: Quantized,
        bias: NDArray[Any] | None = None,
        x_scale: NDArray[Any] | None = None,
        residual: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """The plan's NumPy meaning, see :func:`ladder.scheduler.interpret.run`."""
        from ladder.scheduler.interpret import run

        return run(self, x, weights, bias, x_scale, residual)

    def to_json(self) -> str:
        """Stable text that :meth:`from_json` reads back."""
        from ladder.scheduler.serial import dump_plan

        return dump_plan(self)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what :meth:`to_json` wrote.

        Raises:
            PlanError: the text is no plan, or of another version.
        """
        from ladder.scheduler.serial import load_plan

        return load_plan(text)
