"""Versions that decide whether a compiled kernel is still the right one."""

from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import ladder

#: packages whose source decides what a plan compiles to
SOURCES = ("ttype", "ttile", "primitives", "decode", "graph", "scheduler", "codegen")
ENDINGS = (".py", ".json")


@lru_cache(maxsize=1)
def package_version() -> str:
    """Return the version of this package; ``unknown`` where it runs from a tree that is not installed."""
    return _installed("ladder", "unknown")


@lru_cache(maxsize=1)
def tvm_version() -> str:
    """Return the version of the installed TVM without importing it, or ``none``."""
    return _installed("apache-tvm", "none")


def commit_of(root: Path) -> str:
    """Return the commit of a checkout, ``+`` behind it where the package in it was changed; ``unknown`` where git knows none."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        # a package that is installed inside another project's checkout is not of its commit
        git("ls-files", "--error-unmatch", "--", "ladder/__init__.py")
        changed = git("status", "--porcelain", "--", "ladder")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _installed(name: str, otherwise: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return otherwise


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Return the sha256 of the package's own compiling source: names and contents of its files."""
    return digest_of(Path(ladder.__path__[0]))


def digest_of(root: Path) -> str:
    """Return the sha256 over the files of :data:`SOURCES` below ``root``: Python, and the tables that it reads."""
    digest = hashlib.sha256()
    for package in SOURCES:
        for file in sorted(_sources(root / package)):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


def _sources(folder: Path) -> Iterator[Path]:
    for ending in ENDINGS:
        yield from folder.rglob(f"*{ending}")
