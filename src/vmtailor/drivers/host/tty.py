# SPDX-License-Identifier: Apache-2.0
"""The caller's terminal: its size, and its raw mode. It may vanish at any time, which is no error here."""

from __future__ import annotations

import contextlib
import os
import termios
import tty
from collections.abc import Iterator


def size() -> tuple[int, int]:
    """Return rows and columns of the terminal at one of our standard streams; 24 and 80 where there is none. The
    environment's LINES and COLUMNS do not count: they stay as they are when a window changes."""
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            found = os.get_terminal_size(descriptor)
            if found.lines > 0 and found.columns > 0:
                return found.lines, found.columns
    return 24, 80


def require_streams() -> None:
    """Hold the places of standard streams that were closed: a file that we open would come to lie there, and get the
    container's output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open("/dev/null", os.O_RDWR)  # takes the lowest number that is free


def _group() -> int | None:
    """Return the process group that has the terminal at standard input; None where it does not control us."""
    try:
        return os.tcgetpgrp(0)
    except OSError:
        return None


class RawTerminal:
    """The terminal at standard input, raw where `wanted` and there is one."""

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted and os.isatty(0)

    def again(self) -> None:
        """Make it raw: at first, and after a shell that had stopped us had it."""
        if self.wanted:
            with contextlib.suppress(termios.error, OSError):
                tty.setraw(0, termios.TCSANOW)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raw for a while."""
        saved = None
        if self.wanted:
            with contextlib.suppress(termios.error, OSError):
                saved = termios.tcgetattr(0)
            self.again()
        try:
            yield
        finally:
            if saved is not None:
                # At once: waiting until all output is read (TCSADRAIN) would be for ever where nobody reads.
                # In the background the terminal is another's, and asking for it would stop us; one that controls others
                # cannot.
                with contextlib.suppress(termios.error, OSError):
                    if _group() in (None, os.getpgrp()):
                        termios.tcsetattr(0, termios.TCSANOW, saved)
