"""From a kernel's machine code to launches on the devices of this machine."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ladder.codegen.kernel import box_rows
from ladder.codegen.machine_code import compile_kernel
from ladder.codegen.toolchain import Cubin
from ladder.errors import LaunchError, ToolchainError
from ladder.runtime.argument_block import ArgumentLayout, Arguments
from ladder.runtime.arguments import Call
from ladder.runtime.arrays import numpy_dtype
from ladder.runtime.driver import Driver, Prepared, Three, cuda_driver
from ladder.runtime.packed import Packed
from ladder.runtime.variant import Variant

#: prepared launches that a thread keeps; each is two small structs
PREPARED = 64
#: checked calls that a thread remembers
KNOWN = 256

_ARCH = re.compile(r"sm_(\d+)(\d)([af]?)")

Compile = Callable[[str, str], Cubin]


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Whether machine code for ``arch`` runs on a device (CUDA C++ guide, "Application Compatibility").

    Plain code runs on its own and later minors of the major; family code (``f``) likewise; code with features of one
    architecture (``a``) on no other.
    """
    match = _ARCH.fullmatch(arch)
    if match is None:
        return False
    major, minor, suffix = int(match[1]), int(match[2]), match[3]
    if suffix == "a":
        return (major, minor) == capability
    return major == capability[0] and minor <= capability[1]


def best_arch(
    archs: Sequence[str] | Mapping[str, object], capability: tuple[int, int]
) -> str | None:
    """Return which of several architectures' code a device runs best, or None: the nearest minor, features first."""
    fitting = [arch for arch in archs if runs_on(arch, capability)]
    order = {"": 0, "f": 1, "a": 2}

    def rank(arch: str) -> tuple[int, int]:
        match = _ARCH.fullmatch(arch)
        assert match is not None
        return int(match[2]), order[match[3]]

    return max(fitting, key=rank, default=None)


def compile_arch(arch: str, capability: tuple[int, int]) -> str | None:
    """Return the target to compile text for that was written for ``arch``, so that a device runs it, or None."""
    if runs_on(arch, capability):
        return arch
    match = _ARCH.fullmatch(arch)
    if match is None or match[3] or (int(match[1]), int(match[2])) > capability:
        return None
    return f"sm_{capability[0]}{capability[1]}"


class Ready(NamedTuple):
    """A call that was checked before; it keeps no array alive.

    The same addresses, shapes, strides, types and devices were found in order once, and would be again.
    """

    prepared: Prepared
    arguments: Arguments
    pdl: bool
    packed: weakref.ref[Packed]


class Launcher:
    """Loads the kernels of an operator on the devices that their arrays lie on, each once.

    Args:
        variants: the operator's kernels.
        driver: None for this machine's, looked for at the first launch.
        compiling: what compiles a kernel that came as text only.
    """

    def __init__(
        self,
        variants: Sequence[Variant],
        driver: Driver | None,
        compiling: Compile = compile_kernel,
    ) -> None:
        self._variants = variants
        self._driver = driver
        self._compile = compiling
        self._layouts: dict[int, ArgumentLayout] = {}
        self._functions: dict[tuple[int, int], object] = {}
        self._lock = threading.Lock()
        self._local = threading.local()

    @property
    def driver(self) -> Driver:
        """The driver.

        Raises:
            LaunchError: there is none.
        """
        if self._driver is None:
            self._driver = cuda_driver()
        return self._driver

    def layout(self, index: int) -> ArgumentLayout:
        """Return the argument layout of a variant."""
        found = self._layouts.get(index)
        if found is None:
            found = self._layouts[index] = ArgumentLayout(self._variants[index].lowered.parameters)
        return found

    def arguments(self, call: Call) -> Arguments:
        """Return the argument block of a checked call, with a tensor map of x where the kernel reads through one."""
        layout, values = self.layout(call.number), call.values
        parameter = layout.tensor_map
        if parameter is None:
            return layout.fill(values)
        columns = call.x.shape[-1]
        stride = values["x_stride_m"] if call.m > 1 else columns
        size = numpy_dtype(call.x.dtype).itemsize
        most, width = parameter.box
        box = (box_rows(most, call.m), width)
        made = self.driver.tensor_map(call.x.pointer, (call.m, columns), stride * size, box)
        return layout.fill(values, made)

    def prepared(self, index: int, ordinal: int, m: int) -> Prepared:
        """Return a launch of a variant on a device for ``m`` rows; the calling thread keeps it."""
        grid = self._variants[index].lowered.launch.grid_for(m)
        kept: dict[tuple[int, int, Three], Prepared] | None = getattr(self._local, "kept", None)
        if kept is None:
            kept = self._local.kept = {}
        found = kept.get((index, ordinal, grid))
        if found is None:
            if len(kept) >= PREPARED:
                kept.clear()
            found = kept[index, ordinal, grid] = self.fresh(index, ordinal, m)
        return found

    def known(self) -> dict[object, Ready]:
        """Return the checked calls that the calling thread remembers, by where their arrays lie; few."""
        known: dict[object, Ready] | None = getattr(self._local, "known", None)
        if known is None:
            known = self._local.known = {}
        elif len(known) >= KNOWN:
            known.clear()
        return known

    def fresh(self, index: int, ordinal: int, m: int) -> Prepared:
        """Return a launch like :meth:`prepared` that nobody else holds."""
        launch = self._variants[index].lowered.launch
        geometry = (launch.grid_for(m), launch.block, launch.shared_bytes, launch.cluster)
        return self.driver.prepare(ordinal, self._function(index, ordinal), geometry)

    def _function(self, index: int, ordinal: int) -> object:
        with self._lock:
            found = self._functions.get((index, ordinal))
            if found is None:
                lowered = self._variants[index].lowered
                code = self._code(index, ordinal)
                found = self.driver.load(ordinal, code, lowered.name, lowered.launch.shared_bytes)
                self._functions[index, ordinal] = found
            return found

    def _code(self, index: int, ordinal: int) -> bytes:
        variant = self._variants[index]
        capability = self.driver.compute_capability(ordinal)
        arch = best_arch(variant.cubins, capability)
        if arch is not None:
            return variant.cubins[arch].code
        written = variant.lowered.device_arch
        target = compile_arch(written, capability)
        name = f"{self.driver.device_name(ordinal)} (sm_{capability[0]}{capability[1]})"
        if target is None:
            raise LaunchError(
                f"{variant.lowered.name} is for {written}, cuda:{ordinal} is {name}",
                at=f"code for {', '.join(variant.cubins) or 'no architecture'}",
                hint="schedule and compile the operator for that device",
            )
        try:
            return self._compile(variant.lowered.source, target).code
        except ToolchainError as error:
            raise LaunchError(
                f"{variant.lowered.name} holds no code for {name}, and its text was not compiled: {error.what}",
                at=f"cuda:{ordinal}",
                hint=error.hint,
            ) from error
