# SPDX-License-Identifier: Apache-2.0
"""Work that can be told to stop from another thread: the programs that it runs are ended, and it starts no more."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextvars import ContextVar


class Stopped(BaseException):
    """This thread's work was told to stop. As with KeyboardInterrupt, nobody on the way catches it."""


class Stop:
    """What stops one piece of work, and all that it begins in threads of its own (`above`: what it is part of)."""

    def __init__(self, above: Stop | None = None) -> None:
        self._above = above
        self._stopped = False
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    def stop(self) -> None:
        """End every program of this work that runs; what it would start from now on raises Stopped there."""
        with self._lock:
            self._stopped = True
            running = tuple(self._running)
        for process in running:
            _kill(process)

    def check(self) -> None:
        """Raises Stopped where this work, or what it is part of, was told to stop."""
        if self._stopped:
            raise Stopped
        if self._above is not None:
            self._above.check()

    def runs(self, process: subprocess.Popen[bytes]) -> None:
        """A program of this work has been started."""
        with self._lock:
            self._running.add(process)
            stopped = self._stopped
        if stopped:  # between our look and its start
            _kill(process)
        if self._above is not None:
            self._above.runs(process)

    def ended(self, process: subprocess.Popen[bytes]) -> None:
        """That program is gone."""
        with self._lock:
            self._running.discard(process)
        if self._above is not None:
            self._above.ended(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Not reaped here: its number is its own until the thread that started it has waited for it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


_current: ContextVar[Stop | None] = ContextVar("stop", default=None)


def current() -> Stop | None:
    """What stops the work that runs here; None where nothing does but the end of this process."""
    return _current.get()


@contextlib.contextmanager
def stopped_by(stop: Stop) -> Iterator[None]:
    """What is done within the block is stopped by this."""
    token = _current.set(stop)
    try:
        yield
    finally:
        _current.reset(token)


def check() -> None:
    """Raises Stopped where the work that runs here was told to stop."""
    stop = current()
    if stop is not None:
        stop.check()
