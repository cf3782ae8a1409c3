"""Artifacts of many kernels in one folder that travels: ``NAME.zip`` each, and ``index.json`` with where they come from.

An artifact's manifest spells out every bit of its packing and compresses thirtyfold; the emulator's listing stays behind.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ladder
from ladder.runtime.versions import commit_of

if TYPE_CHECKING:
    from ladder.runtime.artifact import Artifact
    from ladder.runtime.kernel import Kernel

INDEX = "index.json"


@dataclass
class Index:
    """What a folder holds.

    Attributes:
        commit: of the compiler that made the kernels, ``+`` behind it where its files were changed.
        toolkit: the CUDA compiler.
        command: that wrote the folder.
        kernels: case name -> artifact, registers, spill bytes, shared bytes and seconds of a kernel, or ``{"failure": why}``.
    """

    commit: str
    toolkit: str
    command: str
    kernels: dict[str, dict[str, Any]] = field(default_factory=dict)

    def built(self, name: str) -> bool:
        """Whether there is a kernel for a case."""
        return "artifact" in self.kernels.get(name, {})

    def failure(self, name: str) -> str:
        """Why there is none."""
        return str(self.kernels.get(name, {}).get("failure", "not built"))

    def save(self, folder: Path) -> None:
        """Write the index."""
        (folder / INDEX).write_text(json.dumps(vars(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Index:
        """Read what :meth:`save` wrote."""
        return cls(**json.loads((folder / INDEX).read_text(encoding="utf-8")))


def commit() -> str:
    """The commit of the working tree, see :func:`~ladder.runtime.versions.commit_of`."""
    return commit_of(Path.cwd())


def command() -> str:
    """The command line of this process, as one would type it."""
    return " ".join(["python", *sys.orig_argv[1:]])


def save(artifact: Artifact, folder: Path, name: str) -> int:
    """Write an artifact as ``NAME.zip``; returns its bytes."""
    parts = tuple(replace(p, lowered=replace(p.lowered, listing=None)) for p in artifact.parts)
    target = folder / f"{name}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file, content in replace(artifact, parts=parts).files().items():
            archive.writestr(file, content)
    return target.stat().st_size


@contextmanager
def unpacked(folder: Path, name: str) -> Iterator[Path]:
    """The artifact folder of a kernel, for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="ladder-bench-") as temporary:
        with zipfile.ZipFile(folder / f"{name}.zip") as archive:
            archive.extractall(temporary)
        yield Path(temporary)


def load(folder: Path, name: str) -> Kernel:
    """Load a kernel that :func:`save` wrote, as a user would: ``ladder.load(folder)``."""
    with unpacked(folder, name) as artifact:
        return ladder.load(artifact)
