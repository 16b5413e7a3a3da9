# SPDX-License-Identifier: Apache-2.0
"""The whole of the host's end of a serial line, in the host's native end's place: streams, signals, the terminal's
size, and further processes of the container."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.fakes.further import FurtherProcesses
from tests.fakes.port_wire import FURTHER, ToGuest

from vmtailor.base.text import is_number
from vmtailor.drivers.guest.guest_session import GuestSession, Line
from vmtailor.drivers.guest.wire import Frame, FromGuest

#: Bytes of standard input that may be under way, and of one frame of it: a serial line has no other flow control.
_WINDOW, _PART = 2048, 1024


class TalkingSession(GuestSession):
    """A conversation in which the host talks, too. `further` starts further processes in the container."""

    def __init__(self, line: Line, *, key: bytes | None) -> None:
        super().__init__(line, key=key)
        self.further = FurtherProcesses(self._frame)
        self._stdin = bytearray()
        self._stdin_end = False
        self._credit = _WINDOW

    def run(self, deadline_s: float, until: Callable[[TalkingSession], bool] | None = None) -> bool:
        """Pump until the line closes or `until` holds; False when `deadline_s` seconds went by first."""
        end = time.monotonic() + deadline_s
        while self.open and not (until is not None and until(self)):
            left = end - time.monotonic()
            if left <= 0:
                return False
            self.pump(min(left, 1.0))
        return True

    def send_stdin(self, data: bytes) -> None:
        """Queue standard input; it goes out as fast as the entry point takes it."""
        self._stdin += data
        self._fill()

    def end_stdin(self) -> None:
        """End standard input after what is queued."""
        self._stdin_end = True
        self._fill()

    def send_signal(self, number: int) -> None:
        """Send a signal to the entry point."""
        self._frame(ToGuest.SIGNAL, b"%d" % number)

    def resize(self, rows: int, columns: int) -> None:
        """Tell that the terminal has another size."""
        self._frame(ToGuest.WINDOW, b"%d %d" % (rows, columns))

    def _hear(self, frame: Frame) -> None:
        super()._hear(frame)
        if frame.type in FURTHER:
            self.further.hear(frame.type, frame.payload)
        elif frame.type == FromGuest.CREDIT and is_number(frame.payload) and len(frame.payload) < 8:
            self._credit = min(_WINDOW, self._credit + int(frame.payload))
        self._fill()

    def _fill(self) -> None:
        while self._listening and self._stdin and self._credit > 0:
            part = bytes(self._stdin[: min(_PART, self._credit)])
            del self._stdin[: len(part)]
            self._credit -= len(part)
            self._frame(ToGuest.STDIN, part)
        if self._listening and self._stdin_end and not self._stdin:
            self._stdin_end = False
            self._frame(ToGuest.STDIN_END, b"")
