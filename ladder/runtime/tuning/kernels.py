"""Where the kernels that are measured come from: compiled ahead in processes of their own, or brought along in a folder.

A folder is for machines that have a GPU and no TVM: ``--build FOLDER`` of ``ladder tune`` or ``ladder experiment`` fills it
anywhere, ``--kernels FOLDER`` measures from it. Its files are entries of the disk cache's form, named by the digest of the
plan; of a plan that does not compile, a file of the same name says why.
"""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from ladder.codegen.toolchain import Toolchain, toolchain_version
from ladder.errors import ArtifactError, LoweringError, TuningError
from ladder.runtime import cache
from ladder.runtime.artifact import Artifact
from ladder.runtime.build import compile_plan
from ladder.runtime.entries import OFF
from ladder.runtime.load import kernel_of, single_kernel_of
from ladder.runtime.packed import as_json, write_atomically
from ladder.runtime.tuning.worker import DIED, Failed, Make, TransientError, Worker
from ladder.runtime.versions import source_digest
from ladder.scheduler.single_plan import SinglePlan
from ladder.settings import Settings

INDEX = "index.json"
#: endings of a kernel's file, and of one that says why there is none
KERNEL, FAILURE = ".zip", ".failed"
#: seconds that one kernel may take to compile
LIMIT_S = 600.0


class Planned(Protocol):
    """What a kernel is compiled for: a candidate of tuning, or a kernel of an experiment."""

    @property
    def plan(self) -> Any:
        """The plan, of any kind that :func:`~ladder.runtime.build.compile_plan` takes."""

    @property
    def digest(self) -> str:
        """See :func:`~ladder.runtime.tuning.problem.plan_digest`."""


class Kernels(Protocol):
    """Makes kernels ready before they are measured."""

    def announce(self, wanted: Sequence[Planned]) -> None:
        """Begin with these, in order; each one once."""

    def missing(self, wanted: Planned) -> Failed | None:
        """Wait for a kernel; why there is none, or None where it is ready."""

    def close(self) -> None:
        """Give up what was not asked for."""


class Ahead:
    """Compiles while others measure.

    Args:
        make: what compiles a :class:`Planned`, in each worker; see :data:`~ladder.runtime.tuning.worker.Make`.
        jobs: processes.
        limit_s: seconds for one kernel.
    """

    def __init__(self, make: Make, jobs: int, limit_s: float = LIMIT_S) -> None:
        self._make = make
        self._limit_s = limit_s
        self._pool = ThreadPoolExecutor(jobs, "compile")  # a thread waits for its process
        self._own = threading.local()
        self._workers: list[Worker] = []
        self._guard = threading.Lock()
        self._closed = False
        self._futures: dict[str, Future[Any]] = {}

    def announce(self, wanted: Sequence[Planned]) -> None:
        """See :class:`Kernels`."""
        for one in wanted:
            if one.digest not in self._futures:
                self._futures[one.digest] = self._pool.submit(self._compile, one)

    def missing(self, wanted: Planned) -> Failed | None:
        """See :class:`Kernels`."""
        self.announce([wanted])
        answer = self._futures[wanted.digest].result()
        if not isinstance(answer, Failed):
            return None
        return replace(answer, reason=f"compiling: {answer.reason}")

    def close(self) -> None:
        """See :class:`Kernels`."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._guard:
            for worker in self._workers:
                worker.close(grace_s=0.0)

    def _compile(self, wanted: Planned) -> Any:
        if self._closed:
            return Failed("the run was ended", lasting=False)
        worker = getattr(self._own, "worker", None)
        if worker is None:
            worker = self._own.worker = Worker(self._make, self._limit_s)
            with self._guard:
                self._workers.append(worker)
        answer = worker(wanted)
        if isinstance(answer, Failed) and answer.reason.startswith(DIED) and not self._closed:
            answer = worker(wanted)  # another one may have taken the memory: once more
        return answer


class Brought:
    """Kernels that stand in a folder.

    Args:
        folder: that ``--build`` wrote.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def announce(self, wanted: Sequence[Planned]) -> None:
        """See :class:`Kernels`; there is nothing to do."""

    def missing(self, wanted: Planned) -> Failed | None:
        """See :class:`Kernels`; one that was not built is no fault of the plan, one that did not compile is."""
        path = entry(self._folder, wanted)
        if path.exists():
            return None
        said = path.with_suffix(FAILURE)
        if said.exists():
            return Failed(said.read_text(encoding="utf-8"))
        return Failed(f"its kernel is not in {self._folder}", lasting=False)

    def close(self) -> None:
        """See :class:`Kernels`."""


def into_cache(settings: Settings) -> Make:
    """Compiles into the disk cache that the settings name."""
    return partial(_Into, settings, None)


def into_folder(settings: Settings, folder: Path) -> Make:
    """Compiles kernels and writes them to a folder, without what only people and the emulator read."""
    return partial(_Into, settings, folder)


class _Into:
    """The work of a compiling process."""

    def __init__(self, settings: Settings, folder: Path | None) -> None:
        self._settings = settings
        self._folder = folder

    def __call__(self, wanted: Planned) -> int:
        target = None if self._folder is None else entry(self._folder, wanted)
        if target is not None and target.exists():
            return target.stat().st_size
        kernel = compile_plan(wanted.plan, settings=self._settings)
        if target is None:
            return 0
        artifact = kernel.artifact()
        parts = tuple(
            replace(part, lowered=replace(part.lowered, listing=None, source=""))
            for part in artifact.parts
        )
        write_atomically(target, cache.encode(replace(artifact, parts=parts)))
        return target.stat().st_size


def load_kernel(wanted: Planned, folder: Path | None, settings: Settings) -> Any:
    """The kernel of a plan: from the folder, else from the cache (compiled where it is not there).

    Returns:
        a :class:`~ladder.runtime.kernel.Kernel`, or a kernel beside matmuls where the plan is of one.

    Raises:
        TransientError: the folder has no such kernel, or a damaged one.
        LadderError: it cannot be compiled.
    """
    plan = wanted.plan
    if folder is None:
        return compile_plan(plan, settings=settings)
    path = entry(folder, wanted)
    artifact = _read(path)
    if artifact is None or artifact.plan != as_json(plan.to_json()):
        raise TransientError(
            "the kernel is missing, damaged or of another plan",
            at=str(path),
            hint="build it again, by --build",
        )
    try:
        if isinstance(plan, SinglePlan):
            return single_kernel_of(artifact, at=str(path))
        return kernel_of(
            artifact, read_plan=lambda _: plan, read_packing=lambda _: plan.packing, at=str(path)
        )
    except ArtifactError as error:
        raise TransientError(error.what, at=str(path), hint=error.hint) from error


def _read(path: Path) -> Artifact | None:
    try:
        return cache.decode(path.read_bytes())
    except OSError:
        return None


def entry(folder: Path, wanted: Planned) -> Path:
    """The file of a plan's kernel."""
    return folder / f"{wanted.digest}{KERNEL}"


def write_failure(folder: Path, wanted: Planned, failed: Failed) -> None:
    """Leave word of a kernel that does not compile, for who measures from the folder; nothing of what may work another time."""
    if failed.lasting:
        path = entry(folder, wanted).with_suffix(FAILURE)
        write_atomically(path, failed.reason.encode())


def kernels_from(folder: Path | None, settings: Settings, jobs: int) -> Kernels:
    """Kernels that stand in a folder, or that are compiled here by ``jobs`` processes; close them at the end.

    Raises:
        LadderError: there is no folder, and nothing can be compiled here; see :func:`check_compiler`.
    """
    if folder is not None:
        return Brought(folder)
    check_compiler(settings)
    return Ahead(into_cache(settings), jobs)


def build_of(settings: Settings, folder: Path | None = None) -> tuple[str, str]:
    """The CUDA compiler, and the build: it and the compiling source decide which machine code a plan becomes.

    Args:
        settings: name the compiler.
        folder: whose kernels they were; None for kernels that are compiled here.

    Raises:
        TuningError: the folder has no index, or a damaged one.
    """
    if folder is not None:
        return read_index(folder)
    toolkit = toolchain_version(settings)
    return toolkit, build_by(toolkit)


def build_by(toolkit: str) -> str:
    """The build of this source by a compiler."""
    return f"{source_digest()[:12]} {toolkit}"


def write_index(folder: Path, settings: Settings) -> None:
    """Say with what the kernels of a folder were compiled.

    Raises:
        TuningError: the folder holds kernels of another build.
    """
    toolkit, build = build_of(settings)
    if (folder / INDEX).exists() and read_index(folder) != (toolkit, build):
        raise TuningError(
            f"the folder holds kernels of another build: {read_index(folder)[1]}, this is {build}",
            at=str(folder),
            hint="build into an empty folder",
        )
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"toolkit": toolkit, "build": build}) + "\n"
    write_atomically(folder / INDEX, text.encode())


def read_index(folder: Path) -> tuple[str, str]:
    """Read what :func:`write_index` wrote: (toolkit, build).

    Raises:
        TuningError: the folder has no index, or a damaged one.
    """
    try:
        found = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        return str(found["toolkit"]), str(found["build"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TuningError(
            f"the folder holds no kernels: {error}",
            at=str(folder),
            hint="--build makes one that does",
        ) from error


def check_compiler(settings: Settings) -> None:
    """Refuse to begin where nothing can be compiled.

    Raises:
        LoweringError: TVM is not installed.
        ToolchainError: there is no CUDA compiler.
    """
    Toolchain.choose(settings)
    if importlib.util.find_spec("tvm") is None:
        raise LoweringError(
            "kernels cannot be compiled: TVM is not installed",
            at="tvm",
            hint="pip install 'ladder[compile]', or bring kernels along: --build where TVM is,"
            " --kernels here",
        )


@contextmanager
def on_disk(settings: Settings) -> Iterator[Settings]:
    """Settings whose cache is on disk, where other processes find it; for this run only where it was off."""
    if settings.cache_dir != OFF:
        yield settings
        return
    with TemporaryDirectory(prefix="ladder-tune-") as folder:
        yield replace(settings, cache_dir=folder)
