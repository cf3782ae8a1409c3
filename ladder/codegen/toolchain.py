"""CUDA text to cubin, with NVRTC from pip (preferred: no host compiler, faster) or the nvcc of a toolkit.

    compile_cuda(source, "sm_90a")  ->  Cubin(code, log, registers=168, spill_bytes=0, stack_bytes=0, ...)

The architecture is given whole, feature suffix included: ``sm_90`` and ``sm_90a`` are different targets, and text that
needs a feature which the target lacks is an error of the build. Nothing here needs a GPU or its driver.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ladder.codegen.nvrtc_headers import SHIM, with_tensor_map
from ladder.errors import ToolchainError
from ladder.settings import Settings

INSTALL = "pip install 'ladder[cuda]', or put nvcc on PATH (or its toolkit in CUDA_HOME)"
#: options of every compile; 177 is "declared but never referenced", which generated text has by nature. Products and sums round
#: each, as the text and its emulation have it: where one rounding is meant, the text says fma.
COMMON = ("--std=c++17", "--fmad=false", "--diag-suppress=177", "--ptxas-options=-v")
NVCC_TIMEOUT_SECONDS = 600
#: lines of a compiler's log that an error shows
ERROR_LINES = 24
#: words in the log of a refused text -> what to do; the last stands for any
REFUSALS = {
    "gcc: No such file": f"nvcc needs a host compiler, NVRTC does not: {INSTALL}",
    "requires .target": "the kernel uses features that the target lacks: compile for another arch",
    "not supported on .target": "the kernel uses features that the target lacks: compile for another arch",
    "": "the text does not compile: please report it together with the plan",
}

_ARCH = re.compile(r"sm_(\d{2,3}[af]?)")
_PATCH = re.compile(r"V(\d+\.\d+\.\d+)")
_REGISTERS = re.compile(r"Used (\d+) registers")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code of one architecture.

    Args:
        code: the ELF image.
        log: what the compiler said, ptxas' resource report included.
        registers: of one thread; the most among the kernels of the text.
        spill_bytes: spill stores + spill loads of one thread; likewise.
        stack_bytes: of one thread; likewise.
        seconds: that compiling took.
        compiler: name and version, as :meth:`Toolchain.__str__` writes it.
    """

    code: bytes = field(repr=False)
    log: str = field(repr=False)
    registers: int
    spill_bytes: int
    stack_bytes: int
    seconds: float
    compiler: str

    def __str__(self) -> str:
        return (
            f"{len(self.code)} B by {self.compiler}: {self.registers} registers, "
            f"{self.spill_bytes} B spilled, {self.stack_bytes} B stack, {self.seconds:.2f} s"
        )


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler that was found.

    Args:
        name: ``nvrtc`` or ``nvcc``.
        version: full version, for example ``13.0.88``.
        headers: version of the CUDA headers where they come apart from the compiler, else empty.
        program: path of nvcc; empty for NVRTC.
        include: folders of CUDA headers.
    """

    name: str
    version: str
    headers: str = ""
    program: str = ""
    include: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.version}" + (f" headers {self.headers}" if self.headers else "")

    @staticmethod
    def available(settings: Settings | None = None) -> tuple[Toolchain, ...]:
        """Return the compilers of this machine, the preferred one first; possibly none."""
        return tuple(found for found in _probe(settings) if isinstance(found, Toolchain))

    @staticmethod
    def choose(settings: Settings | None = None) -> Toolchain:
        """Return the compiler that the settings name, or the preferred one for ``auto``.

        Raises:
            ToolchainError: none is there; the text says what was tried.
        """
        settings = settings or Settings.read()
        if settings.toolchain not in ("auto", *PROBES):
            raise ToolchainError(
                f"no compiler is called {settings.toolchain!r}",
                at="LADDER_TOOLCHAIN",
                hint=f"one of auto, {', '.join(PROBES)}",
            )
        wanted = list(PROBES) if settings.toolchain == "auto" else [settings.toolchain]
        for found in Toolchain.available(settings):
            if found.name in wanted:
                return found
        tried = [found for found in _probe(settings) if isinstance(found, str)]
        raise ToolchainError(
            f"no CUDA compiler ({' or '.join(wanted)}): {'; '.join(tried)}",
            at="compiling CUDA text",
            hint=INSTALL,
        )

    def command(self, arch: str, options: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the options of a compile for ``arch``, header folders apart (their versions are in ``str``).

        Raises:
            ToolchainError: ``arch`` is not of the form ``sm_80``, ``sm_90a``, ``sm_120f``.
        """
        match = _ARCH.fullmatch(arch)
        if match is None:
            raise ToolchainError(
                f"{arch!r} is no architecture",
                at="compile_cuda",
                hint="like sm_80 or sm_90a; the suffix names features and is part of the target",
            )
        return (*TARGET[self.name](match[1]), *COMMON, *options)

    def compile(self, source: str, arch: str, options: Sequence[str] = ()) -> Cubin:
        """Compile CUDA text; see :func:`compile_cuda`."""
        command = self.command(arch, options)
        start = time.perf_counter()
        code, log = COMPILE[self.name](self, source, command)
        registers, spill_bytes, stack_bytes = resources(log)
        seconds = time.perf_counter() - start
        return Cubin(code, log, registers, spill_bytes, stack_bytes, seconds, str(self))


def compile_cuda(
    source: str,
    arch: str,
    options: Sequence[str] = (),
    *,
    toolchain: Toolchain | None = None,
) -> Cubin:
    """Compile CUDA text to machine code.

    Args:
        source: CUDA C++ text with ``extern "C"`` kernels.
        arch: for example ``sm_90a``.
        options: further options, in the spelling that NVRTC and nvcc share (``--use_fast_math``, ``-DX=1``, ...).
        toolchain: None for the one that the settings choose.

    Raises:
        ToolchainError: there is no compiler, or it refused the text; the log is in the error.
    """
    return (toolchain or Toolchain.choose()).compile(source, arch, options)


def toolchain_version(settings: Settings | None = None) -> str:
    """Return the chosen compiler's name and version for cache keys; ``none`` where there is no compiler."""
    found = Toolchain.available(settings)
    settings = settings or Settings.read()
    names = [str(t) for t in found if settings.toolchain in ("auto", t.name)]
    return names[0] if names else "none"


def resources(log: str) -> tuple[int, int, int]:
    """Return (registers, spill bytes, stack bytes) from ptxas' report; the most over all kernels of the log."""
    registers = max((int(n) for n in _REGISTERS.findall(log)), default=0)
    frames = [(int(a), int(b) + int(c)) for a, b, c in _FRAME.findall(log)]
    stack = max((frame[0] for frame in frames), default=0)
    return registers, max((frame[1] for frame in frames), default=0), stack


# --- finding ---------------------------------------------------------------------------------------------------------


def _probe(settings: Settings | None) -> list[Toolchain | str]:
    settings = settings or Settings.read()
    return [probe(settings) for probe in PROBES.values()]


def _probe_nvrtc(settings: Settings) -> Toolchain | str:
    try:
        nvrtc = _nvrtc()
        _, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, OSError, RuntimeError) as error:
        # one line: the search path noise of the loader helps nobody
        return f"nvrtc: {type(error).__name__}: {str(error).splitlines()[0]}"
    wheel = _wheel_version("nvidia-cuda-nvrtc")
    version = wheel if wheel.startswith(f"{major}.{minor}.") else f"{major}.{minor}"
    pip = _pip_include()
    include = pip or _toolkit_include(settings)
    headers = _wheel_version("nvidia-cuda-runtime") if pip else "toolkit" if include else ""
    return Toolchain("nvrtc", version, headers, include=include)


def _probe_nvcc(settings: Settings) -> Toolchain | str:
    folder = f"{settings.cuda_home}/bin" if settings.cuda_home else None
    program = shutil.which("nvcc", path=settings.path or None)
    program = program or (shutil.which("nvcc", path=folder) if folder else None)
    if program is None:
        return f"nvcc: not on PATH and not in CUDA_HOME ({settings.cuda_home or 'unset'})"
    try:
        version = _nvcc_version(program, Path(program).stat().st_mtime_ns)
    except (OSError, subprocess.SubprocessError) as error:
        return f"nvcc: {program} does not run: {error}"
    return Toolchain("nvcc", version, program=program)


@lru_cache(maxsize=4)
def _nvcc_version(program: str, _written: int) -> str:
    """What a program says of itself, asked once since it was written: every call needs it, also one that compiles nothing."""
    text = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    match = _PATCH.search(text)
    return match[1] if match else "unknown"


def _nvrtc() -> ModuleType:
    from cuda.bindings import nvrtc

    return cast("ModuleType", nvrtc)


def _wheel_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _pip_include() -> tuple[str, ...]:
    """Return the header folders of the pip packages ``nvidia-cuda-runtime`` and, where present, CCCL."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    folders = [path for root in roots for path in sorted(Path(root).glob("cu[0-9]*/include"))]
    found = [path for path in folders if (path / "cuda_fp16.h").exists()]
    return _with_cccl(found)


def _toolkit_include(settings: Settings) -> tuple[str, ...]:
    program = shutil.which("nvcc", path=settings.path or None)
    roots = [Path(settings.cuda_home)] if settings.cuda_home else []
    roots += [Path(program).resolve().parents[1]] if program else []
    found = [root / "include" for root in roots if (root / "include" / "cuda_fp16.h").exists()]
    return _with_cccl(found[:1])


def _with_cccl(folders: list[Path]) -> tuple[str, ...]:
    cccl = [folder / "cccl" for folder in folders if (folder / "cccl").is_dir()]
    return tuple(str(path) for path in (*folders, *cccl))


# --- compiling -------------------------------------------------------------------------------------------------------


def _compile_nvrtc(
    toolchain: Toolchain, source: str, command: tuple[str, ...]
) -> tuple[bytes, str]:
    options = (*command, *(f"-I{folder}" for folder in toolchain.include))
    code, log = _run_nvrtc(source, options, SHIM)
    if code is None and _has_cccl(toolchain) and "cuda/std/" in source:
        code, _ = second = _run_nvrtc(source, options, {})
        if code is not None:
            first = next((line for line in log.splitlines() if "error" in line), "")
            warnings.warn(
                f"compiled with CCCL's headers (about a second more), as the short ones lack: {first}",
                RuntimeWarning,
                stacklevel=4,
            )
            return code, second[1]
    if code is None:
        raise _refused(toolchain, log, command)
    return code, log


def _has_cccl(toolchain: Toolchain) -> bool:
    return any((Path(f) / "cuda" / "std" / "cstdint").exists() for f in toolchain.include)


def _run_nvrtc(
    source: str, options: tuple[str, ...], headers: dict[str, str]
) -> tuple[bytes | None, str]:
    """Return (cubin or None, log)."""
    nvrtc = _nvrtc()
    names = [name.encode() for name in headers]
    texts = [text.encode() for text in headers.values()]
    text = with_tensor_map(source).encode()
    program = _checked(
        nvrtc, nvrtc.nvrtcCreateProgram(text, b"kernel.cu", len(names), texts, names)
    )
    try:
        encoded = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        raw = bytearray(_checked(nvrtc, nvrtc.nvrtcGetProgramLogSize(program)))
        _checked(nvrtc, nvrtc.nvrtcGetProgramLog(program, raw))
        log = bytes(raw).rstrip(b"\0").decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return None, log or str(status)
        code = bytearray(_checked(nvrtc, nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc, nvrtc.nvrtcGetCUBIN(program, code))
        return bytes(code), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(nvrtc: ModuleType, result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise ToolchainError(f"NVRTC answered {status}", at="compiling CUDA text", hint=INSTALL)
    return values[0] if values else None


def _compile_nvcc(toolchain: Toolchain, source: str, command: tuple[str, ...]) -> tuple[bytes, str]:
    with tempfile.TemporaryDirectory(prefix="ladder-nvcc-") as folder:
        text, cubin = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
        text.write_text(source)
        line = [toolchain.program, "-cubin", *command, "-o", cubin.name, text.name]
        try:
            done = subprocess.run(
                line,
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
                timeout=NVCC_TIMEOUT_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise _refused(toolchain, str(error), command) from error
        log = done.stdout + done.stderr
        if done.returncode != 0:
            raise _refused(toolchain, log or f"exit status {done.returncode}", command)
        return cubin.read_bytes(), log


def _refused(toolchain: Toolchain, log: str, command: tuple[str, ...]) -> ToolchainError:
    """Return the error of a refused text: the compiler's errors, each with the lines that it quotes."""
    lines = [line for line in log.splitlines() if line.strip()]
    shown = []
    for place, line in enumerate(lines):
        if any(word in line.lower() for word in ("error", "fatal", "no such file")):
            quoted = [after for after in lines[place + 1 : place + 3] if after.startswith("  ")]
            shown += [line, *quoted]
    text = "\n    ".join((shown or lines[-ERROR_LINES:])[:ERROR_LINES])
    hint = next((hint for words, hint in REFUSALS.items() if words in log), REFUSALS[""])
    return ToolchainError(
        f"{toolchain} refused the text:\n    {text}", at=" ".join(command), hint=hint
    )


def _target_nvrtc(suffix: str) -> tuple[str, ...]:
    return (f"--gpu-architecture=sm_{suffix}", "-default-device")


def _target_nvcc(suffix: str) -> tuple[str, ...]:
    return (f"--generate-code=arch=compute_{suffix},code=sm_{suffix}",)


PROBES: dict[str, Callable[[Settings], Toolchain | str]] = {
    "nvrtc": _probe_nvrtc,
    "nvcc": _probe_nvcc,
}
TARGET: dict[str, Callable[[str], tuple[str, ...]]] = {
    "nvrtc": _target_nvrtc,
    "nvcc": _target_nvcc,
}
COMPILE: dict[str, Callable[[Toolchain, str, tuple[str, ...]], tuple[bytes, str]]] = {
    "nvrtc": _compile_nvrtc,
    "nvcc": _compile_nvcc,
}
