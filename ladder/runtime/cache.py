"""The cache of compiled kernels: a zip of an artifact's files is an entry of :mod:`ladder.runtime.entries`.

A lock for each key keeps processes from building the same kernel twice; nothing but time is lost where locks do not work.
"""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock

from ladder.errors import ArtifactError
from ladder.runtime.artifact import Artifact
from ladder.runtime.driver import driver_version
from ladder.runtime.entries import Entries, cache_folder, sealed, unsealed
from ladder.runtime.packed import canonical
from ladder.runtime.versions import package_version, source_digest, tvm_version
from ladder.settings import Settings

#: raised whenever the form of an entry changes
FORMAT = "v1"
LOCK_SECONDS = 600.0
OTHERWISE = "compiled kernels live as long as this process"


@dataclass(frozen=True, slots=True)
class CacheKey:
    """Everything that a compiled kernel depends on.

    Args:
        plan: the plan's text; packing and device are parts of it.
        arch: with its suffix, for example ``sm_90a``: major, minor and features.
        toolchain: name and version of the CUDA compiler.
        options: of the compile.
        driver: version of the driver, or ``none``.
        package: version of this package.
        sources: digest of this package's own compiling source.
        tvm: version of TVM.
    """

    plan: str
    arch: str
    toolchain: str
    options: tuple[str, ...]
    driver: str
    package: str
    sources: str
    tvm: str

    @classmethod
    def of(cls, plan: Any, arch: str, toolchain: str, options: Sequence[str] = ()) -> CacheKey:
        """Return the key of a plan (its text, or JSON) on this machine now."""
        return cls(
            plan=plan if isinstance(plan, str) else canonical(plan),
            arch=arch,
            toolchain=toolchain,
            options=tuple(options),
            driver=driver_version(),
            package=package_version(),
            sources=source_digest(),
            tvm=tvm_version(),
        )

    @property
    def digest(self) -> str:
        """Return the sha256 of all fields by name."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return hashlib.sha256(canonical(fields).encode()).hexdigest()


class Cache:
    """Artifacts by key, on disk where possible and in memory always.

    Args:
        folder: where entries lie, or None to keep them in memory only.

    Attributes:
        entries: those on disk.
    """

    def __init__(self, folder: Path | None) -> None:
        self.entries = Entries(folder, FORMAT, ".zip", OTHERWISE)
        self._memory: dict[str, Artifact] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    @classmethod
    def default(cls, settings: Settings | None = None) -> Cache:
        """Return the cache that the settings name; nothing is written until something is stored."""
        return cls(cache_folder(settings or Settings.read()))

    @property
    def folder(self) -> Path | None:
        """Where entries of this form lie."""
        return self.entries.folder

    def get(self, key: CacheKey) -> Artifact | None:
        """Return the stored artifact, or None where there is none that is whole."""
        return self._get(key.digest)

    def put(self, key: CacheKey, artifact: Artifact) -> None:
        """Store an artifact; where the disk refuses, it is kept in memory, and one warning says so."""
        self._put(key.digest, artifact)

    def get_or_build(self, key: CacheKey, build: Callable[[], Artifact]) -> Artifact:
        """Return the stored artifact, or build and store it; of several processes, one builds."""
        digest = key.digest
        found = self._get(digest)
        if found is not None:
            return found
        with self._thread_lock(digest), self._process_lock(digest):
            found = self._get(digest)
            if found is None:
                found = build()
                self._put(digest, found)
        return found

    def clear(self) -> int:
        """Remove every entry, and return how many there were.

        Raises:
            CacheError: an entry cannot be removed.
        """
        count = max(self.entries.clear(), len(self._memory))
        self._memory.clear()
        return count

    def path(self, digest: str) -> Path | None:
        """Return the file of an entry, whether it is there or not."""
        return self.entries.path(digest)

    def _get(self, digest: str) -> Artifact | None:
        found = self._memory.get(digest)
        payload = None if found is not None else self.entries.read(digest)
        if payload is not None:
            found = _artifact_of(payload)
        if found is not None:
            self._memory[digest] = found
        return found

    def _put(self, digest: str, artifact: Artifact) -> None:
        self._memory[digest] = artifact
        self.entries.write(digest, _zip_of(artifact))

    def _thread_lock(self, digest: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(digest, threading.Lock())

    @contextmanager
    def _process_lock(self, digest: str) -> Iterator[None]:
        path = self.path(digest)
        if path is None:
            yield
            return
        lock = filelock.FileLock(path.with_suffix(".lock"), timeout=LOCK_SECONDS)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.acquire()
        except (OSError, NotImplementedError):
            # a folder that takes no lock takes no entry either, or it is a file system without locks: build anyway
            yield
            return
        try:
            yield
        finally:
            lock.release()


def encode(artifact: Artifact) -> bytes:
    """Return the content of an entry."""
    return sealed(_zip_of(artifact))


def decode(content: bytes) -> Artifact | None:
    """Return the artifact of an entry, or None for one that is not whole or not ours."""
    payload = unsealed(content)
    return None if payload is None else _artifact_of(payload)


def _zip_of(artifact: Artifact) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in artifact.files().items():
            # an entry with a date of its own is stored plain unless told otherwise
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _artifact_of(payload: bytes) -> Artifact | None:
    try:
        with zipfile.ZipFile(io.BytesIO(payload)) as archive:
            return Artifact.from_files(archive.read, at="cache entry")
    except (zipfile.BadZipFile, ArtifactError):
        return None
