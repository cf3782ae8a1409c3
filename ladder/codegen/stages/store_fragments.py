"""Transform-Store of the specialised family for outputs of 16 and 8 bits: fragments to rows of y by wide stores.

    registers (channels g, g+8 x tokens 2t, 2t+1)  --epilogue, cast, stmatrix.trans-->  shared [token][channel], swizzled
    shared                                         --16 bytes a thread-->               y[m, n]

``stmatrix`` with ``.trans`` writes 8 x 8 pieces token by token (PTX ISA, "stmatrix"), so that a thread then moves eight
neighbouring channels of one token. Where rows of y do not start at multiples of 16 bytes, elements are stored one by one.

A residual comes the same way back: 16 bytes a thread into the places of the outputs, and by ``ldmatrix.trans`` to the
registers of the sums that it is added to. All of it is read before any of y is written, so that y may lie where it lay.
Behind a gate one channel is left of two, g of the tile's eight.

Codes of 8 bits are staged as the low bytes of 16, and put together on their way out: eight channels are then 8 bytes of y.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ladder.codegen import emit as e
from ladder.codegen.context import Kernel
from ladder.codegen.stages.activations import swizzled_chunk
from ladder.codegen.stages.epilogue import Place, Token, apply_epilogue
from ladder.codegen.widen import narrow_pair, widen_pair
from ladder.scheduler.row_order import HALF
from ladder.scheduler.stage import CHUNK_BYTES
from ladder.scheduler.tiling import TILE_TOKENS

_STMATRIX = "stmatrix.sync.aligned.m8n8.{}.trans.shared.b16"
_LDMATRIX = "ldmatrix.sync.aligned.m8n8.{}.trans.shared.b16"
_COPY = "cp.async.cg.shared.global.L2::128B"
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
        self.per_row = kernel.plan.out_channels // _CHUNK
        # pieces of 8 channels that a warp has of a token tile
        self.pieces = 1 if kernel.plan.op.gated else 2

    @property
    def bytes(self) -> int:
        """Bytes of the staging area."""
        return self.token_tiles * TILE_TOKENS * self.per_row * CHUNK_BYTES

    def bring_residual(self) -> None:
        """Start to copy the residual of the outputs to their places, zeros where there is none; a group of copies of its own."""
        kernel, n = self.kernel, self.kernel.plan.op.out_n
        residual, pieces = kernel.arg["residual"], kernel.arg["residual_pieces"]
        whole = n % _CHUNK == 0
        with self._chunks("residual_chunk") as (token, chunk, m, channel):
            exists = e.both(channel < n, m < kernel.arg["m"])
            offset = e.i64(m) * kernel.arg["residual_stride_m"] + e.i64(channel)
            offset = e.bind(offset, "residual_offset")
            place = swizzled_chunk(token, chunk, self.per_row) * CHUNK_BYTES + self.base
            if whole:
                with e.when(pieces != 0):
                    target = kernel.shared_address(place)
                    size = e.select(exists, e.u32(CHUNK_BYTES), e.u32(0))
                    e.ptx(_COPY, target, residual.ptr_to([offset]), CHUNK_BYTES, size)
            with e.when(pieces == 0 if whole else True), e.loop(_CHUNK, "element") as i:
                element = e.registers("element_bits", 1, "uint16")
                e.store(element, 0, e.u16(0))
                with e.when(exists if whole else e.both(exists, channel + i < n)):
                    e.store(element, 0, residual[offset + e.i64(i)])
                e.store(kernel.shared["uint16"], place // 2 + i, element[0])
        e.ptx("cp.async.commit_group")

    def stage(self, totals: Totals, first: Any, count: int) -> None:
        """Run the epilogue on ``count`` token tiles from ``first`` on, and write them to the staging area."""
        for offset in range(0, count, 2):
            size = min(2, count - offset)
            out = self.kernel.plan.op.stored.dtype.name
            address = self._address(first + offset, size)
            residuals = self._residuals(address, size * self.pieces)
            words: list[Any] = []
            for tile in range(offset, offset + size):
                tokens = [self._token(first + tile, column) for column in range(2)]
                four = totals(first + tile)
                for piece in range(self.pieces):
                    added = residuals[len(words)]
                    halves = (piece,) if self.pieces == 2 else (0, 1)
                    values = [
                        self._finished(
                            [four[2 * h + j] for h in halves], piece, tokens[j], added[j]
                        )
                        for j in range(2)
                    ]
                    words.append(narrow_pair(out, *values))
            held = e.registers("stored", len(words), "uint32")
            for index, word in enumerate(words):
                e.store(held, index, word)
            stored = [held[index] for index in range(len(words))]
            e.ptx(_STMATRIX.format(f"x{len(words)}"), address, *stored)

    def _residuals(self, address: Any, count: int) -> list[tuple[Any, Any]]:
        """What is added to tokens 2t and 2t+1 of each piece, in float32; None where nothing is."""
        if not self.kernel.plan.op.residual:
            return [(None, None)] * count
        words = e.registers("residuals", count, "uint32")
        e.ptx(_LDMATRIX.format(f"x{count}"), *(words[i] for i in range(count)), address)
        pairs = [widen_pair(self.kernel.plan.op.out.name, words[i]) for i in range(count)]
        return [pair for pair in pairs if pair is not None]

    def _token(self, tile: Any, column: int) -> Token:
        """Row of an output: of the tile's column 2t + ``column``."""
        place = tile * TILE_TOKENS + self.kernel.lane % 4 * 2 + column
        return Token(self.kernel, self.first_row + place)

    def _finished(self, parts: list[Any], piece: int, token: Token, residual: Any) -> Any:
        plan, kernel = self.kernel.plan, self.kernel
        column = kernel.warp_n * (HALF * self.pieces) + kernel.lane // 4 + HALF * piece
        channel = kernel.block_n * plan.out_channels + column
        if plan.channel_tiles * plan.out_channels != plan.op.out_n:
            # Channels that do not exist are not stored; what the epilogue reads for them has to exist.
            channel = e.least(channel, plan.op.out_n - 1)
        value = apply_epilogue(kernel, parts, Place(channel, token, residual))
        return e.hold(value, "finished", "float32")

    def _address(self, first: Any, tiles: int) -> Any:
        """Where the lane's row goes: lanes 8i .. 8i+7 name the rows (tokens) of piece i, counted tile by tile."""
        rows = HALF * self.pieces
        lane = self.kernel.lane % (rows * tiles)
        token = (first + lane // rows) * TILE_TOKENS + lane % 8
        chunk = self.kernel.warp_n * self.pieces + lane // 8 % self.pieces
        place = swizzled_chunk(token, chunk, self.per_row)
        return self.kernel.shared_address(self.base + place * CHUNK_BYTES)

    def copy_out(self) -> None:
        """Move the staged outputs to y; a barrier of the warps that multiply comes before."""
        kernel = self.kernel
        with self._chunks("output") as (token, chunk, m, channel):
            exists = e.both(channel < kernel.plan.op.out_n, m < kernel.arg["m"])
            with e.when(exists):
                self._store(token, chunk, m, channel)

    @contextmanager
    def _chunks(self, name: str) -> Iterator[tuple[Any, Any, Any, Any]]:
        """A loop over the thread's chunks of the outputs: token and chunk in the staging area, row and channel of y."""
        kernel, plan = self.kernel, self.kernel.plan
        count = self.token_tiles * TILE_TOKENS * self.per_row
        threads = plan.tiling.threads
        with e.loop(-(-count // threads), name) as i:
            index = i * threads + kernel.thread
            with e.when(True if count % threads == 0 else index < count):
                token, chunk = index // self.per_row, index % self.per_row
                channel = kernel.block_n * plan.out_channels + chunk * _CHUNK
                m = kernel.first_token + (self.first_row + token)
                yield token, chunk, m, channel

    def _store(self, token: Any, chunk: Any, m: Any, channel: Any) -> None:
        kernel, n = self.kernel, self.kernel.plan.op.out_n
        place = swizzled_chunk(token, chunk, self.per_row) * _CHUNK + self.base // 2
        offset = e.bind(e.i64(m) * kernel.arg["y_stride_m"] + e.i64(channel), "offset")
        y = kernel.arg["y"]
        if n % _CHUNK == 0:
            with e.when(kernel.arg["y_pieces"] != 0):
                piece = e.registers("piece", 4, "uint32")
                e.load_vector(piece, 0, kernel.shared["uint32"], place // 2, 4)
                self._store_piece(y.ptr_to([offset]), [piece[i] for i in range(4)])
        whole = n % _CHUNK == 0
        apart = kernel.arg["y_pieces"] == 0 if whole else True
        with e.when(apart), e.loop(_CHUNK, "element") as i, e.when(whole or channel + i < n):
            element = kernel.shared["uint16"][place + i]
            coded = kernel.plan.op.codes is not None
            e.store(y, offset + e.i64(i), e.cast("uint8", element) if coded else element)

    def _store_piece(self, target: Any, words: list[Any]) -> None:
        """Write eight channels of a token."""
        if self.kernel.plan.op.codes is None:
            e.ptx("st.global.v4.b32", target, *words)
            return
        low, high = (e.call("prmt", words[i], words[i + 1], e.u32(0x6420)) for i in (0, 2))
        e.ptx("st.global.v2.b32", target, low, high)
