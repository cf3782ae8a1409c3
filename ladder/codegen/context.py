"""What all stages of one kernel share while they are emitted: arguments, thread coordinates, shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ladder.codegen import emit as e
from ladder.codegen.tvm_api import IRBuilder, T
from ladder.scheduler.plan import Plan
from ladder.scheduler.raster import group_of
from ladder.scheduler.residency import grid_tiles

#: alignment of the shared-memory arena and of every region in it, in bytes
ARENA_ALIGN = 128
#: alignment of the arena itself: that of a 128-byte swizzle
ARENA_BASE_ALIGN = 1024

#: extent declared for buffers whose size the kernel does not know (activations, outputs): any 63-bit offset
UNBOUNDED = 1 << 62

#: how a dtype travels through the kernel: floats of 16 and 8 bits as integers, so that no C++ type of theirs is needed
STORAGE = {
    "float16": "uint16",
    "bfloat16": "uint16",
    "float32": "float32",
    "uint32": "uint32",
    "int8": "uint8",
    "uint8": "uint8",
    "float8_e4m3fn": "uint8",
    "float8_e5m2": "uint8",
    "float8_e8m0fnu": "uint8",
}


#: strides of x that a kernel takes; a tensor map holds them itself
X_STRIDES: dict[str, tuple[str, ...]] = {
    "vector": ("x_stride_m",),
    "scalar": ("x_stride_m", "x_stride_k"),
    "tensor": (),
    "column": (),
}


@dataclass(frozen=True)
class Argument:
    """One kernel argument as declared: its role and logical dtype."""

    name: str
    kind: Literal["buffer", "scalar", "tensor map"]
    dtype: str


def arguments_of(plan: Plan) -> tuple[Argument, ...]:
    """The arguments of a plan's kernel, in the order of declaration; the lowered order is TVM's."""
    packed = tuple(
        Argument(name, "buffer", dtype) for name, (_, dtype) in plan.packing.shapes().items()
    )
    op = plan.op
    bias = (Argument("bias", "buffer", op.out.name),) if op.bias else ()
    x_scale = (Argument("x_scale", "buffer", "float32"),) if op.activation_scale else ()
    residual = (Argument("residual", "buffer", op.out.name),) if op.residual else ()
    strides = X_STRIDES[plan.access] + ("y_stride_m",) + ("residual_stride_m",) * op.residual
    x = Argument("x", "buffer", op.activation.storage.name)
    if plan.access == "tensor":
        x = Argument("x_map", "tensor map", op.activation.dtype.name)
    return (
        x,
        *packed,
        *x_scale,
        *bias,
        *residual,
        Argument("y", "buffer", op.stored.dtype.name),
        Argument("m", "scalar", "int32"),
        *([Argument("y_pieces", "scalar", "int32")] if plan.stores_fragments else []),
        *(
            [Argument("residual_pieces", "scalar", "int32")]
            if plan.stores_fragments and op.residual
            else []
        ),
        *(Argument(stride, "scalar", "int64") for stride in strides),
    )


class Kernel:
    """The kernel under construction. Made inside an open PrimFunc frame.

    Attributes:
        plan: the plan that decides everything.
        arg: kernel arguments by role.
        rank: place of the CTA among those that share its K.
        peer: place of the CTA among those that share its tokens.
        lane, slice, warp_n, warp_m: the thread's place: lane of its warp, K slice, warp along channels and tokens.
        ring_thread: index of the thread among those that share a ring.
        first_tile: first 16-channel tile of the CTA.
        first_token: first token of the CTA.
        row_scales: first byte in the arena of the scales of the CTA's rows, or None where each is read from global memory.
        shared: views of the shared-memory arena by dtype, indexed in elements from the arena's start.
    """

    def __init__(self, plan: Plan, arena_bytes: int) -> None:
        self.plan = plan
        self.arg = self._declare_arguments()
        T.device_entry()
        # One block an SM is all that is promised: without this the compiler spills to make room for two.
        e.annotate("tirx.launch_bounds_min_blocks_per_sm", 1)
        tiling = plan.tiling
        ring_warps = tiling.ring_warps
        self.rank: Any = 0
        self.peer: Any = 0
        self.row_scales: int | None = None
        self.block_n: Any = 0
        self.block_m: Any = 0
        self.thread = self._coordinates(plan.threads)
        self.lane = e.bind(self.thread % 32, "lane")
        warp = e.bind(self.thread // 32, "warp")
        self.slice = e.bind(warp // ring_warps, "k_slice") if tiling.warps_k > 1 else 0
        ring_warp = warp % ring_warps
        self.warp_n = e.bind(ring_warp // tiling.warps_m, "warp_n") if ring_warps > 1 else 0
        self.warp_m = e.bind(ring_warp % tiling.warps_m, "warp_m") if tiling.warps_m > 1 else 0
        self.ring_thread = (
            self.lane if ring_warps == 1 else e.bind(self.thread % (32 * ring_warps), "ring_thread")
        )
        self.first_tile = e.bind(self.block_n * tiling.tile_rows, "first_tile")
        self.first_token = (
            e.bind(self.block_m * tiling.tokens, "first_token") if self.token_tiled else 0
        )
        self.shared = self._declare_arena(arena_bytes)
        self._arena_address = e.bind(e.shared_pointer(self.shared["uint8"], 0), "arena_address")

    def _share_tiles(self) -> None:
        """Split the output tiles of a persistent kernel: whole ones for every CTA in turns, the rest for clusters."""
        plan, ctas = self.plan, self.plan.persistent_ctas
        tokens = plan.tiling.tokens
        # not bound to a name: made anew for each tile it takes no register between them, of which there is none to spare
        self.token_tiles = (self.arg["m"] + (tokens - 1)) // tokens
        whole, _ = self._count_tiles(self.token_tiles)
        # The CTAs of a cluster, which follow each other, have tiles side by side, and as many of them.
        self.tiles_of_cta = e.bind((whole - self.cta + (ctas - 1)) // ctas, "tiles")

    def _count_tiles(self, token_tiles: Any) -> tuple[Any, Any]:
        """Output tiles that CTAs do alone, which come first, and all of them."""
        plan, ctas = self.plan, self.plan.persistent_ctas
        tiles = token_tiles * plan.channel_tiles
        if plan.split == 1:
            return tiles, tiles
        rest = e.bind(tiles % ctas, "rest")
        shared = e.select(rest <= ctas // plan.split, rest, 0)
        return e.bind(tiles - shared, "whole_tiles"), tiles

    def cluster_tile(self) -> tuple[Any, Any]:
        """Number of the output tile that the CTA's cluster shares, and whether there is one.

        Made of M at every call: known before the whole tiles are done, it would wait in registers beside all their products.
        """
        tokens = self.plan.tiling.tokens
        m = e.call("hold_u32", e.cast("uint32", self.arg["m"]))
        rows = e.hold(e.cast("int32", m), "rows", "int32")
        whole, tiles = self._count_tiles((rows + (tokens - 1)) // tokens)
        tile = e.bind(whole + self.cta // self.plan.split, "cluster_tile")
        return tile, tile < tiles

    def enter_tile(self, tile: Any) -> None:
        """Make an output tile the one that channels and tokens of the CTA belong to (:mod:`ladder.scheduler.raster`)."""
        plan, group = self.plan, group_of(self.plan)
        # Held, so that everything about a tile is made of its number where it is entered: parts of what the number is made of
        # would wait in registers beside the products, and what both kinds of warps make of it from before they part.
        tile = e.hold(tile, "tile", "int32")
        of_group = group * plan.channel_tiles
        first = e.bind(tile // of_group * group, "first_row")
        inside, columns = tile % of_group, plan.channel_tiles
        row, column = inside // columns, inside % columns
        if group > 1:
            whole = first + group <= self.token_tiles
            row = e.select(whole, inside % group, row)
            column = e.select(whole, inside // group, column)
        self.block_n = e.bind(column, "block_n")
        self.block_m = e.bind(first + row, "block_m")
        self.first_tile = e.bind(self.block_n * plan.tiling.tile_rows, "first_tile")
        self.first_token = e.bind(self.block_m * plan.tiling.tokens, "first_token")

    def enter_turn(self, turn: Any) -> None:
        """Enter the whole output tile of a turn."""
        self.enter_tile(self.cta + turn * self.plan.persistent_ctas)

    @property
    def loads(self) -> Any:
        """Whether the thread is of a warp that only loads."""
        return self.thread >= self.plan.tiling.threads

    @property
    def multiplies(self) -> Any:
        """Whether the thread is of a warp that multiplies."""
        return self.thread < self.plan.tiling.threads

    @property
    def token_tiled(self) -> bool:
        """Whether tokens spread over several CTAs."""
        most = self.plan.m_range[1]
        return most is None or most > self.plan.tiling.tokens

    @property
    def ring_threads(self) -> int:
        """Threads that share a ring."""
        return 32 * self.plan.tiling.ring_warps

    def _declare_arguments(self) -> dict[str, Any]:
        shapes = self.plan.packing.shapes()
        declared: dict[str, Any] = {}
        for argument in arguments_of(self.plan):
            if argument.kind == "tensor map":
                declared[argument.name] = _tensor_map(argument.name)
                continue
            if argument.kind == "scalar":
                declared[argument.name] = T.arg(
                    argument.name, T.int32() if argument.dtype == "int32" else T.int64()
                )
                continue
            handle = T.arg(argument.name, T.handle())
            extent = _elements(shapes[argument.name][0]) if argument.name in shapes else UNBOUNDED
            if argument.name == "bias":
                extent = self.plan.op.n
            buffer = T.match_buffer(handle, (extent,), STORAGE[argument.dtype], align=2)
            IRBuilder.name(argument.name, buffer)
            declared[argument.name] = buffer
        return declared

    def _coordinates(self, threads: int) -> Any:
        split = self.plan.split
        if self.plan.persistent:
            self.cta = T.cta_id([self.plan.persistent_ctas])
            self._places_in_cluster()
            thread = T.thread_id([threads])
            self._share_tiles()
            return thread
        extents = [grid_tiles(self.plan) * split]
        if self.token_tiled:
            tokens = self.plan.tiling.tokens
            extents.append((self.arg["m"] + (tokens - 1)) // tokens)
        ids = T.cta_id(extents)
        block: Any = ids
        if self.token_tiled:
            block, self.block_m = ids
        self.block_n = block
        self._places_in_cluster()
        if split > 1:
            self.block_n = e.bind(block // split, "block_n")
        return T.thread_id([threads])

    def _places_in_cluster(self) -> None:
        if self.plan.split > 1:
            self.rank = T.cta_id_in_cluster([self.plan.split])
        if self.plan.multicast > 1:
            self.peer = T.cta_id_in_cluster([self.plan.multicast])

    def _declare_arena(self, nbytes: int) -> dict[str, Any]:
        arena = T.alloc_buffer((nbytes,), "uint8", scope="shared.dyn", align=ARENA_BASE_ALIGN)
        IRBuilder.name("arena", arena)
        views = {"uint8": arena}
        for dtype, size in (("uint16", 2), ("uint32", 4), ("float32", 4), ("uint64", 8)):
            views[dtype] = T.decl_buffer(
                (nbytes // size,), dtype, data=arena.data, scope="shared.dyn", elem_offset=0
            )
        return views

    def shared_address(self, byte: Any) -> Any:
        """Shared-memory address (32 bits) of a byte of the arena.

        Plain 32-bit sums, so that a constant part becomes the immediate offset of an instruction.
        """
        return self._arena_address + e.cast("uint32", byte)


def _tensor_map(name: str) -> Any:
    """A tensor map, which the host encodes; the host code that TVM derives from this is not used."""
    handle = T.Bind(T.tvm_stack_alloca("tensormap", 1), var=T.handle("tensormap"))
    IRBuilder.name(name, handle)
    return handle


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
