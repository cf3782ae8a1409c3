"""Where the kernels of candidates come from: compiled ahead in processes of their own, or brought along in a folder.

A folder is for machines that have a GPU and no TVM: ``ladder tune --build FOLDER`` fills it anywhere, ``--kernels FOLDER``
measures from it. Its files are entries of the disk cache's form, named by the digest of the plan.
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
from ladder.runtime.kernel import Kernel
from ladder.runtime.load import kernel_of
from ladder.runtime.packed import as_json, write_atomically
from ladder.runtime.tuning.problem import Candidate
from ladder.runtime.tuning.worker import DIED, Failed, Make, TransientError, Worker
from ladder.runtime.versions import source_digest
from ladder.settings import Settings

INDEX = "index.json"
#: seconds that one kernel may take to compile
LIMIT_S = 600.0


class Kernels(Protocol):
    """Makes kernels ready before they are measured."""

    def announce(self, candidates: Sequence[Candidate]) -> None:
        """Begin with these, in order; each one once."""

    def missing(self, candidate: Candidate) -> Failed | None:
        """Wait for the kernel of a candidate; why there is none, or None where it is ready."""

    def close(self) -> None:
        """Give up what was not asked for."""


class Ahead:
    """Compiles while others measure.

    Args:
        make: what compiles a candidate, in each worker; see :data:`~ladder.runtime.tuning.worker.Make`.
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

    def announce(self, candidates: Sequence[Candidate]) -> None:
        """See :class:`Kernels`."""
        for candidate in candidates:
            if candidate.digest not in self._futures:
                self._futures[candidate.digest] = self._pool.submit(self._compile, candidate)

    def missing(self, candidate: Candidate) -> Failed | None:
        """See :class:`Kernels`."""
        self.announce([candidate])
        answer = self._futures[candidate.digest].result()
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

    def _compile(self, candidate: Candidate) -> Any:
        if self._closed:
            return Failed("the run was ended", lasting=False)
        worker = getattr(self._own, "worker", None)
        if worker is None:
            worker = self._own.worker = Worker(self._make, self._limit_s)
            with self._guard:
                self._workers.append(worker)
        answer = worker(candidate)
        if isinstance(answer, Failed) and answer.reason.startswith(DIED) and not self._closed:
            answer = worker(candidate)  # another one may have taken the memory: once more
        return answer


class Brought:
    """Kernels that stand in a folder.

    Args:
        folder: that ``ladder tune --build`` wrote.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def announce(self, candidates: Sequence[Candidate]) -> None:
        """See :class:`Kernels`; there is nothing to do."""

    def missing(self, candidate: Candidate) -> Failed | None:
        """See :class:`Kernels`; one that was not built is no fault of the candidate."""
        if entry(self._folder, candidate).exists():
            return None
        return Failed(f"its kernel is not in {self._folder}", lasting=False)

    def close(self) -> None:
        """See :class:`Kernels`."""


def into_cache(settings: Settings) -> Make:
    """Compiles candidates into the disk cache that the settings name."""
    return partial(_Into, settings, None)


def into_folder(settings: Settings, folder: Path) -> Make:
    """Compiles candidates and writes them to a folder, without what only people and the emulator read."""
    return partial(_Into, settings, folder)


class _Into:
    """The work of a compiling process."""

    def __init__(self, settings: Settings, folder: Path | None) -> None:
        self._settings = settings
        self._folder = folder

    def __call__(self, candidate: Candidate) -> int:
        target = None if self._folder is None else entry(self._folder, candidate)
        if target is not None and target.exists():
            return target.stat().st_size
        kernel = compile_plan(candidate.plan, settings=self._settings)
        if target is None:
            return 0
        artifact = kernel.artifact()
        parts = tuple(
            replace(part, lowered=replace(part.lowered, listing=None, source=""))
            for part in artifact.parts
        )
        write_atomically(target, cache.encode(replace(artifact, parts=parts)))
        return target.stat().st_size


def load_kernel(candidate: Candidate, folder: Path | None, settings: Settings) -> Kernel:
    """The kernel of a candidate: from the folder, else from the cache (compiled where it is not there).

    Raises:
        TransientError: the folder has no such kernel, or a damaged one.
        LadderError: it cannot be compiled.
    """
    plan = candidate.plan
    if folder is None:
        return compile_plan(plan, settings=settings)
    path = entry(folder, candidate)
    artifact = _read(path)
    wanted = as_json(plan.to_json())
    if artifact is None or artifact.plan != wanted:
        raise TransientError(
            "the kernel is missing, damaged or of another plan",
            at=str(path),
            hint="build it again: `ladder tune --build`",
        )
    try:
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


def entry(folder: Path, candidate: Candidate) -> Path:
    """The file of a candidate's kernel."""
    return folder / f"{candidate.digest}.zip"


def build_of(settings: Settings) -> tuple[str, str]:
    """The CUDA compiler, and the build: it and the compiling source decide which machine code a plan becomes."""
    toolkit = toolchain_version(settings)
    return toolkit, f"{source_digest()[:12]} {toolkit}"


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
            f"the folder holds no kernels for tuning: {error}",
            at=str(folder),
            hint="`ladder tune --build FOLDER` makes one",
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
            "candidates cannot be compiled: TVM is not installed",
            at="ladder tune",
            hint="pip install 'ladder[compile]', or bring kernels along: `ladder tune --build` where"
            " TVM is, --kernels here",
        )


@contextmanager
def on_disk(settings: Settings) -> Iterator[Settings]:
    """Settings whose cache is on disk, where other processes find it; for this run only where it was off."""
    if settings.cache_dir != cache.OFF:
        yield settings
        return
    with TemporaryDirectory(prefix="ladder-tune-") as folder:
        yield replace(settings, cache_dir=folder)
