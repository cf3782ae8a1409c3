"""What is saved: folders that are written whole or not at all; in them documents and arrays with digests, which are checked.

    with replacing(folder, CONTENTS, at="Model.save", error=GraphError) as new:
        digest = save_array(new, "weight", array)
        save_document(new / "index.json", {"format": FORMAT, "weight": digest})

    index = load_document(folder / "index.json", FORMAT)
    array = load_array(folder, "weight", index["weight"])

A process that is killed while it writes leaves what stood there, and a hidden folder ``.<name>.<number>.tmp`` beside it.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ladder.errors import ArtifactError, LadderError

#: bytes of a file from which on it is mapped into memory
MAPPED = 1 << 20

SUFFIX = ".npy"
#: bytes that are read at a time for a digest
PIECE = 1 << 20
#: field of a document that holds the digest of all others
DIGEST = "sha256"
AGAIN = "save it again"

#: names of a folder's foreign files that an error lists
LISTED = 5

# renameat2(2) of Linux: paths are seen from the working directory, and the two names change places
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
#: what a rename says where something stands already
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
#: what an exchange says that the system or its file system does not offer
_NOT_OFFERED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


# -- folders ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contents:
    """What lies at the top of a folder that was saved.

    Attributes:
        kind: what it is, in a word: ``"artifact"``.
        mark: the file that makes it one.
        others: patterns of all other names, as of :mod:`fnmatch`.
    """

    kind: str
    mark: str
    others: tuple[str, ...] = ()

    def foreign(self, folder: Path) -> list[str]:
        """Names of what is not its own; all where the mark is missing, none in an empty folder."""
        names = sorted(path.name for path in folder.iterdir())
        if self.mark not in names:
            return names
        own = (self.mark, *self.others)
        return [name for name in names if not any(fnmatch(name, one) for one in own)]


@contextmanager
def replacing(
    folder: Path, contents: Contents, *, at: str, error: type[LadderError]
) -> Iterator[Path]:
    """A new folder to write to, which takes the place of ``folder`` when all is written, and is on the disk then.

    Of two processes that write to one place, one's folder stands there in the end, whole. A reader that has files of the old
    one open or mapped keeps them.

    Args:
        folder: where it is to stand; its parents are made.
        contents: what may be replaced: a folder that holds nothing else.
        at: the caller, for errors.
        error: type of the errors.

    Raises:
        LadderError: (of type ``error``) something else stands there, or it cannot be written.
    """
    target = folder.resolve()
    _check_replaceable(target, contents, at, error)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        _flush(temporary)
        _put(temporary, target)
    except OSError as failure:
        raise error(
            f"cannot write: {failure}",
            at=f"{at}: {target}",
            hint="check the place, its rights and the disk",
        ) from failure
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder, which is made where it is missing.

    Raises:
        OSError: one cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _check_replaceable(target: Path, contents: Contents, at: str, error: type[LadderError]) -> None:
    where, hint = f"{at}: {target}", "give another folder, or empty this one"
    if target in (Path.cwd(), *Path.cwd().parents):
        raise error(
            "the working directory cannot be replaced", at=where, hint="give a folder inside it"
        )
    try:
        foreign = contents.foreign(target)
    except FileNotFoundError:
        return
    except NotADirectoryError as failure:
        raise error("a file stands there", at=where, hint=hint) from failure
    except OSError as failure:
        raise error(f"cannot read what stands there: {failure}", at=where, hint=hint) from failure
    if foreign:
        listed = ", ".join(foreign[:LISTED]) + (", ..." if len(foreign) > LISTED else "")
        raise error(f"the folder holds what is no {contents.kind}'s: {listed}", at=where, hint=hint)


def _flush(folder: Path) -> None:
    """Bring a folder's files, and then their names, to the disk."""
    for path in (*sorted(folder.rglob("*"), reverse=True), folder):
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _put(new: Path, target: Path) -> None:
    """Give a folder the name of another, which is removed; other processes may do the same at any time."""
    old = new.with_suffix(".old")
    while True:
        try:
            new.rename(target)  # where nothing stands, or an empty folder
            break
        except OSError as failure:
            if failure.errno not in _TAKEN:
                raise
        with suppress(FileNotFoundError):  # another process has taken it away just now
            shutil.copymode(target, new)
            if _exchange(new, target):
                break
            # what stands there is of a turn before, after which another process was quicker
            shutil.rmtree(old, ignore_errors=True)
            target.rename(old)
    _sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change names in one step; False where that is not offered, so that it takes two.

    Raises:
        OSError: it is offered, and failed.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    paths = (os.fsencode(one), os.fsencode(other))
    if call(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_OFFERED:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


# -- arrays ----------------------------------------------------------------------------------------------------------


def bits(array: Any) -> NDArray[Any]:
    """An array that NumPy can write: types of ml_dtypes as integers of their width."""
    given = np.asarray(array)
    if given.dtype.kind in "fiub":
        return given
    flat = np.ascontiguousarray(given)
    return flat.view(f"u{flat.dtype.itemsize}")


def save_array(folder: Path, name: str, array: Any) -> str:
    """Write the bits of an array into a folder that nobody reads yet, and return the sha256 of the file.

    Raises:
        OSError: the file cannot be written.
    """
    with (folder / f"{name}{SUFFIX}").open("wb") as stream:
        counted = _Digesting(stream)
        np.save(counted, bits(array), allow_pickle=False)
    return counted.digest.hexdigest()


def load_array(folder: Path, name: str, digest: str) -> NDArray[Any]:
    """Read what :func:`save_array` wrote, read-only where it is mapped; all of it is read once, for its digest.

    Raises:
        OSError: there is no such file.
        ArtifactError: it has another digest.
        ValueError: it is no array.
    """
    file = folder / f"{name}{SUFFIX}"
    found = hashlib.sha256()
    piece = memoryview(bytearray(PIECE))
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(piece):
            found.update(piece[:count])
    check_digest(file.name, found.hexdigest(), digest, at=folder)
    mode = "r" if file.stat().st_size >= MAPPED else None
    return np.asarray(np.load(file, mmap_mode=mode, allow_pickle=False))  # type: ignore[arg-type]


class _Digesting:
    """A stream that knows the digest of what was written to it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.digest = stream, hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        return self._stream.write(content)


# -- documents and digests -------------------------------------------------------------------------------------------


def save_document(file: Path, document: Mapping[str, Any], *, indent: int | None = None) -> None:
    """Write an object as JSON, with its digest as the last field.

    Raises:
        OSError: the file cannot be written.
    """
    text = json.dumps({**document, DIGEST: document_digest(document)}, indent=indent)
    file.write_text(text + "\n", encoding="utf-8")


def load_document(file: Path, form: str) -> dict[str, Any]:
    """Read what :func:`save_document` wrote.

    Args:
        file: of JSON.
        form: what its field ``format`` has to say.

    Raises:
        OSError: there is no such file.
        ValueError: it is no JSON.
        ArtifactError: it has another format, or is not as it was written.
    """
    document = json.loads(file.read_text(encoding="utf-8"))
    found = document.get("format") if isinstance(document, dict) else None
    if found != form:
        raise ArtifactError(
            f"{file.name} holds format {found!r}, expected {form!r}",
            at=file.parent,
            hint="save it again with this version",
        )
    check_document(file.name, document, at=file.parent)
    return dict(document)


def document_digest(document: Mapping[str, Any]) -> str:
    """The sha256 of all fields but the digest itself."""
    fields = {name: value for name, value in document.items() if name != DIGEST}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_document(
    name: str, document: Mapping[str, Any], *, at: object, hint: str = AGAIN
) -> None:
    """Refuse a document whose fields are not those that its digest was made of.

    Raises:
        ArtifactError: they are not.
    """
    if document.get(DIGEST) != document_digest(document):
        raise ArtifactError(
            f"{name} is not as it was written", at=at, hint=f"it was changed or damaged: {hint}"
        )


def check_digest(name: str, found: str, wanted: str, *, at: object, hint: str = AGAIN) -> None:
    """Refuse a file with another sha256 than was recorded.

    Raises:
        ArtifactError: it has.
    """
    if found != wanted:
        raise ArtifactError(
            f"{name} has sha256 {found[:12]}..., recorded is {wanted[:12]}...",
            at=at,
            hint=f"the file was changed or damaged: {hint}",
        )
