# SPDX-License-Identifier: Apache-2.0
"""Two pieces of work at a time, and work that another thread can stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from typing import Generic, TypeVar


class Stopped(BaseException):
    """The work of this thread was told to stop. No code on the way catches it, as with KeyboardInterrupt."""


class Stop:
    """A switch that stops one piece of work and all that it begins in threads of its own. `above`: the switch of the
    work that this one is part of."""

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
        """Raise Stopped where this work, or what it is part of, was told to stop."""
        if self._stopped:
            raise Stopped
        if self._above is not None:
            self._above.check()

    def runs(self, process: subprocess.Popen[bytes]) -> None:
        """Note that a program of this work has been started."""
        with self._lock:
            self._running.add(process)
            stopped = self._stopped
        if stopped:  # between our look and its start
            _kill(process)
        if self._above is not None:
            self._above.runs(process)

    def ended(self, process: subprocess.Popen[bytes]) -> None:
        """Forget a program that is gone."""
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


def current_stop() -> Stop | None:
    """Return the switch that stops the work running here; None where only the end of this process does."""
    return _current.get()


@contextlib.contextmanager
def stopped_by(stop: Stop) -> Iterator[None]:
    """Let `stop` stop the work that is done within the block."""
    token = _current.set(stop)
    try:
        yield
    finally:
        _current.reset(token)


def check_stopped() -> None:
    """Raise Stopped where the work that runs here was told to stop."""
    stop = current_stop()
    if stop is not None:
        stop.check()


First = TypeVar("First")
Second = TypeVar("Second")


class Beside(Generic[First]):
    """Work under way in a thread of its own."""

    def __init__(self, work: Callable[[], First]) -> None:
        self._work = work
        self._stop = Stop(current_stop())
        self._result: list[First] = []
        self._error: BaseException | None = None
        context = copy_context()
        self._thread = threading.Thread(target=lambda: context.run(self._run), daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with stopped_by(self._stop):
                self._result.append(self._work())
        except BaseException as error:
            self._error = error

    def wait(self) -> First:
        """Return the result of the work. Raises what the work raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result[0]

    def stop(self) -> None:
        """End it, whatever it does; returns when it has ended."""
        self._stop.stop()
        self._thread.join()


@contextlib.contextmanager
def beside(work: Callable[[], First]) -> Iterator[Beside[First]]:
    """Begin work in another thread, and stop it when the block is left. Wait for it within the block."""
    begun = Beside(work)
    try:
        yield begun
    finally:
        begun.stop()


def both(first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
    """Do both at the same time, the second in this thread. Raises what the second raises, else what the first does."""
    with beside(first) as begun:
        result = second()
        return begun.wait(), result
