"""Arrays in files: written whole or not at all, and large ones read where they lie, page by page as they are used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: bytes of a file from which on it is mapped into memory
MAPPED = 1 << 20

SUFFIX = ".npy"


def bits(array: Any) -> NDArray[Any]:
    """An array that NumPy can write: types of ml_dtypes as integers of their width."""
    given = np.asarray(array)
    if given.dtype.kind in "fiub":
        return given
    flat = np.ascontiguousarray(given)
    return flat.view(f"u{flat.dtype.itemsize}")


def save_array(folder: Path, name: str, array: Any) -> None:
    """Write the bits of an array; a reader that has mapped an older file keeps that.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = folder / f".{name}.tmp"
    with temporary.open("wb") as stream:
        np.save(stream, bits(array), allow_pickle=False)
    temporary.replace(folder / f"{name}{SUFFIX}")


def load_array(folder: Path, name: str) -> NDArray[Any]:
    """Read what :func:`save_array` wrote, read-only where it is mapped.

    Raises:
        OSError: there is no such file.
        ValueError: it is damaged.
    """
    file = folder / f"{name}{SUFFIX}"
    mode = "r" if file.stat().st_size >= MAPPED else None
    return np.asarray(np.load(file, mmap_mode=mode, allow_pickle=False))  # type: ignore[arg-type]
