"""What a translation knows at one point: names, masks, registers that surely hold a value, and the Python text so far."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from ladder.emulator.program import DTYPES, Buffer, Json, Opcode, Program
from ladder.emulator.report import Fault, Site
from ladder.emulator.translate_defer import Deferred
from ladder.emulator.warp import Allocation

Kind = Literal["U", "V"]

#: pipe -> instructions that it executes, PTX texts and device functions
PIPES: dict[str, re.Pattern[str]] = {
    "alu": re.compile(
        r"(func\.ladder_)?(lop3|prmt|shf|shl|shr|and|or|xor|not|rotate|popc)(?![a-z0-9])"
    ),
    "fma": re.compile(r"(func\.ladder_)?(fma|add|sub|mul)[._](rn\.)?(bf16|f16|f32)"),
}


@dataclass(frozen=True, slots=True)
class Value:
    """Python text of an expression.

    Attributes:
        code: the text; of a pointer, its offset in bytes.
        kind: ``U`` one value for the warp (a Python int or NumPy scalar), ``V`` an array over lanes.
        dtype: TensorIR dtype, or ``handle``.
        home: of a pointer, ``shared``, ``local``, or the text that names its global buffer.
    """

    code: str
    kind: Kind
    dtype: str
    home: str = ""

    @property
    def is_pointer(self) -> bool:
        """Whether it is an address."""
        return self.dtype == "handle"


Form = Callable[["Scope", Json, int], Value]


@dataclass(frozen=True, slots=True)
class Options:
    """What a translation builds in: detection of unset registers, counters, and putting work off to do it together."""

    detect: bool = True
    counters: bool = False
    together: bool = True


class Scope:
    """State of one translation; statements and expressions write Python lines into it."""

    def __init__(
        self,
        program: Program,
        options: Options,
        tracked: frozenset[int],
        forms: Mapping[str, Form],
        calls: Mapping[str, Form],
        special: Mapping[str, Callable[[Scope, Opcode, list[Json]], None]],
    ) -> None:
        self.program, self.options = program, options
        self.forms, self.calls, self.special = forms, calls, special
        self.lines: list[str] = []
        self.indent = 1
        self.values: dict[int, Value] = {}
        self.globals: dict[str, Any] = {}
        self.sites: list[Site] = []
        self.stage = ""
        self.mask = "None"
        self.loops = 0
        self.masked_loop = False
        self.allocations: Mapping[int, Allocation] = program.allocations
        self.homes: dict[int, Value] = {}
        self.known: set[tuple[int, int]] = set()
        self.tracked = tracked
        self.doubtful: set[int] = set()
        self.narrowest = 16
        self.vector_loads: dict[tuple[int, str], Value] = {}
        #: narrowest access to each global buffer, by the name that holds it, and which are written
        self.global_widths: dict[str, int] = {}
        self.global_written: set[str] = set()
        #: whether CTAs may wait for each other, so that they have to run at one time
        self.concurrent = False
        self.extents: dict[str, Json] = {}
        #: local buffers that wgmma uses
        self.fragile: frozenset[int] = program.fragile
        self.block_counts: Counter[str] = Counter()
        self.histograms: list[Counter[str]] = []
        self.deferred = Deferred(self.emit, self.name, self.constant)
        self._constants: dict[tuple[str, str], str] = {}
        self._number = 0

    def tensor_dtype(self, home: str) -> str:
        """Dtype of the tensor behind a tensor map, which only the launch knows."""
        raise Fault(
            f"unsupported: a reduction through tensor map {home} without its dtype",
            at=self.program.kernel,
        )

    # ---- text ---------------------------------------------------------------------------------------------------

    def emit(self, line: str) -> None:
        """Append one line."""
        self.lines.append("    " * self.indent + line)

    def name(self, prefix: str = "t") -> str:
        """Make a fresh name."""
        self._number += 1
        return f"{prefix}{self._number}"

    def temp(self, code: str, prefix: str = "t") -> str:
        """Assign to a fresh name."""
        name = self.name(prefix)
        self.emit(f"{name} = {code}")
        return name

    def constant(self, key: str, value: Any, prefix: str = "K") -> str:
        """Name a value that is made once; equal keys share it."""
        found = self._constants.get((prefix, key))
        if found is None:
            found = self._constants[prefix, key] = self.name(prefix)
            self.globals[found] = value
        return found

    def dtype(self, name: str) -> str:
        """Name of a NumPy dtype constant."""
        if name not in DTYPES:
            raise Fault(f"unsupported: dtype {name}", at=self.program.kernel)
        return self.constant(name, DTYPES[name], "D")

    def site(self, text: str, buffer: str = "") -> str:
        """Number a memory access or a synchronisation."""
        site = Site(len(self.sites), text, buffer, self.stage)
        self.sites.append(site)
        name = f"S{site.number}"
        self.globals[name] = site
        return name

    def count(self, text: str) -> None:
        """Count an instruction of the current straight run, and for its stage by pipe."""
        self.block_counts[text] += 1
        for pipe, pattern in PIPES.items():
            if pattern.match(text):
                self.on_pipe(pipe)

    def on_pipe(self, pipe: str, count: int = 1) -> None:
        """Count instructions of a pipe for the current stage."""
        self.block_counts[f"pipe.{pipe}.{self.stage}"] += count

    def flush_counts(self) -> None:
        """End a straight run: what it holds counts once for each time that it runs."""
        if self.options.counters and self.block_counts:
            self.emit(f"N[{len(self.histograms)}] += 1")
            self.histograms.append(self.block_counts)
        self.block_counts = Counter()

    def accesses(self, home: str, width: int, *, writes: bool = False) -> None:
        """Note an access to a global buffer."""
        self.global_widths[home] = min(width, self.global_widths.get(home, 16))
        if writes:
            self.global_written.add(home)

    # ---- blocks -------------------------------------------------------------------------------------------------

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block under ``head``; never empty."""
        self.deferred.settle()
        # What came before runs whether or not the block does.
        self.flush_counts()
        self.emit(head)
        self.indent += 1
        first = len(self.lines)
        yield
        self.deferred.settle()
        self.flush_counts()
        if len(self.lines) == first:
            self.emit("pass")
        self.indent -= 1

    @contextmanager
    def under(self, mask: str) -> Iterator[None]:
        """Lines for the lanes of another mask; what they set counts as set inside only."""
        self.deferred.settle()
        outer, known = self.mask, set(self.known)
        self.mask = mask
        yield
        self.deferred.settle()
        self.mask, self.known = outer, known

    # ---- buffers ------------------------------------------------------------------------------------------------

    def buffer(self, number: int) -> Buffer:
        """The buffer of a number."""
        return self.program.buffers[number]

    def home(self, number: int) -> Value:
        """Pointer to the first element of a global or shared buffer."""
        if number not in self.homes:
            raise Fault(
                f"unsupported: buffer {self.buffer(number).name} is used before it is declared",
                at=self.program.kernel,
            )
        return self.homes[number]

    def pointer(self, number: int, index: Value) -> Value:
        """Pointer to an element."""
        home, size = self.home(number), self.buffer(number).itemsize
        code = index.code if size == 1 else f"({index.code}) * {size}"
        if home.code != "0":
            code = f"{code} + {home.code}"
        kind: Kind = "V" if "V" in (index.kind, home.kind) else "U"
        return replace(home, code=f"({code})", kind=kind)
