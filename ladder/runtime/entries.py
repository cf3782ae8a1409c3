"""Entries of a cache on disk: whole or not there, by digest, survivable when broken.

An entry is one file: the sha256 of the rest, then the rest. It is written beside its place and moved over it, so that a
reader finds all of it or nothing; a file that is cut, changed or foreign is a miss, and what it held is made again.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from pathlib import Path

import platformdirs

from ladder.errors import CacheError
from ladder.runtime.packed import write_atomically
from ladder.settings import Settings

OFF = "off"
#: age after which a temporary file belongs to a process that died
STALE_SECONDS = 24 * 3600.0

_DIGEST_BYTES = 64


def cache_folder(settings: Settings) -> Path | None:
    """Where this user's entries lie, or None where none are kept on disk."""
    if settings.cache_dir == OFF:
        return None
    if settings.cache_dir is not None:
        return Path(settings.cache_dir)
    try:
        return Path(platformdirs.user_cache_dir("ladder", appauthor=False))
    except (OSError, RuntimeError, KeyError) as error:  # no home: no entry for this user either
        _warn_once("no home folder", f"no cache folder can be named: {error}")
        return None


class Entries:
    """Bytes by digest; where the disk refuses, there are none, and one warning says so.

    Args:
        root: of the cache, or None to keep none; nothing is made there before something is written.
        form: folder of these entries in it; another name whenever their form changes.
        suffix: of their files, with its dot.
        otherwise: what follows where they cannot be written, for the warning.
    """

    def __init__(self, root: Path | None, form: str, suffix: str, otherwise: str) -> None:
        self._root = root
        self.folder = None if root is None else root / form
        self._suffix = suffix
        self._otherwise = otherwise

    def path(self, digest: str) -> Path | None:
        """The file of an entry, whether it is there or not."""
        return None if self.folder is None else self.folder / digest[:2] / (digest + self._suffix)

    def read(self, digest: str) -> bytes | None:
        """What was written, or None where nothing is there that is whole."""
        path = self.path(digest)
        if path is None:
            return None
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn_once(str(self._root), f"the cache cannot be read: {error}")
            return None
        return unsealed(content)

    def write(self, digest: str, payload: bytes) -> None:
        """Write an entry, over one that is there."""
        path = self.path(digest)
        if path is None:
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, sealed(payload))
            _remove_stale(path.parent)
        except OSError as error:
            _warn_once(str(self._root), f"the cache cannot be written, {self._otherwise}: {error}")

    def clear(self) -> int:
        """Remove every entry, and return how many there were.

        Raises:
            CacheError: an entry cannot be removed.
        """
        entries = self.files()
        try:
            for entry in entries:
                entry.unlink(missing_ok=True)
        except OSError as error:
            raise CacheError(f"cannot remove: {error}", at=str(self.folder)) from error
        return len(entries)

    def files(self) -> list[Path]:
        """The files of all entries."""
        return [] if self.folder is None else sorted(self.folder.glob(f"*/*{self._suffix}"))


def sealed(payload: bytes) -> bytes:
    """The content of an entry's file."""
    return hashlib.sha256(payload).hexdigest().encode() + payload


def unsealed(content: bytes) -> bytes | None:
    """What :func:`sealed` was given, or None where the content is not whole or not ours."""
    digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return payload if hashlib.sha256(payload).hexdigest().encode() == digest else None


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
        f"{text}; LADDER_CACHE_DIR names another folder, LADDER_CACHE_DIR=off keeps nothing on disk",
        RuntimeWarning,
        stacklevel=4,
    )
