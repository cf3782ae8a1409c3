"""The file that tuning writes: one record a line, appended whole, read whatever happened to it.

A line is written by one ``write`` to a file opened for appending, under a lock, and flushed to the disk: a process that is
killed leaves all lines before, and at most a part of its last one, which readers skip with a warning and the next writer
ends. Several processes may write one journal.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock

from ladder.errors import TuningError
from ladder.runtime.tuning.record import Choice, Measurement, Record, dump, load, refuse_constant

#: raised whenever the form of a line changes
FORMAT = "v1"
LOCK_SECONDS = 60.0
POLL_SECONDS = 0.02
ANOTHER_FOLDER = "LADDER_TUNED_DIR names another folder"
#: bytes by which a file is known again; a line's date stands near its end
TAIL = 512
#: broken lines that a warning names
NAMED = 5


class Journal:
    """The records of a device, on disk.

    Args:
        path: of the file; it and its folder are made by the first record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = threading.Lock()
        self._read_to = 0
        self._lines = 0
        self._tail = b""
        self._measured: dict[tuple[str, str, str], Measurement] = {}
        self._chosen: dict[str, Choice] = {}
        self._broken: list[int] = []
        self._warned = 0

    @classmethod
    def of(cls, folder: Path, device: str) -> Journal:
        """The journal of a device in a folder of measured plans."""
        return cls(folder / FORMAT / f"{device}.jsonl")

    def add(self, record: Record) -> None:
        """Append a record; when this returns, it is on the disk.

        Raises:
            TuningError: the file cannot be written.
        """
        line = json.dumps(dump(record), allow_nan=False, separators=(",", ":")).encode() + b"\n"
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked():
                self._append(line)
        except OSError as error:
            raise TuningError(
                f"what was measured cannot be written: {error}",
                at=str(self.path),
                hint=ANOTHER_FOLDER,
            ) from error

    def _append(self, line: bytes) -> None:
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                line = b"\n" + line  # ends what a process that was killed left behind
            written = os.write(handle, line)
            if written != len(line):
                raise OSError(f"{written} of {len(line)} bytes were written")
            os.fsync(handle)
        finally:
            os.close(handle)

    def measurement(self, candidate: str, gpu: str, build: str) -> Measurement | None:
        """What came of a candidate on a kind of GPU with a build, or None."""
        self._refresh()
        return self._measured.get((candidate, gpu, build))

    def choice(self, problem: str) -> Choice | None:
        """The last choice of a problem, or None."""
        self._refresh()
        return self._chosen.get(problem)

    def choices(self) -> tuple[Choice, ...]:
        """The last choice of every problem."""
        self._refresh()
        return tuple(self._chosen.values())

    def _refresh(self) -> None:
        """Read the lines that were added since the last time."""
        with self._guard:
            try:
                self._read()
            except FileNotFoundError:
                return
            except OSError as error:
                self._unreadable(error)
                return
            self._warn()

    def _read(self) -> None:
        content = self._news()
        if content and not content.endswith(b"\n"):
            # a writer is at it, or died at it: behind its lock it is one or the other
            with suppress(OSError, TuningError), self._locked():
                content = self._news()
        *lines, rest = content.split(b"\n")
        taken = content[: len(content) - len(rest)]
        self._read_to += len(taken)
        self._tail = (self._tail + taken)[-TAIL:]
        for line in lines:
            self._lines += 1
            self._take(line)
        if rest:
            self._breaks(self._lines + 1)

    def _news(self) -> bytes:
        """What stands behind the bytes that were read; everything, where those are others by now."""
        with self.path.open("rb") as stream:
            stream.seek(self._read_to - len(self._tail))
            content = stream.read()
            if content.startswith(self._tail):
                return content[len(self._tail) :]
            self._read_to, self._lines, self._tail = 0, 0, b""
            self._measured, self._chosen, self._broken, self._warned = {}, {}, [], 0
            stream.seek(0)
            return stream.read()

    def _take(self, line: bytes) -> None:
        try:
            record = load(json.loads(line, parse_constant=refuse_constant))
        except (ValueError, RecursionError, TuningError):
            self._breaks(self._lines)
            return
        if isinstance(record, Choice):
            self._chosen[record.problem] = record
        else:
            self._measured[record.candidate, record.gpu, record.build] = record

    def _breaks(self, line: int) -> None:
        if line not in self._broken:
            self._broken.append(line)

    def _unreadable(self, error: OSError) -> None:
        if self._warned:
            return
        self._warned = 1
        warnings.warn(
            f"measured plans cannot be read: {error}; LADDER_TUNED_DIR names another folder",
            RuntimeWarning,
            stacklevel=4,
        )

    def _warn(self) -> None:
        if len(self._broken) <= self._warned:
            return
        self._warned = len(self._broken)
        named = ", ".join(map(str, self._broken[:NAMED]))
        more = " and more" if len(self._broken) > NAMED else ""
        warnings.warn(
            f"measured plans: {len(self._broken)} lines of {self.path} are cut or damaged (line {named}{more})"
            " and are not used; what they held is measured again",
            RuntimeWarning,
            stacklevel=4,
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with lock(self.path.with_suffix(".lock"), seconds=LOCK_SECONDS) as got:
            if not got:
                raise OSError(f"another process holds the lock for {LOCK_SECONDS:g} s")
            yield


@contextmanager
def lock(path: Path, *, seconds: float) -> Iterator[bool]:
    """Hold a lock among processes; yields whether it was got in time (0: at once; less than 0: wait for ever).

    A process that ends, in whatever way, gives its locks back. Where a file system has no locks, everyone gets them.

    Raises:
        TuningError: the file of the lock cannot be made.
    """
    taken = filelock.FileLock(path, timeout=seconds)
    got = True
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken.acquire(poll_interval=POLL_SECONDS)
    except filelock.Timeout:
        got = False
    except NotImplementedError:
        got = True
    except OSError as error:
        raise TuningError(
            f"no lock can be taken: {error}", at=str(path), hint=ANOTHER_FOLDER
        ) from error
    try:
        yield got
    finally:
        taken.release()
