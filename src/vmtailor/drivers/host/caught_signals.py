# SPDX-License-Identifier: Apache-2.0
"""Signals as something to read: they interrupt nothing, and come in their order."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from types import FrameType

#: Asks for the end.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: Says nothing to us, but perhaps to the container. Not among them: what stops a job (SIGTSTP and its like), what is
#: about our own process (SIGCHLD, SIGPIPE, SIGURG, the limits of resources), and what a fault of ours raises.
PASSED_ON = (
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGCONT, signal.SIGIO,
    signal.SIGPWR, signal.SIGWINCH, *range(int(signal.SIGRTMIN), int(signal.SIGRTMAX) + 1),
)  # fmt: skip


class CaughtSignals:
    """`fileno()` is readable when something came; `take()` says what. `wake` makes it readable, from any thread."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)

    def fileno(self) -> int:
        return self._out

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is readable already; closed: nobody waits any more
            os.write(self._in, b"\0")

    def take(self) -> list[int]:
        """Return the signals since the last call, the oldest first, without waiting."""
        try:
            return [number for number in os.read(self._out, 65536) if number]
        except BlockingIOError:
            return []

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)

    def writing_end(self) -> int:
        return self._in


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Python's own part of a handler: the byte in the pipe is all that is wanted."""


@contextlib.contextmanager
def caught(numbers: Iterable[int] = (*STOPPING, *PASSED_ON)) -> Iterator[CaughtSignals]:
    """Catch these signals; what they did before is put back at the end. A SIGHUP that is ignored stays so: that is how
    `nohup` starts a program. For the main thread."""
    signals = CaughtSignals()
    before = {number: signal.getsignal(number) for number in numbers}
    if before.get(signal.SIGHUP) is signal.SIG_IGN:
        del before[signal.SIGHUP]
    old = signal.set_wakeup_fd(signals.writing_end(), warn_on_full_buffer=False)
    try:
        for number in before:
            signal.signal(number, _nothing)
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(old)
        signals.close()
