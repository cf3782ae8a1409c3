"""Stages: what a kernel is assembled from, each a frozen value that says what it needs.

The plan lists its stages; the checker adds up their shared memory and registers, the cost model their work, the emitter
of :mod:`ladder.codegen.stages` turns each into TensorIR. A step of the epilogue added from outside the package is one such
value and one registered emitter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ladder.decode.program import DecodeProgram
from ladder.scheduler.geometry import counted

#: bytes that one cp.async copies (PTX ISA cp.async: 4, 8 or 16; only 16 bypasses L1)
CHUNK_BYTES = 16


@dataclass(frozen=True)
class Stage:
    """Base of all stages. Costs are per CTA (shared memory) or per thread (registers)."""

    name: ClassVar[str] = "stage"

    @property
    def shared_bytes(self) -> int:
        """Shared memory in bytes that the stage holds."""
        return 0

    @property
    def registers(self) -> int:
        """32-bit registers per thread that the stage keeps alive (an estimate)."""
        return 0

    @property
    def temporaries(self) -> int:
        """Registers per thread beside those at the stage's busiest point (an estimate): what a plan must have room for."""
        return 0

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        return ""


@dataclass(frozen=True)
class LoadRing(Stage):
    """Transform-Load global -> shared: rings of slots, each filled by ``cp.async`` with one block of K.

    A ring belongs to the warps that share a K slice: one warp in the skinny family (no CTA barrier in the main loop), all
    warps of the slice in the ring family, and all that multiply in the specialised family.

    Attributes:
        rings: K slices of the CTA, or one that all of them read in turns.
        slots: slots of one ring; ``slots - 1`` blocks are in flight, or all of a K slice that has a slot for each.
        warps: warps that share a ring.
        weight_bytes, activation_bytes, scale_bytes, zero_bytes: of one slot.
        access: "vector" (16-byte copies of activations), "scalar" (any stride and alignment), "tensor" (boxes of a tensor
            map, by bulk copies as everything else) or "column" (none: they lie in registers).
        align: alignment of each operand in a slot, in bytes; a 128-byte swizzle repeats every 1024.
    """

    name: ClassVar[str] = "load ring"
    rings: int
    slots: int
    warps: int
    weight_bytes: int
    activation_bytes: int
    scale_bytes: int
    zero_bytes: int
    access: str
    align: int = 128

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """Operands of a slot in their order, with their bytes."""
        return (
            ("weight", self.weight_bytes),
            ("x", self.activation_bytes),
            ("scales", self.scale_bytes),
            ("zeros", self.zero_bytes),
        )

    @property
    def offsets(self) -> dict[str, int]:
        """First byte of each operand in a slot, a multiple of ``align``."""
        offsets, at = {}, 0
        for name, nbytes in self.parts:
            offsets[name] = at
            at += self._aligned(nbytes)
        return offsets

    @cached_property
    def slot_bytes(self) -> int:
        """Bytes of one slot."""
        return sum(self._aligned(nbytes) for _, nbytes in self.parts)

    def _aligned(self, nbytes: int) -> int:
        return -(-nbytes // self.align) * self.align

    @property
    def shared_bytes(self) -> int:
        """Shared memory in bytes that the stage holds."""
        return self.rings * self.slots * self.slot_bytes

    @property
    def registers(self) -> int:
        """Registers per thread, estimated; warps that only read the ring keep no addresses of copies."""
        return 0 if self.access == "tensor" else 24

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        return (
            f"{self.rings} x {self.slots} slots of {self.slot_bytes} B, {counted(self.warps, 'warp')} a ring,"
            f" {self.access} activations"
        )


@dataclass(frozen=True)
class Barriers(Stage):
    """Two mbarriers for each slot of a ring that other warps fill: "full" for its readers, "empty" for its writer.

    Attributes:
        slots: slots of the ring.
    """

    name: ClassVar[str] = "barriers"
    slots: int

    @property
    def shared_bytes(self) -> int:
        """Shared memory in bytes that the stage holds: 8 B a barrier (PTX ISA, mbarrier), padded to a region."""
        return -(-2 * 8 * self.slots // 128) * 128

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        return f"a full and an empty barrier for each of {counted(self.slots, 'slot')}"


@dataclass(frozen=True)
class ScaleRegisters(Stage):
    """Scale decoded weights in registers: ``w = lane * S + Z``, one fma of two lanes a register.

    Attributes:
        groups: groups that one block of K touches.
        fragments: fragment registers that live at once.
        exact_zeros: whether an exact fma takes zero points off before, and Z is 0: weights are then rounded once.
    """

    name: ClassVar[str] = "weight scale"
    groups: int
    fragments: int
    exact_zeros: bool = False

    @property
    def registers(self) -> int:
        """Registers per thread, estimated."""
        return self.fragments

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        count = "two fmas" if self.exact_zeros else "one fma"
        return f"{count} of two lanes a register, {counted(self.groups, 'group')} a block; unit at the end"


@dataclass(frozen=True)
class Decode(Stage):
    """Convert packed words to lane values: in registers, or through shared memory.

    Attributes:
        program: the decode program.
        placement: "register" or "shared".
        atoms: atoms that one warp decodes per block.
        scratch_bytes: shared memory for decoded weights ("shared" only), of the whole CTA.
        row_tiles: row tiles that one warp decodes side by side.
    """

    name: ClassVar[str] = "decode"
    program: DecodeProgram
    placement: str
    atoms: int
    scratch_bytes: int
    row_tiles: int = 1

    @property
    def shared_bytes(self) -> int:
        """Shared memory in bytes that the stage holds."""
        table = self.program.table
        return self.scratch_bytes + (table.nbytes if table is not None else 0)

    @property
    def registers(self) -> int:
        """Registers per thread, estimated."""
        # words, two pairs of fragments of which one is being multiplied, and shifted copies that later steps share
        return self.row_tiles * (self.program.words + 8 + self.program.steps // 2)

    @property
    def temporaries(self) -> int:
        """Registers per thread, estimated."""
        # Measured on ptxas' spills: about one value under way for each operation that 8 codes take.
        return round(self.row_tiles * len(self.program.ops) / self.program.steps)

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        pipes = ", ".join(
            f"{count:g} {pipe}" for pipe, count in self.program.pipes().items() if count
        )
        return f"{self.program.form} in {self.placement}: {pipes or 'nothing'} per 8 codes"


@dataclass(frozen=True)
class Multiply(Stage):
    """Compute: tensor-core products of decoded weight fragments with activation fragments.

    Attributes:
        instruction: name of the device's mma instruction.
        row_tiles, token_tiles: 16-row weight tiles and 8-token tiles of one warp.
        classes: accumulator sets that the decode program needs.
        sums: sets of activation sums kept (0: no zero point is deferred).
    """

    name: ClassVar[str] = "multiply"
    instruction: str
    row_tiles: int
    token_tiles: int
    classes: int
    sums: int

    @property
    def registers(self) -> int:
        """Registers per thread, estimated."""
        tile = self.row_tiles * self.token_tiles * 4
        return tile * self.classes + self.sums * self.token_tiles * 4 + 4

    @property
    def temporaries(self) -> int:
        """Registers per thread, estimated."""
        # Activation fragments of two k steps and at most eight tiles; wgmma reads its activations in shared memory.
        return 0 if self.instruction.startswith("wgmma") else 4 * min(self.token_tiles, 8)

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        sums = f", {counted(self.sums, 'activation sum')}" if self.sums else ""
        return f"{self.instruction}, {self.row_tiles} x {self.token_tiles} tiles a warp, {counted(self.classes, 'class')}{sums}"


@dataclass(frozen=True)
class GroupScale(Stage):
    """Apply deferred factors, zero points and group scales to the accumulators in float32.

    Attributes:
        accumulators: float32 totals per thread that are kept besides the group's own.
        per_block: flushes per block of K (0: once, after the last block).
    """

    name: ClassVar[str] = "group scale"
    accumulators: int
    per_block: int

    @property
    def registers(self) -> int:
        """Registers per thread, estimated."""
        return self.accumulators + 4

    @property
    def temporaries(self) -> int:
        """Registers per thread, estimated."""
        # Scales of the next flush are read while those of this one are used.
        return 4 * max(0, self.per_block - 1)

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        when = (
            f"{counted(self.per_block, 'flush')} a block" if self.per_block else "once at the end"
        )
        return f"float32 on accumulators, {when}"


@dataclass(frozen=True)
class Reduce(Stage):
    """Sum K slices through shared memory, in a fixed order; the ring's memory is reused.

    Attributes:
        slices: K slices of the CTA, or CTAs of a cluster that share K.
        tile_bytes: float32 bytes of one slice's part of the outputs that the CTA finishes.
        staging_bytes: bytes of finished outputs on their way to wide stores.
        beside_bytes: the same where the ring's memory is not free, for some tokens at a time.
        scale_bytes: bytes of the scales of the CTA's rows, behind the staged outputs.
        cluster: whether the slices are CTAs, which send their parts through distributed shared memory.
    """

    name: ClassVar[str] = "reduce"
    slices: int
    tile_bytes: int
    staging_bytes: int = 0
    beside_bytes: int = 0
    scale_bytes: int = 0
    cluster: bool = False

    @property
    def reused_bytes(self) -> int:
        """Bytes needed of the memory that the ring leaves free."""
        return self.slices * self.tile_bytes + self.staging_bytes + self.scale_bytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory in bytes that the stage holds."""
        return self.beside_bytes + (self.scale_bytes if self.beside_bytes else 0)

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        if not self.slices:
            staged = self.staging_bytes + self.beside_bytes
            return f"none; {staged} B of outputs staged in shared memory"
        where = "distributed shared memory" if self.cluster else "shared memory"
        return f"{counted(self.slices, 'slice')} of {self.tile_bytes} B in {where}"


@dataclass(frozen=True)
class EpilogueStage(Stage):
    """A step on finished float32 outputs before they are cast and stored."""

    def evaluate(
        self, y: NDArray[np.float32], operands: dict[str, NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """NumPy meaning: y ``[m, n]`` and the kernel's extra operands by role -> y."""
        raise NotImplementedError


@dataclass(frozen=True)
class Store(Stage):
    """Transform-Store: cast to the output type and write ``y[m, n]``, masked at the edges.

    Attributes:
        out: output type name.
    """

    name: ClassVar[str] = "store"
    out: str

    def describe(self) -> str:
        """One line for ``print(plan)``."""
        return f"float32 -> {self.out}, y[m, n] masked at m and n"
