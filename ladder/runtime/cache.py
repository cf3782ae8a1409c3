"""The disk cache of compiled kernels: whole entries or none, safe under several processes, survivable when broken.

An entry is one file: the sha256 of the rest, then a zip of the artifact's files. It is written beside its place and moved
over it, so that a reader finds all of it or nothing; a file that is cut, changed or foreign is a miss and is built again.
A lock for each key keeps processes from building the same kernel twice; nothing but time is lost where locks do not work.
"""

from __future__ import annotations

import hashlib
import io
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import platformdirs

from ladder.errors import ArtifactError, CacheError
from ladder.runtime.artifact import Artifact
from ladder.runtime.driver import driver_version
from ladder.runtime.packed import canonical, write_atomically
from ladder.runtime.versions import package_version, source_digest, tvm_version
from ladder.settings import Settings

#: raised whenever the form of an entry changes
FORMAT = "v1"
OFF = "off"
LOCK_SECONDS = 600.0
#: age after which a temporary file belongs to a process that died
STALE_SECONDS = 24 * 3600.0

_DIGEST_BYTES = 64


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
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = None if folder is None else folder / FORMAT
        self._memory: dict[str, Artifact] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    @classmethod
    def default(cls, settings: Settings | None = None) -> Cache:
        """Return the cache that the settings name; nothing is written until something is stored."""
        settings = settings or Settings.read()
        if settings.cache_dir == OFF:
            return cls(None)
        if settings.cache_dir is not None:
            return cls(Path(settings.cache_dir))
        try:
            return cls(Path(platformdirs.user_cache_dir("ladder", appauthor=False)))
        except (OSError, RuntimeError, KeyError) as error:  # no home: no entry for this user either
            _warn_once("no home folder", f"no cache folder can be named: {error}")
            return cls(None)

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
        entries = [] if self.folder is None else list(self.folder.glob("*/*.zip"))
        try:
            for entry in entries:
                entry.unlink(missing_ok=True)
        except OSError as error:
            raise CacheError(f"cannot remove: {error}", at=str(self.folder)) from error
        count = max(len(entries), len(self._memory))
        self._memory.clear()
        return count

    def path(self, digest: str) -> Path | None:
        """Return the file of an entry, whether it is there or not."""
        return None if self.folder is None else self.folder / digest[:2] / f"{digest}.zip"

    def _get(self, digest: str) -> Artifact | None:
        found = self._memory.get(digest)
        path = self.path(digest)
        if found is not None or path is None:
            return found
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn_once(str(self.folder), f"the kernel cache cannot be read: {error}")
            return None
        found = decode(content)
        if found is not None:
            self._memory[digest] = found
        return found

    def _put(self, digest: str, artifact: Artifact) -> None:
        self._memory[digest] = artifact
        path = self.path(digest)
        if path is None:
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, encode(artifact))
            _remove_stale(path.parent)
        except OSError as error:
            _warn_once(
                str(self.folder),
                f"the kernel cache cannot be written, compiled kernels live as long as this process: {error}",
            )

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
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in artifact.files().items():
            # an entry with a date of its own is stored plain unless told otherwise
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    payload = stream.getvalue()
    return hashlib.sha256(payload).hexdigest().encode() + payload


def decode(content: bytes) -> Artifact | None:
    """Return the artifact of an entry, or None for one that is not whole or not ours."""
    digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(payload)) as archive:
            return Artifact.from_files(archive.read, at="cache entry")
    except (zipfile.BadZipFile, ArtifactError):
        return None


def _remove_stale(folder: Path) -> None:
    """Remove what processes that died while writing left behind."""
    now = time.time()
    for file in folder.glob(".*.tmp"):
        try:
            if now - file.stat().st_mtime > STALE_SECONDS:
                file.unlink()
        except OSError:
            continue  # another process removed it first


_warned: set[str] = set()


def _warn_once(about: str, text: str) -> None:
    if about in _warned:
        return
    _warned.add(about)
    warnings.warn(
        f"{text}; LADDER_CACHE_DIR names another folder, LADDER_CACHE_DIR=off keeps kernels in memory",
        RuntimeWarning,
        stacklevel=4,
    )
