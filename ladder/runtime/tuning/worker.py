"""A process that does one piece of work after the other, and may crash or hang without taking anything along.

The work runs in a process of its own because a kernel can do what no exception catches: a bad address ends a CUDA context,
a missing barrier never returns, a compiler runs out of memory. What happened becomes a value. A worker whose parent dies,
in whatever way, ends with it: it reads from a pipe of which nobody else holds the other end.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ladder.errors import LadderError
from ladder.runtime.tuning.journal import lock

#: seconds that a worker gets to end by itself
GRACE_SECONDS = 2.0
#: how the reason of a failure begins where the process ended by itself
DIED = "the process died"
#: characters of an error's text that are kept
MOST_TEXT = 400

#: makes the function that does the work, in the worker's process; pickled, so a function of a module or a partial of one
Make = Callable[[], Callable[[Any], Any]]


@dataclass(frozen=True, slots=True)
class Failed:
    """Work that gave nothing.

    Attributes:
        reason: what happened, in one line.
        lasting: whether it would happen again; not so where memory or a kernel was missing.
    """

    reason: str
    lasting: bool = True


class TransientError(LadderError):
    """What failed is not the fault of what was asked for: it may work another time."""


class Worker:
    """One process; started by the first piece of work, and again after it crashed, hung or raised.

    Args:
        make: see :data:`Make`.
        limit_s: seconds that one piece of work may take, its wait for the lock not counted.
        exclusive: a lock among all workers of a machine that is held while working, or None.
    """

    def __init__(self, make: Make, limit_s: float, exclusive: Path | None = None) -> None:
        self._make = make
        self._limit_s = limit_s
        self._exclusive = exclusive
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def __call__(self, request: Any) -> Any:
        """The answer to a request, or :class:`Failed`."""
        try:
            pipe = self._started()
            pipe.send(request)
            begun, _ = pipe.recv()
            assert begun == "begun"
            if not pipe.poll(self._limit_s):
                self.close(grace_s=0.0)
                return Failed(f"not done after {self._limit_s:g} s")
            kind, answer = pipe.recv()
        except (EOFError, OSError):
            return Failed(f"{DIED}: {self._ended()}")
        if kind == "failed":
            self.close()  # its CUDA context may be broken; a fresh one costs a second
        return answer

    def close(self, *, grace_s: float = GRACE_SECONDS) -> None:
        """End the process."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()
        if process is not None:
            process.join(grace_s)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()

    def _started(self) -> Connection:
        if self._pipe is None:
            # not fork: the parent has threads, and CUDA does not survive a fork
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(
                target=_serve, args=(self._make, theirs, self._exclusive), daemon=True
            )
            self._process.start()
            theirs.close()
        return self._pipe

    def _ended(self) -> str:
        process = self._process
        if process is None:
            return "it was not started"
        process.join(GRACE_SECONDS)
        code = process.exitcode
        self.close(grace_s=0.0)
        if code is None:
            return "its pipe broke"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"{signal.Signals(-code).name}"
        return f"exit code {code}"


def _serve(make: Make, pipe: Connection, exclusive: Path | None) -> None:
    """The worker's process: read a request, say when work begins, answer; end when nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    work: Callable[[Any], Any] | None = None
    with contextlib.suppress(EOFError, OSError):
        while True:
            request = pipe.recv()
            with _held(exclusive):
                pipe.send(("begun", None))
                try:
                    work = work or make()
                    answer = ("done", work(request))
                except Exception as error:  # noqa: BLE001 - becomes a value; the worker is ended by its parent
                    answer = ("failed", failure(error))
            pipe.send(answer)


def failure(error: BaseException) -> Failed:
    """An error as a value."""
    text = " ".join(str(error).split())[:MOST_TEXT]
    transient = isinstance(error, TransientError | MemoryError)
    return Failed(f"{type(error).__name__}: {text}", lasting=not transient)


@contextlib.contextmanager
def _held(exclusive: Path | None) -> Any:
    if exclusive is None:
        yield
        return
    with lock(exclusive, seconds=-1):
        yield
