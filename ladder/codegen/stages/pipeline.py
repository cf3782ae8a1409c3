"""Transform-Load of the specialised family: one warp fills the ring by bulk and tensor copies, warpgroups empty it.

    load warp        for each block:  wait empty[slot]; expect bytes at full[slot]; start the copies
    warpgroups       for each block:  wait full[slot]; ...; arrive at empty[slot]

The copies of a slot: the packed words of each band of 64 channels, its scales and zeros (one run of bytes each, PTX ISA,
"cp.async.bulk"), and boxes of activations ("cp.async.bulk.tensor", rows of 128 bytes of k in the 128-byte swizzle
that wgmma reads; what lies outside of x is filled with zeros). A slot holds the same as one that ``cp.async`` fills.
"""

from __future__ import annotations

from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import ARENA_ALIGN, Kernel
from ladder.codegen.kernel import box_rows
from ladder.codegen.stages.activations import TILE_CHUNKS
from ladder.codegen.tvm_api import T
from ladder.scheduler.packing import BAND_TILES, TILE_ROWS
from ladder.scheduler.plan import Plan
from ladder.scheduler.stage import CHUNK_BYTES, LoadRing
from ladder.scheduler.tiling import TILE_TOKENS

_BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_TENSOR = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"

INT32_MAX = 2**31 - 1

#: bytes of a row of one box of activations
BOX_BYTES = TILE_CHUNKS * CHUNK_BYTES


def box_k(plan: Plan) -> int:
    """Columns of one box of activations."""
    return 8 * BOX_BYTES // plan.value_bits


class Cursor:
    """A slot of the ring and the phase of its barriers, both in registers of one thread."""

    def __init__(self, name: str, slots: int, units: int, first: Any = 0) -> None:
        self.slots, self.units = slots, units
        # The slot is counted too, for its barriers; its place in units, so that addresses are visibly aligned.
        self.state = e.registers(name, 3, "int32")
        for place, value in enumerate((first, first * units, 0)):
            e.store(self.state, place, value)

    @property
    def slot(self) -> Any:
        """Index of the slot."""
        return self.state[0]

    @property
    def place(self) -> Any:
        """First byte of the slot, from the first slot."""
        return self.state[1] * ARENA_ALIGN

    @property
    def phase(self) -> Any:
        """Parity of the turn through the ring."""
        return self.state[2]

    def advance(self) -> None:
        """Go on to the next slot; behind the last one the next turn begins."""
        last = self.state[0] == self.slots - 1
        e.store(self.state, 2, e.select(last, self.state[2] ^ 1, self.state[2]))
        e.store(self.state, 1, e.select(last, 0, self.state[1] + self.units))
        e.store(self.state, 0, e.select(last, 0, self.state[0] + 1))


class PipelineEmitter:
    """Emits the barriers of a ring, the warp that fills it, and the waits of those that read it.

    Attributes:
        base: first byte of the ring in the arena.
        offsets: first byte of each operand in a slot.
        first_block, turns: the blocks of K that fall to this CTA.
    """

    def __init__(self, kernel: Kernel, ring: LoadRing, base: int, barriers: int) -> None:
        self.kernel, self.ring, self.base, self.barriers = kernel, ring, base, barriers
        self.plan = kernel.plan
        self.offsets = ring.offsets
        self.units = ring.slot_bytes // ARENA_ALIGN
        self.cast = self.plan.multicast
        self.readers = self.plan.tiling.ring_warps * self.cast
        self._there = self._barriers_of_lane() if self.cast > 1 else None
        self.whole: tuple[Any, Any] = (0, self.plan.packing.geometry.blocks)
        self.part = self._share_of_blocks()
        self.first_block: Any
        self.turns: Any
        self.first_block, self.turns = self.whole if self.plan.persistent else self.part
        self.box_k = box_k(self.plan)
        self.boxes = self.plan.packing.geometry.block_k // self.box_k
        self.rows = self._box_rows()

    def of_cluster(self) -> None:
        """From here on the CTA has its part of a tile that its cluster shares."""
        self.first_block, self.turns = self.part

    def of_cta(self) -> None:
        """From here on the CTA has whole tiles."""
        self.first_block, self.turns = self.whole

    def _share_of_blocks(self) -> tuple[Any, Any]:
        """CTAs of a cluster take consecutive parts of K, which differ by one block at most."""
        blocks, split = self.plan.packing.geometry.blocks, self.plan.split
        if split == 1:
            return 0, blocks
        rank = self.kernel.rank
        first = e.bind(rank * blocks // split, "first_block")
        if blocks % split == 0:
            return first, blocks // split
        # So that the compiler knows there are some: of a loop that may not run ptxas serialises the products (C7515).
        least = blocks // split
        longer = (rank + 1) * blocks // split - first > least
        return first, e.bind(e.select(longer, least + 1, least), "turns")

    def _box_rows(self) -> Any:
        """Tokens of a box: those that exist in whole tiles of 8, and no more than the CTA has.

        Rows outside of x are slow to fill, not free (on an H200, 33 tokens in boxes of 64: 21.7 us instead of 17.6).
        """
        most = self.plan.rows_loaded
        least, limit = self.plan.m_range
        if self.cast > 1:
            return most  # the plan checker admits no M that leaves a box unfilled
        if (limit is not None and -(-limit // TILE_TOKENS) == -(-least // TILE_TOKENS)) or (
            least > most - TILE_TOKENS
        ):
            return box_rows(most, least)
        rows = (self.kernel.arg["m"] + (TILE_TOKENS - 1)) // TILE_TOKENS * TILE_TOKENS
        return e.bind(e.least(rows, most), "box_rows")

    def clear(self) -> None:
        """Zero the tokens of all slots that no box fills: products read them, though nothing of theirs is stored."""
        most = self.plan.rows_loaded
        if isinstance(self.rows, int) and self.rows == most:
            return
        chunks = most * TILE_CHUNKS
        threads = self.plan.threads
        zeros = e.registers("zeros", 4, "uint32")
        for index in range(4):
            e.store(zeros, index, e.u32(0))
        with e.stage("clear"), e.when(self.rows < most):
            with (
                e.loop(self.ring.slots * self.boxes, "box") as box,
                e.loop(-(-chunks // threads), "chunk") as i,
            ):
                chunk = i * threads + self.kernel.thread
                inside = chunk >= self.rows * TILE_CHUNKS
                if chunks % threads:
                    inside = e.both(inside, chunk < chunks)
                with e.when(inside):
                    slot, part = box // self.boxes, box % self.boxes
                    first = slot * self.ring.slot_bytes + part * (chunks * CHUNK_BYTES)
                    place = self.base + self.offsets["x"] + first + chunk * CHUNK_BYTES
                    e.store_vector(self.kernel.shared["uint32"], place // 4, zeros, 0, 4)
            e.ptx("fence.proxy.async.shared::cta")

    # -- barriers ------------------------------------------------------------------------------------------------

    def _barrier(self, slot: Any, *, empty: bool) -> int | Any:
        return self.barriers + (slot + (self.ring.slots if empty else 0)) * 8

    def make_barriers(self) -> None:
        """Set the barriers up; a barrier of the CTA must follow.

        One arrival fills a slot, that of the loading thread; every warp that reads it, or what its thread loads for other
        CTAs, frees it by one.
        """
        with e.stage("barriers"), e.when(self.kernel.thread == 0):
            for slot in range(self.ring.slots):
                for empty, arrivals in ((False, 1), (True, self.readers)):
                    address = self.kernel.shared_address(self._barrier(slot, empty=empty))
                    e.ptx("mbarrier.init.shared.b64", address, e.u32(arrivals))
            if self.cast > 1:
                e.ptx("fence.mbarrier_init.release.cluster")
            else:
                e.ptx("fence.proxy.async.shared::cta")

    def _barriers_of_lane(self) -> Any:
        """Where the barriers of a CTA of the cluster lie: of the first one in lane 0, and so on, in turns."""
        there = e.hold(e.u32(0), "barriers_there", "uint32")
        rank = e.cast("uint32", self.kernel.lane % self.cast)
        e.ptx("mapa.shared::cluster.u32", there, self.kernel.shared_address(self.barriers), rank)
        return there

    def wait_full(self, slot: Any, phase: Any) -> None:
        """Wait until the copies into a slot have arrived."""
        with e.stage("wait"):
            self._wait(self._barrier(slot, empty=False), phase)

    def _wait(self, barrier: Any, parity: Any) -> None:
        view = self.kernel.shared["uint64"]
        T.evaluate(T.cuda.mbarrier_wait(view.ptr_to([barrier // 8]), parity))

    def release(self, slot: Any, condition: Any) -> None:
        """One arrival for this warp, where a condition holds: it has read all that it needs of a slot.

        Predicated: between products ptxas takes no branch, it would wait for each of them.
        """
        with e.stage("release"):
            e.sync_warp()
            arrives, text = self.kernel.lane == 0, "mbarrier.arrive.shared.b64"
            address = self.kernel.shared_address(self._barrier(slot, empty=True))
            if self.cast > 1:
                # One lane for each CTA that loads into this one. No scope of the cluster: fences of all memory would come
                # with it (measured on an H200: 905 us instead of 697), and nothing but the slot is to be seen.
                arrives, text = self.kernel.lane < self.cast, "mbarrier.arrive.shared::cluster.b64"
                place = self._barrier(slot, empty=True) - self.barriers
                address = self._there + e.cast("uint32", place)
            if condition is not True:
                arrives = e.both(arrives, condition)
            e.ptx_where(arrives, text, address)

    # -- the load warp -------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """All copies of this CTA's blocks, by one thread."""
        ring = self.ring
        with e.stage(ring.name), e.when(e.elected()):
            e.ptx("prefetch.tensormap", T.address_of(self.kernel.arg["x_map"]))
            if self.plan.persistent:
                self._fill_tiles(Cursor("filling", ring.slots, self.units))
                return
            first = self._overlap_predecessor() if self.plan.launch == "pdl" else 0
            cursor = Cursor("filling", ring.slots, self.units, first)
            with e.loop(self.turns - first, "load") as index:
                with e.when(first + index >= ring.slots):
                    # The first turn finds every slot empty; later ones wait for the turn before.
                    self._wait(self._barrier(cursor.slot, empty=True), cursor.phase ^ 1)
                self._constants(first + index, cursor.slot, cursor.place)
                self._activations(first + index, cursor.slot, cursor.place)
                cursor.advance()

    def _overlap_predecessor(self) -> int:
        """Fill the first slots beside the kernel before this one; returns how many.

        PTX ISA, "griddepcontrol": what no kernel before this one writes may be read before the wait. One slot's constants, and
        no more: further requests would stand in queues before the activations that both kernels ask for (on an H200, int4,
        8192 channels and columns, with the whole ring 14.6 us at M = 17 and 18.4 at M = 64, with two slots 13.0 and 17.2,
        with one 12.7 and 16.3).
        """
        e.ptx("griddepcontrol.launch_dependents")
        self._constants(0, 0, 0)
        e.ptx("griddepcontrol.wait")
        self._activations(0, 0, 0)
        return 1

    def _fill_tiles(self, cursor: Cursor) -> None:
        """The same for all tiles of a persistent CTA: the ring goes on from tile to tile."""
        if self.plan.launch == "pdl":
            e.ptx("griddepcontrol.launch_dependents")
            e.ptx("griddepcontrol.wait")
        self.of_cta()
        with e.loop(self.kernel.tiles_of_cta, "tile_turn") as tile_turn:
            self.kernel.enter_turn(tile_turn)
            self._fill_tile(cursor)
        if self.plan.split > 1:
            tile, exists = self.kernel.cluster_tile()
            with e.when(exists):
                self.of_cluster()
                self.kernel.enter_tile(tile)
                self._fill_tile(cursor)

    def _fill_tile(self, cursor: Cursor) -> None:
        with e.loop(self.turns, "load") as index:
            # The phase before the first is complete from the start: no wait in the first turn.
            self._wait(self._barrier(cursor.slot, empty=True), cursor.phase ^ 1)
            self._constants(index, cursor.slot, cursor.place)
            self._activations(index, cursor.slot, cursor.place)
            cursor.advance()

    def _constants(self, turn: Any, slot: Any, place: Any) -> None:
        """Expect all bytes of a slot, and start the copies of weights, scales and zeros."""
        kernel, ring, packing = self.kernel, self.ring, self.plan.packing
        barrier = kernel.shared_address(self._barrier(slot, empty=False))
        constants = ring.weight_bytes + ring.scale_bytes + ring.zero_bytes
        expected = self.rows * (self.boxes * BOX_BYTES) + constants
        e.ptx("mbarrier.arrive.expect_tx.shared.b64", barrier, e.cast("uint32", expected))
        block = self.first_block + turn
        cut = packing.geometry
        group = block * cut.groups_per_block // max(1, cut.padded_group // cut.block_k)
        band_words = BAND_TILES * packing.block_words
        band_rows = BAND_TILES * TILE_ROWS
        band = cut.blocks * band_words
        # within a band, too, 32 bits do not always do
        first = e.i64(block) * e.i64(band_words) if band > INT32_MAX else block * band_words
        self._bands("weight", ring.weight_bytes, first, band, place, barrier)
        for name, nbytes in (("scales", ring.scale_bytes), ("zeros", ring.zero_bytes)):
            if nbytes:
                self._bands(
                    name,
                    nbytes,
                    group * band_rows,
                    cut.padded_groups * band_rows,
                    place,
                    barrier,
                )

    def _bands(
        self, name: str, nbytes: int, first: Any, stride: int, place: Any, barrier: Any
    ) -> None:
        """One copy for each band of the CTA: ``first`` elements into the band, bands ``stride`` elements apart."""
        kernel, bands = self.kernel, self.plan.packing.bands
        count = self.plan.tiling.tile_rows // BAND_TILES
        size = nbytes // count
        for index in range(count):
            band = kernel.block_n * count + index
            if bands % count:
                # Beyond the last band the last one is read again; its products are never stored.
                band = e.least(band, bands - 1)
            source = kernel.arg[name].ptr_to([e.i64(band) * e.i64(stride) + e.i64(first)])
            target = kernel.shared_address(self.base + place + (self.offsets[name] + index * size))
            e.ptx(_BULK, target, source, e.u32(size), barrier)

    def _activations(self, turn: Any, slot: Any, place: Any) -> None:
        """Start the copies of a block's activations."""
        kernel, cut = self.kernel, self.plan.packing.geometry
        barrier = kernel.shared_address(self._barrier(slot, empty=False))
        box_bytes = self.plan.rows_loaded * BOX_BYTES
        # Where CTAs share their tokens, each brings a part of them to all.
        part = self.plan.rows_loaded // self.cast
        text, mask = _TENSOR, []
        if self.cast > 1:
            text, mask = f"{_TENSOR}.multicast::cluster", [e.u16((1 << self.cast) - 1)]
        token = kernel.first_token + kernel.peer * part
        first = kernel.peer * (part * BOX_BYTES)
        for box in range(self.boxes):
            k = (self.first_block + turn) * cut.block_k + box * self.box_k
            target = kernel.shared_address(
                self.base + place + (self.offsets["x"] + box * box_bytes) + first
            )
            tensor_map = T.address_of(kernel.arg["x_map"])
            e.ptx(text, target, tensor_map, k, token, barrier, *mask)
