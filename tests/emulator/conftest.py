"""Kernels for the emulator's tests: listings written by hand, and tirx kernels lowered by TVM."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ladder.emulator import Report, run

Json = Any

#: operands of the instructions that hand-written listings use: name, direction, kind, registers, PTX type, space
OPERANDS: dict[str, list[list[Any]]] = {
    "lop3.b32": [
        ["d", "w", "reg", 1, "b32", ""],
        *[[n, "r", "reg", 1, "b32", ""] for n in "abc"],
        ["lut", "r", "imm", 1, "", ""],
    ],
    "cp.async.cg.shared.global": [
        ["dst_mem", "r", "addr", 1, "", "shared"],
        ["src_mem", "r", "addr", 1, "", "global"],
        ["cp_size", "r", "imm", 1, "", ""],
    ],
    "cp.async.ca.shared.global": [
        ["dst_mem", "r", "addr", 1, "", "shared"],
        ["src_mem", "r", "addr", 1, "", "global"],
        ["cp_size", "r", "imm", 1, "", ""],
        ["src_size", "r", "reg", 1, "u32", ""],
    ],
    "cp.async.commit_group": [],
    "cp.async.wait_group": [["n", "r", "imm", 1, "", ""]],
    "barrier.cta.sync.aligned": [["a", "r", "reg", 1, "u32", ""], ["b", "r", "reg", 1, "u32", ""]],
    "barrier.cta.arrive.aligned": [
        ["a", "r", "reg", 1, "u32", ""],
        ["b", "r", "reg", 1, "u32", ""],
    ],
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16": [
        ["d", "w", "reg", 1, "b32", ""],
        ["addr", "r", "addr", 1, "", "shared"],
    ],
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": [
        ["d", "w", "reg", 4, "f32", ""],
        ["a", "r", "reg", 4, "f16x2", ""],
        ["b", "r", "reg", 2, "f16x2", ""],
        ["c", "r", "reg", 4, "f32", ""],
    ],
}


_REG = {
    t: lambda name, t=t, rw="r": [name, rw, "reg", 1, t, ""] for t in ("u32", "s32", "f32", "b32")
}
OPERANDS |= {
    f"{base}.gpu.global.add.{t}": [
        *([["d", "w", "reg", 1, t, ""]] if base.startswith("atom") else []),
        ["addr", "r", "addr", 1, "", "global"],
        _REG[t]("value"),
    ]
    for base in ("atom.relaxed", "atom.acq_rel", "atom.release", "red.relaxed", "red.release")
    for t in ("u32", "s32", "f32")
}
OPERANDS |= {
    "ld.acquire.gpu.global.u32": [_REG["u32"]("d", rw="w"), ["addr", "r", "addr", 1, "", "global"]],
    "ld.relaxed.gpu.global.u32": [_REG["u32"]("d", rw="w"), ["addr", "r", "addr", 1, "", "global"]],
    "st.release.gpu.global.u32": [["addr", "r", "addr", 1, "", "global"], _REG["u32"]("value")],
    "st.relaxed.gpu.global.u32": [["addr", "r", "addr", 1, "", "global"], _REG["u32"]("value")],
    "atom.shared.add.u32": [
        _REG["u32"]("d", rw="w"),
        ["addr", "r", "addr", 1, "", "shared"],
        _REG["u32"]("value"),
    ],
    "atom.relaxed.gpu.global.cas.b32": [
        _REG["b32"]("d", rw="w"),
        ["addr", "r", "addr", 1, "", "global"],
        _REG["b32"]("compare"),
        _REG["b32"]("value"),
    ],
}


class Hand:
    """Writes a listing statement by statement; every method returns the JSON of what it names."""

    def __init__(self, threads: int = 32, grid: tuple[int, int, int] = (1, 1, 1)) -> None:
        self.threads, self.grid = threads, grid
        self.vars: list[list[str]] = []
        self.params: list[int] = []
        self.buffers: list[dict[str, Json]] = []
        self.opcodes: list[dict[str, Json]] = []
        self.externs: dict[str, str] = {}
        self.body: list[Json] = []
        self.arguments: dict[str, Any] = {}
        self.tid = self._var("threadIdx.x", "int32")
        self.block = self._var("blockIdx.x", "int32")

    def _var(self, name: str, dtype: str) -> Json:
        self.vars.append([name, dtype])
        return ["var", len(self.vars) - 1]

    def _buffer(self, name: str, dtype: str, scope: str, size: int, align: int) -> int:
        entry = {
            "name": name,
            "dtype": dtype,
            "scope": scope,
            "size": size,
            "align": align,
            "offset": 0,
        }
        self.buffers.append(entry)
        return len(self.buffers) - 1

    def array(self, name: str, array: np.ndarray[Any, Any], dtype: str | None = None) -> int:
        dtype = dtype or str(array.dtype)
        var = self._var(f"{name}_ptr", f"handle:{dtype}:global")
        self.params.append(var[1])
        number = self._buffer(name, dtype, "global", array.size, 16)
        self.body.append(["view", number, var])
        self.arguments[name] = array
        return number

    def scalar(self, name: str, value: int, dtype: str = "int32") -> Json:
        var = self._var(name, dtype)
        self.params.append(var[1])
        self.arguments[name] = value
        return var

    def shared(self, name: str, dtype: str, size: int, align: int = 128) -> int:
        number = self._buffer(name, dtype, "shared", size, align)
        self.body.append(["alloc", number])
        return number

    def registers(self, name: str, dtype: str, size: int) -> int:
        number = self._buffer(name, dtype, "local", size, 4)
        self.body.append(["alloc", number])
        return number

    def let(self, name: str, dtype: str, value: Json) -> Json:
        var = self._var(name, dtype)
        self.add(["let", var[1], value])
        return var

    def add(self, *statements: Json) -> None:
        self.body += statements

    def store(self, buffer: int, index: Json, value: Json) -> Json:
        return ["store", buffer, value, index]

    def ptx(self, text: str, *operands: Json, guard: Json = None) -> Json:
        self.opcodes.append({"text": text, "entry": text, "operands": OPERANDS[text]})
        return ["ptx", len(self.opcodes) - 1, list(operands), guard, False]

    def loop(
        self, name: str, start: Json, extent: Json, body: Callable[[Json], list[Json]]
    ) -> Json:
        var = self._var(name, "int32")
        return ["for", var[1], start, extent, 1, ["seq", *body(var)]]

    def listing(self) -> dict[str, Json]:
        inner = ["launch", "threadIdx.x", self.tid[1], self.threads, ["seq", *self.body]]
        views = [s for s in self.body if s[0] == "view"]
        inner[4] = ["seq", *[s for s in self.body if s[0] != "view"]]
        body = ["seq", *views, ["launch", "blockIdx.x", self.block[1], self.grid[0], inner]]
        return {
            "format": "ladder.listing/1",
            "kernel": "hand",
            "arch": "sm_90a",
            "params": self.params,
            "launch_params": [],
            "vars": self.vars,
            "buffers": self.buffers,
            "opcodes": self.opcodes,
            "externs": self.externs,
            "body": body,
        }

    def run(self, **options: Any) -> Report:
        return run(self.listing(), self.arguments, self.grid, self.threads, **options)


def pointer(buffer: int, index: Json) -> Json:
    """``address_of(buffer[index])``."""
    return ["call", "address_of", "handle", ["load", buffer, index]]


SYNC = ["eval", ["call", "cuda.cta_sync", ""]]
WARP_SYNC = ["eval", ["call", "cuda.warp_sync", ""]]


@pytest.fixture(scope="session")
def hand() -> type[Hand]:
    return Hand


@pytest.fixture(scope="session")
def address() -> Callable[[int, Json], Json]:
    return pointer


@pytest.fixture(scope="session")
def lower() -> Callable[[Any], dict[str, Json]]:
    """Lower a tirx PrimFunc to its listing."""
    pytest.importorskip("tvm")
    api = importlib.import_module("ladder.codegen.tvm_api")
    dump = importlib.import_module("ladder.codegen.listing")

    def to_listing(function: Any) -> dict[str, Json]:
        return dump.listing(api.lower_to_cuda(function, "sm_90a").function)

    return to_listing
