"""A listing read back: opcodes, buffers and parameters as values, and where shared buffers are placed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from ladder.emulator.report import Fault
from ladder.emulator.warp import Allocation

Json = Any
FORMAT = "ladder.listing/1"

#: NumPy dtypes of TensorIR dtypes
DTYPES: dict[str, Any] = {
    "bool": np.dtype(np.bool_),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    **{
        f"{kind}int{bits}": np.dtype(f"{kind}int{bits}")
        for kind in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    **{f"float{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
}

#: TensorIR dtype that carries each PTX operand type
CARRIERS: dict[str, str] = {
    **dict.fromkeys(("b8", "u8"), "uint8"),
    "s8": "int8",
    **dict.fromkeys(("b16", "u16", "f16", "bf16", "e4m3x2", "e5m2x2"), "uint16"),
    "s16": "int16",
    **dict.fromkeys(("b32", "b32i", "u32", "f16x2", "bf16x2", "u16x2", "s16x2", "tf32"), "uint32"),
    **dict.fromkeys(("pred", "u8x4", "s8x4", "e4m3x4", "e5m2x4"), "uint32"),
    "s32": "int32",
    **dict.fromkeys(("b64", "b64i", "u64", "f32x2"), "uint64"),
    "s64": "int64",
    "f32": "float32",
    "f64": "float64",
}


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of an opcode: ``registers`` values of PTX type ``type`` that it reads or writes."""

    name: str
    rw: str
    kind: str
    registers: int
    type: str
    space: str


@dataclass(frozen=True, slots=True)
class Opcode:
    """One instruction with its modifiers."""

    text: str
    entry: str
    operands: tuple[Operand, ...]

    @property
    def words(self) -> list[str]:
        """The text split at its dots."""
        return self.text.split(".")

    @property
    def types(self) -> list[Operand]:
        """One operand for each value of the argument list."""
        return [operand for operand in self.operands for _ in range(operand.registers)]

    @property
    def destinations(self) -> int:
        """Leading values that are written and not read."""
        return sum(o.registers for o in self.operands if o.kind == "reg" and o.rw == "w")


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer of the listing; ``base`` is its byte in shared memory, and ``size`` an expression in elements."""

    number: int
    name: str
    dtype: str
    scope: str
    size: Json
    align: int
    offset: Json

    @property
    def space(self) -> str:
        """``global``, ``shared`` or ``local``."""
        return self.scope.partition(".")[0]

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(DTYPES[self.dtype].itemsize)


class Program:
    """A listing with its tables parsed.

    Raises:
        Fault: ``unsupported`` for a listing of another format.
    """

    def __init__(self, listing: Mapping[str, Json]) -> None:
        if listing.get("format") != FORMAT:
            raise Fault(
                f"unsupported: a listing of format {listing.get('format')!r}",
                at=listing.get("kernel", "?"),
                hint=f"this emulator reads {FORMAT}: compile the plan again",
            )
        self.listing = listing
        self.kernel: str = listing["kernel"]
        self.vars: list[tuple[str, str]] = [(name, dtype) for name, dtype in listing["vars"]]
        self.params: list[int] = listing["params"]
        self.externs: Mapping[str, str] = listing["externs"]
        self.body: Json = listing["body"]
        self.buffers = [Buffer(i, **entry) for i, entry in enumerate(listing["buffers"])]
        self.opcodes = [
            Opcode(o["text"], o["entry"], tuple(Operand(*row) for row in o["operands"]))
            for o in listing["opcodes"]
        ]

    @cached_property
    def fragile(self) -> frozenset[int]:
        """Local buffers that are fragments of a ``wgmma``."""
        found: set[int] = set()
        for node in statements(self.body):
            if node[0] != "ptx" or not self.opcodes[node[1]].text.startswith("wgmma.mma_async"):
                continue
            for operand, value in zip(self.opcodes[node[1]].types, node[2], strict=True):
                if operand.name in ("d", "a") and isinstance(value, list) and value[0] == "load":
                    found.add(value[1])
        return frozenset(found)

    @cached_property
    def allocations(self) -> Mapping[int, Allocation]:
        """Place the shared buffers of ``alloc`` statements, each at exactly its declared alignment and no better."""
        places: dict[int, Allocation] = {}
        end = 0
        for number in (node[1] for node in statements(self.body) if node[0] == "alloc"):
            buffer = self.buffers[number]
            if buffer.space != "shared" or number in places:
                continue
            align = max(16, buffer.align)
            base = (end + align - 1) // align * align
            if base % (2 * align) == 0:
                base += align
            nbytes = int(buffer.size) * buffer.itemsize
            places[number] = Allocation(buffer.name, base, nbytes)
            end = base + nbytes
        return places


#: where the statements inside a statement stand; other kinds hold none
_INSIDE: dict[str, slice] = {
    "seq": slice(1, None),
    "if": slice(2, 4),
    "for": slice(5, 6),
    "while": slice(2, 3),
    "stage": slice(2, 3),
    "launch": slice(4, 5),
}


def statements(node: Json) -> Iterator[Json]:
    """A statement and all inside it, in the order of the text; expressions, which are most of a listing, are not entered."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        if found:  # a branch may be absent
            yield found
            inside = _INSIDE.get(found[0])
            if inside is not None:
                waiting += found[inside][::-1]
