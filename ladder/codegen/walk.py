"""The main loop: walk the blocks of a K slice through its ring.

Without lookahead:

    for each block:   wait for its slot; ring barrier; start the copies of a later block
                      for each pair of steps: decode the next pair, read the next activations, multiply, flush

With lookahead the loop is turned by one pair: during the last pair of a block the slot of the next one is waited for, and
that block's first fragments are made. Products then follow each other across blocks, for one slot less in flight.

    first fragments of block 0
    for each block:   all pairs but the last
                      wait for the next slot; ring barrier; copies; last pair, beside it the next block's first fragments
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ladder.codegen import emit as e
from ladder.codegen.block import Block, Fragment, Pair
from ladder.codegen.context import ARENA_ALIGN, Kernel
from ladder.codegen.stages.columns import TokenColumns
from ladder.codegen.stages.group_scale import GroupScaleEmitter
from ladder.codegen.stages.load_ring import ACTIVATIONS, CONSTANTS, RingEmitter
from ladder.scheduler.geometry import LONG_ATOM_STEPS
from ladder.scheduler.residency import early_blocks, is_paced
from ladder.scheduler.walk import blocks_ahead, holds_slice

#: register banks of B fragments: two take turns, the third carries over from block to block
_CARRY_BANK = 2


class Walk:
    """Emits the loop over blocks."""

    def __init__(
        self,
        kernel: Kernel,
        ring: RingEmitter,
        block: Block,
        scale: GroupScaleEmitter,
        token: TokenColumns | None = None,
    ) -> None:
        self.kernel, self.ring, self.block, self.scale = kernel, ring, block, scale
        self.token = token
        self.plan = kernel.plan
        self.blocks, self.depth = self.plan.packing.geometry.blocks, self.plan.depth
        self.ahead, self.holds_slice = blocks_ahead(self.plan), holds_slice(self.plan)
        self.units = self.plan.load_ring.slot_bytes // ARENA_ALIGN
        self.bank = 0

    def emit(self) -> None:
        """The loop; the rings are filled already."""
        # Cursors count units, so that a slot's address is visibly aligned and wide loads stay wide.
        self.cursor = e.registers("cursor", 2, "int32")
        e.store(self.cursor, 0, 0)
        e.store(self.cursor, 1, (self.depth - 1) * self.units)
        if self.plan.lookahead:
            self._emit_lookahead()
        else:
            self._emit_plain()

    # -- the two loops -------------------------------------------------------------------------------------------

    def _emit_plain(self) -> None:
        with e.loop(self._turns(), "turn", together=self._together()) as turn:
            e.ptx("cp.async.wait_group", self.ahead - 1)
            self.ring_barrier()
            slot = self._slot(0, "slot")
            self._copy_ahead(turn)
            self._next_token(turn)
            self.block.enter()
            self.block.decode_to_shared(slot, self.ring_barrier)
            pairs = self.block.pairs
            fragments = [part() for part in self.block.preparation(slot, pairs[0])]
            b = self._read(slot, pairs[0], self.block.groups[0])
            for pair, following in zip(pairs, (*pairs[1:], None), strict=True):
                if self._holds_back(pair):
                    e.sync_warp()
                fragments, b = self._pair(slot, pair, fragments, b, (slot, following))
            self._advance()

    def _emit_lookahead(self) -> None:
        pairs, groups = self.block.pairs, self.block.groups
        first = self.ring.base
        e.ptx("cp.async.wait_group", self.depth - 2)
        self.ring_barrier()
        self.block.enter()
        count = len(pairs[0].halves) * self.plan.tiling.row_tiles
        self.carried = e.registers("carried", 4 * count, "uint32")
        self._carry([part() for part in self.block.preparation(first, pairs[0])])
        self.block.read(first, pairs[0], groups[0], _CARRY_BANK)
        turns = self._turns()
        with e.loop(turns, "turn") as turn:
            slot = self._slot(0, "slot")
            # After the last block nothing follows: its own slot is read once more, and the fragments are dropped.
            succeeding = e.select(turn + 1 < turns, self._following(0), self.cursor[0])
            following_slot = e.bind(self.ring.base + succeeding * ARENA_ALIGN, "following_slot")
            # The first atom's words are read once more for its later steps: cheaper than carrying them.
            self.block.enter()
            fragments = self._carried_fragments()
            b = self.block.carried(slot, pairs[0], groups[0], _CARRY_BANK)
            for pair, following in itertools.pairwise(pairs):
                fragments, b = self._pair(slot, pair, fragments, b, (slot, following))
            e.ptx("cp.async.wait_group", self.depth - 3)
            self.ring_barrier()
            self.block.enter()
            fragments, _ = self._pair(
                slot,
                pairs[-1],
                fragments,
                b,
                (following_slot, pairs[0]),
                carry=True,
                copies=self._copies_ahead(turn),
            )
            e.ptx("cp.async.commit_group")
            self._carry(fragments)
            self._advance()

    def _pair(
        self,
        slot: Any,
        pair: Pair,
        fragments: list[Fragment],
        b: Any,
        following: tuple[Any, Pair | None],
        *,
        carry: bool = False,
        copies: Sequence[Callable[[], None]] = (),
    ) -> tuple[list[Fragment], Any]:
        """Multiply a pair; beside its products decode and read what follows, and start copies.

        Returns the fragments of the following pair and its first activations.
        """
        if self.block.multiply.asynchronous:
            return self._pair_asynchronous(slot, pair, fragments, b, following, copies)
        next_slot, next_pair = following
        groups = self.block.groups
        parts = [] if next_pair is None else self.block.preparation(next_slot, next_pair)
        upcoming: list[Fragment] = []
        terms = None if pair.flush is None else self.scale.open(slot, pair.flush)
        for place, tiles in enumerate(groups):
            upcoming += [part() for part in _share(parts, place, len(groups))]
            for copy in _share(copies, place, len(groups)):
                copy()
            ahead = b
            if place + 1 < len(groups):
                ahead = self._read(slot, pair, groups[place + 1])
            elif next_pair is not None:
                ahead = self._read(next_slot, next_pair, groups[0], carry=carry)
            self.block.products(pair, fragments, b, tiles)
            if terms is not None and place:
                self.scale.flush(terms, groups[place - 1])
            b = ahead
        if terms is not None:
            self.scale.flush(terms, groups[-1])
        return upcoming, b

    def _pair_asynchronous(
        self,
        slot: Any,
        pair: Pair,
        fragments: list[Fragment],
        b: Any,
        following: tuple[Any, Pair | None],
        copies: Sequence[Callable[[], None]],
    ) -> tuple[list[Fragment], Any]:
        """The same where products run by themselves: they are issued first, and all else is done meanwhile.

        The fragments of a pair are free once the pair after it was issued and all but one pair waited for.
        """
        next_slot, next_pair = following
        (tiles,) = self.block.groups
        self.block.products(pair, fragments, b, tiles)
        self.block.multiply.settle(1)
        terms = None if pair.flush is None else self.scale.open(slot, pair.flush)
        upcoming: list[Fragment] = []
        if next_pair is not None:
            upcoming = [part() for part in self.block.preparation(next_slot, next_pair)]
            b = self._read(next_slot, next_pair, tiles)
        for copy in copies:
            copy()
        if terms is not None:
            self.block.multiply.settle(0)
            self.scale.flush(terms, tiles)
        return upcoming, b

    # -- registers -----------------------------------------------------------------------------------------------

    def _read(self, slot: Any, pair: Pair, tiles: tuple[int, ...], *, carry: bool = False) -> Any:
        self.bank = 1 - self.bank
        return self.block.read(slot, pair, tiles, _CARRY_BANK if carry else self.bank)

    def _carry(self, fragments: list[Fragment]) -> None:
        """Keep the first fragments of the next block where the next turn of the loop finds them."""
        for index, fragment in enumerate(fragments):
            for register, value in enumerate(fragment):
                e.store(self.carried, 4 * index + register, value)

    def _carried_fragments(self) -> list[Fragment]:
        count = len(self.block.pairs[0].halves) * self.plan.tiling.row_tiles
        return [[self.carried[4 * index + i] for i in range(4)] for index in range(count)]

    # -- slots ---------------------------------------------------------------------------------------------------

    def fill_rings(self, beside: Callable[[], None]) -> None:
        """Start the copies of the blocks ahead of the loop.

        Args:
            beside: emits what else needs nothing of the kernel before this one, while copies are on their way.
        """
        early = self._overlap_predecessor(beside) if self.plan.launch == "pdl" else 0
        # With a token in registers nothing is left to copy into the slots that were filled early.
        for turn in range(0 if self.token is None else early, self.ahead):
            self._fill_slot(turn, ACTIVATIONS if turn < early else self.ring.operands)
            e.ptx("cp.async.commit_group")
        if self.token is not None:
            self.token.fetch(e.least(self._block(0), self.blocks - 1))
        if self.plan.launch != "pdl":
            beside()

    def _next_token(self, turn: Any) -> None:
        """Where activations lie in registers: take those of this block, and fetch the next ones."""
        if self.token is not None:
            self.token.take(self._block(turn))
            self.token.fetch(e.least(self._block(turn + 1), self.blocks - 1))

    def _overlap_predecessor(self, beside: Callable[[], None]) -> int:
        """Start what the kernel before this one cannot have written, then wait for it; returns how many slots were filled.

        PTX ISA, "griddepcontrol": the wait returns when the kernels before have completed and their writes are visible.
        Every thread waits, so that this kernel's own completion implies theirs.
        """
        e.ptx("griddepcontrol.launch_dependents")
        early, paced = early_blocks(self.plan), is_paced(self.plan)
        for turn in range(early):
            if paced and turn:
                e.ptx("cp.async.wait_group", 0)
            self._fill_slot(turn, CONSTANTS)
            if paced or self.token is not None:
                # With a token in registers nothing else comes into the slots: the first may be waited for alone.
                e.ptx("cp.async.commit_group")
        beside()
        e.ptx("griddepcontrol.wait")
        return early

    def _fill_slot(self, turn: int, operands: Sequence[str]) -> None:
        block = self._block(turn)
        exists = True
        if (turn + 1) * self.plan.tiling.warps_k > self.blocks:
            exists = block < self.blocks
        with e.when(exists):
            slot = self.ring.base + turn * self.plan.load_ring.slot_bytes
            self.ring.issue(block, slot, operands)

    def _copy_ahead(self, turn: Any) -> None:
        if not self.holds_slice:
            ahead, free = self._block(turn + self.ahead), self._slot(1, "free_slot")
            with e.when(ahead < self.blocks):
                self.ring.issue(ahead, free)
        # One group a turn, of nothing where nothing is left: a wait counts groups.
        e.ptx("cp.async.commit_group")

    def _copies_ahead(self, turn: Any) -> list[Callable[[], None]]:
        """The same without a branch: beyond the last block the last one is copied again, into a slot that nobody reads."""
        ahead = e.bind(e.least(self._block(turn + (self.depth - 1)), self.blocks - 1), "ahead")
        return self.ring.copies(ahead, self._slot(1, "free_slot"))

    @property
    def _is_long(self) -> bool:
        """Whether a ring's blocks are so long that the compiler, mixing all steps or several blocks, spills registers."""
        return self.plan.family == "ring" and self.block.program.steps >= LONG_ATOM_STEPS

    def _together(self) -> int | None:
        """Turns of the loop that the compiler may unroll: as it likes, but for long blocks, which hide a turn's start."""
        return 1 if self._is_long else None

    def _holds_back(self, pair: Pair) -> bool:
        """Whether reads of later steps than the next pair's wait here, so that no block's fragments all live at once.

        Fragments that come from shared memory need no decoding beside the products, which would delay them.
        """
        first_half = pair.step > 0 and pair.halves[0] == 0
        return first_half and (self._is_long or self.plan.convert == "shared")

    def _turns(self) -> Any:
        slices = self.plan.tiling.warps_k
        if self.blocks % slices == 0:
            return self.blocks // slices
        return e.bind((self.blocks - self.kernel.slice + (slices - 1)) // slices, "turns")

    def _block(self, turn: Any) -> Any:
        """Block that a slice meets in a turn: slices take blocks in turns, so that a CTA reads consecutive bytes."""
        return turn * self.plan.tiling.warps_k + self.kernel.slice

    def _slot(self, cursor: int, name: str) -> Any:
        return e.bind(self.ring.base + self.cursor[cursor] * ARENA_ALIGN, name)

    def _following(self, cursor: int) -> Any:
        """The cursor one slot on; the last slot is followed by the first."""
        last = (self.depth - 1) * self.units
        return e.select(self.cursor[cursor] == last, 0, self.cursor[cursor] + self.units)

    def _advance(self) -> None:
        for cursor in range(2):
            e.store(self.cursor, cursor, self._following(cursor))

    def ring_barrier(self) -> None:
        """Barrier of the warps that share a ring, after which all see what was copied."""
        self.block.multiply.before_barrier()
        tiling = self.plan.tiling
        if tiling.ring_warps == 1:
            e.sync_warp()
        elif tiling.warps_k == 1:
            e.sync_cta()
        else:
            # Barrier 0 is the CTA's; slices take 1 .. warps_k.
            e.sync_named(self.kernel.slice + 1, 32 * tiling.ring_warps)


P = TypeVar("P")


def _share(parts: Sequence[P], place: int, places: int) -> Sequence[P]:
    """The part of some work that falls to one of several places."""
    count = len(parts)
    return parts[-(-count * place // places) : -(-count * (place + 1) // places)]
