"""Lowering of plans that quantise activations: the largest magnitude of a row, then its codes.

pieces of x -> registers        (vector access; elements are read again where it is scalar)
largest |x| of a thread         a word at once, two lanes where it holds two; a NaN wherever there is one
... of a warp, of a row         as bits without sign: floats of one sign are in the order of their bits
scale = max(largest / top, 2^-126); code = x * (1 / scale), to nearest even, saturating: an integer is rounded once, from
                                the exact product, a float from the product in float32
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ladder.codegen import emit as e
from ladder.codegen.context import STORAGE, UNBOUNDED
from ladder.codegen.kernel import CeilDiv, Launch, LoweredKernel, Parameter
from ladder.codegen.listing import listing
from ladder.codegen.source_words import WORDS
from ladder.codegen.tvm_api import IRBuilder, T, lower_to_cuda
from ladder.codegen.widen import widen
from ladder.errors import LoweringError
from ladder.graph.quantize_activations import LEAST_SCALE
from ladder.scheduler.quantize_plan import LANES, PIECE_BYTES, QuantizePlan

#: words of 32 bits of a piece
_WORDS = PIECE_BYTES // 4

#: role -> kind and dtype of the arguments, in the order of declaration; x and y have those of the operator
_ARGUMENTS = (
    ("x", "buffer", ""),
    ("y", "buffer", ""),
    ("x_scale", "buffer", "float32"),
    ("m", "scalar", "int32"),
    ("x_stride_m", "scalar", "int64"),
    ("x_stride_k", "scalar", "int64"),
)


#: targets whose codes are rounded by a sum, which makes no code of a NaN
_ROUNDED = frozenset({"int8", "int4"})

#: 1.5 * 2^23: a sum with it has no bits below 1, so that its last byte is the integer that a small number rounds to
ROUNDER = 12582912.0


def _rounded(value: Any, inverse: Any) -> Any:
    """``ROUNDER`` + the integer nearest to the exact product: one fma, which rounds to even at four times a conversion's rate."""
    return e.fma(value, inverse, e.f32(ROUNDER))


def over_top(value: Any, top: float) -> Any:
    """``value / top`` of a magnitude, rounded once where it is normal: by the inverse, and one step of Newton's.

    A test tries all magnitudes of 16 bits, and all mantissas of a float32, for all tops.
    """
    inverse = e.f32(float(np.float32(1 / top)))
    near = e.bind(value * inverse, "near")
    rest = e.fma(e.f32(0.0) - near, e.f32(top), value)
    return e.fma(rest, inverse, near)


def _int8_word(values: list[Any], inverse: Any) -> Any:
    """Four codes in a word, the first lowest."""
    assert len(values) == 4
    codes = [e.f32_as_bits(_rounded(value, inverse)) for value in values]
    low = e.call("prmt", codes[0], codes[1], e.u32(0x0040))
    high = e.call("prmt", codes[2], codes[3], e.u32(0x0040))
    return e.call("prmt", low, high, e.u32(0x5410))


def _int4_word(values: list[Any], inverse: Any) -> Any:
    """Eight codes in a word: bytes of every other code, whose upper halves are copies of the sign, one above the other."""
    even, odd = (_int8_word(values[first::2], inverse) for first in range(2))
    low, high = e.u32(0x0F0F0F0F), e.u32(0xF0F0F0F0)
    return (even & low) | ((odd << e.u32(4)) & high)


def _e4m3_word(values: list[Any], inverse: Any) -> Any:
    scaled = [value * inverse for value in values]
    low, high = (
        e.cast("uint32", e.call("cvt_e4m3x2_f32", scaled[i + 1], scaled[i])) for i in (0, 2)
    )
    return low | (high << e.u32(16))


def _e4m3_byte(value: Any, inverse: Any) -> Any:
    return e.cast("uint8", e.call("cvt_e4m3x2_f32", e.f32(0.0), value * inverse))


def _int8_byte(value: Any, inverse: Any) -> Any:
    """The conversion makes 0 of a NaN."""
    whole = _rounded(value, inverse) - e.f32(ROUNDER)
    return e.cast("uint8", e.call("cvt_s8_f32", whole))


#: target -> (float32 as many as fill it, the inverse of their scale) to a word of codes, (one, the inverse) to a byte
_WORD: dict[str, Callable[[list[Any], Any], Any]] = {
    "int8": _int8_word,
    "fp8_e4m3fn": _e4m3_word,
    "int4": _int4_word,
}
_BYTE: dict[str, Callable[[Any, Any], Any]] = {
    "int8": _int8_byte,
    "fp8_e4m3fn": _e4m3_byte,
    "int4": _int8_byte,
}
#: stores of a piece's codes, by their bytes
_STORES = {2: "st.global.b16", 4: "st.global.b32", 8: "st.global.v2.b32"}


class _Quantizer:
    """The kernel under construction. Made inside an open PrimFunc frame."""

    def __init__(self, plan: QuantizePlan) -> None:
        self.plan, self.op = plan, plan.op
        self.source = WORDS[plan.op.source.name]
        self.arg = self._declare()
        T.device_entry()
        rows = plan.rows
        block = T.cta_id([(self.arg["m"] + (rows - 1)) // rows])
        thread = T.thread_id([plan.threads])
        self.lane = e.bind(thread % LANES, "lane")
        self.warp = e.bind(thread // LANES, "warp")
        self.within = e.bind(thread % plan.row_threads, "within")
        self.row = e.bind(block * rows + thread // plan.row_threads, "row")
        #: whether there is such a row; a CTA with one row has it
        self.exists = self.row < self.arg["m"] if rows > 1 else True
        words = plan.shared_bytes // 4
        self.shared = T.alloc_buffer((words,), "uint32", scope="shared.dyn", align=16)
        IRBuilder.name("largest", self.shared)

    def _declare(self) -> dict[str, Any]:
        declared: dict[str, Any] = {}
        for role, kind, dtype in arguments_of(self.plan):
            if kind == "scalar":
                declared[role] = T.arg(role, T.int32() if dtype == "int32" else T.int64())
                continue
            handle = T.arg(role, T.handle())
            storage = "uint8" if role == "y" else STORAGE[dtype]
            buffer = T.match_buffer(handle, (UNBOUNDED,), storage, align=1)
            IRBuilder.name(role, buffer)
            declared[role] = buffer
        return declared

    def emit(self) -> None:
        if self.plan.launch == "pdl":
            e.ptx("griddepcontrol.launch_dependents")
            e.ptx("griddepcontrol.wait")
        self.most = e.registers("most", 1, "uint32")
        e.store(self.most, 0, e.u32(0))
        rows = _Pieces(self) if self.plan.access == "vector" else _Elements(self)
        with e.stage("load"):
            rows.measure()
        largest = self._reduce()
        inverse = self._scale(largest)
        with e.stage("store"):
            if self.op.target.name in _ROUNDED:
                is_infinite = largest >= e.u32(self.source.infinity)
                with e.when(is_infinite):
                    rows.forget()
                inverse = e.hold(e.select(is_infinite, e.f32(0.0), inverse), "factor", "float32")
            rows.quantize(inverse)

    def take(self, word: Any) -> None:
        """Take the magnitudes of a word's elements into the largest."""
        e.store(self.most, 0, self.source.larger(self.most[0], word))

    def _reduce(self) -> Any:
        """The bits of the row's largest magnitude."""
        with e.stage("reduce"):
            warps = self.plan.warps
            largest = e.registers("of_row", 1, "uint32")
            e.store(largest, 0, self.source.largest(self.most[0]))
            self._of_warp(largest)
            if warps == 1:
                return largest[0]
            with e.when(self.lane == 0):
                e.store(self.shared, self.warp, largest[0])
            e.sync_cta()
            first = e.bind(self.warp // warps * warps, "first_warp")
            with e.when(self.lane < warps):
                e.store(largest, 0, self.shared[first + self.lane])
            self._of_warp(largest)
            return largest[0]

    def _of_warp(self, largest: Any) -> None:
        """Make the largest of a warp's lanes that of each."""
        e.ptx("redux_sync.max.u32", largest[0], largest[0], e.u32(0xFFFFFFFF))

    def _scale(self, largest: Any) -> Any:
        """Store the scale of the row; its inverse."""
        with e.stage("scale"):
            value = self.source.value(largest)
            # an infinity has no quotient that way; it stays, and so does a NaN
            is_infinite = largest >= e.u32(self.source.infinity)
            divided = e.select(is_infinite, value, over_top(value, self.op.top))
            divided = e.bind(divided, "divided")
            least = e.f32(float(LEAST_SCALE))
            scale = e.hold(e.select(divided < least, least, divided), "scale", "float32")
            with e.when(e.both(self.within == 0, self.exists)):
                e.store(self.arg["x_scale"], self.row, scale)
            return e.hold(e.f32(1.0) / scale, "inverse", "float32")

    def place(self, element: Any) -> Any:
        """Index in the codes of the item that holds an element of the row."""
        codes = self.op.codes
        return e.i64(self.row) * e.i64(codes.items(self.op.k)) + e.i64(element // codes.per_item)


class _Pieces:
    """Rows in pieces of 16 bytes, which stay in registers."""

    def __init__(self, quantizer: _Quantizer) -> None:
        self.q, plan = quantizer, quantizer.plan
        self.count, self.threads = plan.pieces, plan.row_threads
        self.words = e.registers("pieces", _WORDS * self.count, "uint32")

    def _pieces(self) -> Any:
        """Number of each piece of the thread in its row, and whether there is one."""
        total = self.q.op.k // self.q.plan.piece
        for index in range(self.count):
            piece = self.q.within + index * self.threads
            full = (index + 1) * self.threads <= total
            yield index, piece, e.both(self.q.exists, True if full else piece < total)

    def measure(self) -> None:
        """Read the pieces, all before the first is looked at."""
        x, start = self.q.arg["x"], e.i64(self.q.row) * self.q.arg["x_stride_m"]
        for index, piece, is_there in self._pieces():
            places = range(_WORDS * index, _WORDS * (index + 1))
            if is_there is not True:
                for place in places:
                    e.store(self.words, place, e.u32(0))
            with e.when(is_there):
                element = start + e.i64(piece * self.q.plan.piece)
                words = [self.words[place] for place in places]
                e.ptx("ld.global.v4.b32", *words, x.ptr_to([element]))
        for index in range(_WORDS * self.count):
            self.q.take(self.words[index])

    def forget(self) -> None:
        """Zeros in place of a row that holds a NaN or an infinity: none of its numbers has another code."""
        for word in range(_WORDS * self.count):
            e.store(self.words, word, e.u32(0))

    def quantize(self, inverse: Any) -> None:
        """Write the codes of each piece, whole words of them or half a word."""
        word_of, bits = _WORD[self.q.op.target.name], self.q.op.codes.bits
        elements, lanes = self.q.plan.piece, 32 // bits
        count = -(-elements // lanes)
        for index, piece, is_there in self._pieces():
            with e.when(is_there):
                codes = e.registers("codes", count, "uint32")
                words = [self.words[_WORDS * index + word] for word in range(_WORDS)]
                values = [value for word in words for value in self.q.source.values(word)]
                # where a piece has half a word of codes, the other half is a copy that is not stored
                values *= max(1, lanes // elements)
                for part in range(count):
                    e.store(
                        codes, part, word_of(values[lanes * part : lanes * (part + 1)], inverse)
                    )
                stored = [codes[part] for part in range(count)]
                if elements < lanes:
                    stored = [e.cast("uint16", codes[0])]
                target = self.q.arg["y"].ptr_to([self.q.place(piece * elements)])
                e.ptx(_STORES[elements * bits // 8], target, *stored)


class _Elements:
    """Rows element by element, which are read twice; each is converted by itself, a NaN to 0 in an integer."""

    def forget(self) -> None:
        """Nothing is kept."""

    def __init__(self, quantizer: _Quantizer) -> None:
        self.q, self.threads = quantizer, quantizer.plan.row_threads

    def _element(self, turn: Any, apart: int = 1) -> tuple[Any, Any, Any]:
        """An element's number in its row, whether there is one, and its place in x; those of two threads are ``apart``."""
        q = self.q
        element = e.bind((q.within + turn * self.threads) * apart, "element")
        at = e.i64(q.row) * q.arg["x_stride_m"] + e.i64(element) * q.arg["x_stride_k"]
        return element, e.both(q.exists, element < q.op.k), at

    def measure(self) -> None:
        """Read the elements for their magnitudes."""
        with e.loop(-(-self.q.op.k // self.threads), "turn") as turn:
            _, is_there, at = self._element(turn)
            with e.when(is_there):
                self.q.take(self.q.source.bits(self.q.arg["x"][at]))

    def quantize(self, inverse: Any) -> None:
        """Read them again, and write their codes: each thread those of an item."""
        codes = self.q.op.codes
        with e.loop(-(-codes.items(self.q.op.k) // self.threads), "turn") as turn:
            element, is_there, at = self._element(turn, codes.per_item)
            with e.when(is_there):
                whole = self._code(at, inverse)
                if codes.per_item > 1:
                    whole = self._packed(whole, element, at, inverse)
                e.store(self.q.arg["y"], self.q.place(element), whole)

    def _code(self, at: Any, inverse: Any) -> Any:
        """The code of an element, in a byte."""
        value = widen(self.q.op.source.name, self.q.arg["x"][at])
        return _BYTE[self.q.op.target.name](value, inverse)

    def _packed(self, first: Any, element: Any, at: Any, inverse: Any) -> Any:
        """A byte with the code ``first`` of an element and those of the next ones, as far as the row goes."""
        codes = self.q.op.codes
        ones = e.u32((1 << codes.bits) - 1)
        item = e.registers("item", 1, "uint32")
        e.store(item, 0, e.cast("uint32", first) & ones)
        for place in range(1, codes.per_item):
            with e.when(element + place < self.q.op.k):
                code = self._code(at + e.i64(place) * self.q.arg["x_stride_k"], inverse)
                shifted = (e.cast("uint32", code) & ones) << e.u32(place * codes.bits)
                e.store(item, 0, item[0] | shifted)
        return e.cast("uint8", item[0])


def arguments_of(plan: QuantizePlan) -> tuple[tuple[str, str, str], ...]:
    """Role, kind and dtype of the arguments of a plan's kernel."""
    dtypes = {"x": plan.op.source.name, "y": plan.op.out_dtype.name}
    wanted = [a for a in _ARGUMENTS if a[0] != "x_stride_k" or plan.access == "scalar"]
    return tuple((role, kind, dtypes.get(role, dtype)) for role, kind, dtype in wanted)


def build_quantize(plan: QuantizePlan, name: str) -> Any:
    """The PrimFunc of a plan's kernel."""
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        _Quantizer(plan).emit()
    return builder.get()


def lower_quantize(plan: QuantizePlan) -> LoweredKernel:
    """Lower a plan through TensorIR to CUDA text and an instruction listing.

    Raises:
        PlanError: the plan breaks a rule of its device.
        LoweringError: TVM is missing or another release than the pinned one.
    """
    plan.verify()
    digest = hashlib.sha256(plan.to_json().encode()).hexdigest()[:12]
    name = f"ladder_quantize_{plan.op.source.name}_{plan.op.target.name}_{digest}"
    device = lower_to_cuda(build_quantize(plan, name), plan.device.arch)
    declared = {role: (kind, dtype) for role, kind, dtype in arguments_of(plan)}
    ordered = []
    for parameter in device.parameters:
        role = parameter.removesuffix("_ptr")
        if role not in declared:
            raise LoweringError(
                f"the lowered kernel has a parameter {parameter!r} that no argument declared",
                at=device.name,
            )
        kind: Any = declared[role][0]
        ordered.append(Parameter(parameter, kind, declared[role][1], role))
    return LoweredKernel(
        name=device.name,
        source=device.source,
        parameters=tuple(ordered),
        launch=Launch(
            grid=(CeilDiv(plan.rows), 1, 1),
            block=(plan.threads, 1, 1),
            shared_bytes=plan.shared_bytes,
            attributes=("pdl",) if plan.launch == "pdl" else (),
        ),
        listing=listing(device.function),
        device_arch=plan.device.arch,
    )
