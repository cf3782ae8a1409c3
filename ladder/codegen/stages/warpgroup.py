"""Compute by warpgroups: wgmma.m64nNk16, or k32 of bytes, with weights in registers (A) and activations in shared memory (B).

The A fragment of a warp is that of mma.m16n8k16, and the accumulators of N tokens are N/8 accumulator fragments of it
(PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16"), so decoding, flushing and storing are the same as for mma.

Products run asynchronously: fragments of a pair of steps stay untouched until the pair after it was issued, accumulators until
everything was waited for. In the ring family activations were written by cp.async in the generic proxy and are read in the
async proxy, so its barrier is preceded by a proxy fence; in the specialised family tensor copies write in the async proxy.
"""

from __future__ import annotations

from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.activations import TILE_CHUNKS
from ladder.scheduler.stage import Multiply

#: PTX ISA, "Matrix Descriptor Format": leading offset (unused with a swizzle), 1024 bytes between groups of 8 rows, in units
#: of 16 bytes, and the 128-byte swizzle
_DESCRIPTOR = (1 << 16) | (64 << 32) | (1 << 62)
#: steps in one tile of 128 bytes of k
_TILE_STEPS = 4
#: operands behind the one that says whether to add (PTX ISA, wgmma.mma_async): signs of A and B, where they are floats, and
#: whether B is transposed, where it has 16 bits
_IMMEDIATES = {
    "float16": (1, 1, 0),
    "bfloat16": (1, 1, 0),
    "int8": (),
    "fp8_e4m3fn": (1, 1),
    "fp8_e5m2": (1, 1),
}
#: ties reads of accumulators to what came before
_HOLD = {"float32": "hold_f32", "int32": "hold_u32"}


class WarpgroupEmitter:
    """Emits the products of one kernel and holds its accumulators."""

    asynchronous = True

    def __init__(self, kernel: Kernel, stage: Multiply) -> None:
        self.kernel, self.stage = kernel, stage
        plan = kernel.plan
        self.instruction = plan.device.instruction(stage.instruction).emits
        self.immediates = _IMMEDIATES[plan.op.activation.name]
        self.kind = plan.accumulator
        self.acc = e.registers("acc", stage.token_tiles * 4, e.ACCUMULATOR[self.kind])
        #: activation sums are not kept; the plan checker admits no plan that needs them
        self.sum = self.acc
        # Where a block ends with a flush, the first product of the next overwrites; otherwise all add to zeros.
        self.overwrites = kernel.plan.flushes_per_block > 0
        self.fresh = self.overwrites
        if not plan.persistent:  # else every tile begins with it
            self.reset()

    def reset(self) -> None:
        """Set all accumulators to zero."""
        for i in range(self.stage.token_tiles * 4):
            e.store(self.acc, i, e.zero(self.kind))

    def acc_index(self, _row_tile: int, token_tile: int, cls: int) -> int:
        """First of the four accumulator registers of a token tile."""
        assert cls == 0, "the plan checker admits one class"
        return token_tile * 4

    def sum_index(self, sums: int, token_tile: int) -> int:
        """No activation sums are kept beside warpgroup products."""
        raise AssertionError(sums, token_tile)

    def clear(self, _tile: int) -> None:
        """The next product overwrites the accumulators."""
        self.fresh = True

    def tile_groups(self) -> list[tuple[int, ...]]:
        """All token tiles are multiplied by one instruction."""
        return [tuple(range(self.stage.token_tiles))]

    def low_word(self, start: Any) -> Any:
        """Low word of the descriptor of activations that begin at byte ``start`` of the arena."""
        address = self.kernel.shared_address(start)
        return ((address & e.u32(0x3FFFF)) >> e.u32(4)) | e.u32(_DESCRIPTOR & 0xFFFFFFFF)

    def descriptor(self, low: Any) -> Any:
        """The descriptor with a low word."""
        return e.u64(low) | e.u64(_DESCRIPTOR & ~0xFFFFFFFF)

    def further(self, descriptor: Any, nbytes: int) -> Any:
        """The descriptor of activations that lie so many bytes further on, within its 14 bits of 16 bytes.

        In uniform registers that is one addition of 64 bits; beside a low word that is added to, ptxas moves the high word anew
        each time. Other registers take two additions for it, so that the ring family adds to the low word.
        """
        if self.kernel.plan.load_warps:
            return descriptor + e.u64(nbytes // 16)
        return self.descriptor(descriptor + e.u32(nbytes // 16))

    def read(self, start: Any, step: int, _tiles: tuple[int, ...], _bank: int) -> Any:
        """Nothing to read: what a product of this pair needs is where the block's activations begin."""
        return self.low_word(start), step

    def carried(self, start: Any, step: int, tiles: tuple[int, ...], bank: int) -> Any:
        """What :meth:`read` gave for the first pair of a block."""
        return self.read(start, step, tiles, bank)

    def multiply(self, steps: list[tuple[int, list[list[Any]], int]], b: Any, _tiles: Any) -> None:
        """Issue the products of some steps: (index, A fragment of the one row tile, class) of each.

        Args:
            steps: what is multiplied.
            b: the block's descriptor, or its low word in the ring family, and the first step.
        """
        block, step = b
        acc = [self.acc[i] for i in range(self.stage.token_tiles * 4)]
        e.ptx("wgmma.fence.sync.aligned")
        for half, (fragment,), _ in steps:
            descriptor = self._of_step(block, step + half)
            adds = e.boolean(not self.fresh)
            e.ptx(self.instruction, *acc, *fragment, descriptor, adds, *self.immediates)
            self.fresh = False
        e.ptx("wgmma.commit_group.sync.aligned")

    def _of_step(self, block: Any, step: int) -> Any:
        """The descriptor of a step's activations, which lie a constant further on than the block's."""
        tile, within = divmod(step, _TILE_STEPS)
        tile_bytes = self.kernel.plan.rows_loaded * TILE_CHUNKS * 16
        return self.further(block, tile * tile_bytes + within * 32)

    def settle(self, pending: int) -> None:
        """Wait until at most ``pending`` pairs are in flight; with 0 the accumulators may be read."""
        e.ptx("wgmma.wait_group.sync.aligned", pending)
        if pending == 0:
            for i in range(self.stage.token_tiles * 4):
                # Ties reads of the accumulators to the wait: the compiler sees no other order between them.
                e.store(self.acc, i, e.call(_HOLD[self.kind], self.acc[i]))

    def before_barrier(self) -> None:
        """Make what this thread's copies wrote visible to the async proxy."""
        e.ptx("fence.proxy.async.shared::cta")
