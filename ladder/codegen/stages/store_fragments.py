"""Transform-Store of the specialised family for outputs of 16 bits: fragments to rows of y by 16-byte stores.

    registers (channels g, g+8 x tokens 2t, 2t+1)  --epilogue, cast, stmatrix.trans-->  shared [token][channel], swizzled
    shared                                         --16 bytes a thread-->               y[m, n]

``stmatrix`` with ``.trans`` writes 8 x 8 pieces token by token (PTX ISA, "stmatrix"), so that a thread then moves eight
neighbouring channels of one token. Where rows of y do not start at multiples of 16 bytes, elements are stored one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.activations import swizzled_chunk
from ladder.codegen.stages.epilogue import Place, Token, apply_epilogue
from ladder.codegen.widen import narrow_pair
from ladder.scheduler.packing import TILE_ROWS
from ladder.scheduler.stage import CHUNK_BYTES
from ladder.scheduler.tiling import TILE_TOKENS

_STMATRIX = "stmatrix.sync.aligned.m8n8.{}.trans.shared.b16"
_CHUNK = CHUNK_BYTES // 2

#: the four totals of a token tile: channels g, g, g+8, g+8 with tokens 2t, 2t+1 of either
Totals = Callable[[Any], list[Any]]


class FragmentStore:
    """Emits the store of one kernel.

    Attributes:
        base: first byte of the staging area in the arena.
        token_tiles: token tiles that this CTA finishes.
        first_row: first token of those, from the CTA's first token.
    """

    def __init__(self, kernel: Kernel, base: int, token_tiles: int, first_row: Any) -> None:
        self.kernel, self.base = kernel, base
        self.token_tiles, self.first_row = token_tiles, first_row
        self.per_row = kernel.plan.tiling.channels // _CHUNK

    def stage(self, totals: Totals, first: Any, count: int) -> None:
        """Run the epilogue on ``count`` token tiles from ``first`` on, and write them to the staging area."""
        for offset in range(0, count, 2):
            size = min(2, count - offset)
            words: list[Any] = []
            for tile in range(offset, offset + size):
                tokens = [self._token(first + tile, column) for column in range(2)]
                values = [
                    self._finished(value, register // 2, tokens[register % 2])
                    for register, value in enumerate(totals(first + tile))
                ]
                out = self.kernel.plan.op.out.name
                words += [narrow_pair(out, *values[2 * half : 2 * half + 2]) for half in range(2)]
            held = e.registers("stored", len(words), "uint32")
            for index, word in enumerate(words):
                e.store(held, index, word)
            address = self._address(first + offset, size)
            stored = [held[index] for index in range(len(words))]
            e.ptx(_STMATRIX.format(f"x{len(words)}"), address, *stored)

    def _token(self, tile: Any, column: int) -> Token:
        """Row of an output: of the tile's column 2t + ``column``."""
        place = tile * TILE_TOKENS + self.kernel.lane % 4 * 2 + column
        return Token(self.kernel, self.first_row + place)

    def _finished(self, value: Any, half: int, token: Token) -> Any:
        plan, kernel = self.kernel.plan, self.kernel
        row = kernel.warp_n * TILE_ROWS + kernel.lane // 4 + 8 * half
        channel = kernel.block_n * plan.tiling.channels + row
        if plan.channel_tiles * plan.tiling.channels != plan.op.n:
            # Channels that do not exist are not stored; what the epilogue reads for them has to exist.
            channel = e.least(channel, plan.op.n - 1)
        return e.hold(apply_epilogue(kernel, value, Place(channel, token)), "finished", "float32")

    def _address(self, first: Any, tiles: int) -> Any:
        """Where the lane's row goes: lanes 8i .. 8i+7 name the rows (tokens) of piece i = 2 * tile + half."""
        lane = self.kernel.lane % (16 * tiles)
        token = (first + lane // 16) * TILE_TOKENS + lane % 8
        chunk = self.kernel.warp_n * 2 + lane // 8 % 2
        place = swizzled_chunk(token, chunk, self.per_row)
        return self.kernel.shared_address(self.base + place * CHUNK_BYTES)

    def copy_out(self) -> None:
        """Move the staged outputs to y; a barrier of the warps that multiply comes before."""
        kernel, plan = self.kernel, self.kernel.plan
        count = self.token_tiles * TILE_TOKENS * self.per_row
        threads = plan.tiling.threads
        with e.loop(-(-count // threads), "output") as i:
            index = i * threads + kernel.thread
            with e.when(True if count % threads == 0 else index < count):
                token, chunk = index // self.per_row, index % self.per_row
                channel = kernel.block_n * plan.tiling.channels + chunk * _CHUNK
                m = kernel.first_token + (self.first_row + token)
                with e.when(e.both(channel < plan.op.n, m < kernel.arg["m"])):
                    self._store(token, chunk, m, channel)

    def _store(self, token: Any, chunk: Any, m: Any, channel: Any) -> None:
        kernel, n = self.kernel, self.kernel.plan.op.n
        place = swizzled_chunk(token, chunk, self.per_row) * _CHUNK + self.base // 2
        offset = e.bind(e.i64(m) * kernel.arg["y_stride_m"] + e.i64(channel), "offset")
        y = kernel.arg["y"]
        if n % _CHUNK == 0:
            with e.when(kernel.arg["y_pieces"] != 0):
                piece = e.registers("piece", 4, "uint32")
                e.load_vector(piece, 0, kernel.shared["uint32"], place // 2, 4)
                words = [piece[i] for i in range(4)]
                e.ptx("st.global.v4.b32", y.ptr_to([offset]), *words)
        whole = n % _CHUNK == 0
        apart = kernel.arg["y_pieces"] == 0 if whole else True
        with e.when(apart), e.loop(_CHUNK, "element") as i, e.when(whole or channel + i < n):
            e.store(y, offset + e.i64(i), kernel.shared["uint16"][place + i])
