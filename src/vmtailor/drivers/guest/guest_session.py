# SPDX-License-Identifier: Apache-2.0
"""Host's end of the serial line: hears what a guest says, and lets it go on."""

from __future__ import annotations

import contextlib
import hashlib
import select
import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from vmtailor.drivers.guest.guest_text import parse_exit, parse_marks, parse_note, parse_result
from vmtailor.drivers.guest.wire import GO, OPEN_KEY, Decoder, Frame, FromGuest, encode
from vmtailor.model.guest import GuestMark, GuestNote, GuestReport, StepResult

#: Bytes of each stream, of the console and of all files that are kept.
KEEP_BYTES = 4 << 20

T = TypeVar("T")


class Line(Protocol):
    """A connected, non-blocking stream: a socket."""

    def fileno(self) -> int: ...
    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: bytes, /) -> int: ...


class _Heard:
    """A line on which nothing more comes."""

    def __init__(self, data: bytes) -> None:
        self._left = data

    def fileno(self) -> int:
        raise OSError("there is no descriptor")

    def recv(self, size: int, /) -> bytes:
        part, self._left = self._left[:size], self._left[size:]
        return part

    def send(self, data: bytes, /) -> int:
        return len(data)


def heard(data: bytes, key: bytes) -> GuestReport:
    """Return what a guest said on a line that has closed. `key`: the run volume's."""
    session = GuestSession(_Heard(data), key=key)
    while session.open:
        session.hear()
    return session.report()


class GuestSession:
    """One boot's conversation. Call `pump` until it says False. Everything heard is in `report()`.

    `key`: the run volume's, None where there is none. `takes`: files that somebody takes as they come, by name; they
    are not kept. Not safe for several threads."""

    def __init__(
        self,
        line: Line,
        *,
        key: bytes | None,
        keep_bytes: int = KEEP_BYTES,
        takes: Mapping[str, Callable[[bytes], None]] | None = None,
    ) -> None:
        self.line = line
        self.open = True
        self.marks: list[GuestMark] = []
        self.notes: list[GuestNote] = []
        self.results: list[StepResult] = []
        self.fatal: GuestNote | None = None
        self.exit_code: int | None = None
        self._exit = (0, "")
        self._key = key
        self._takes = takes or {}
        self._decoder = Decoder(key)
        self._keep = keep_bytes
        self._kept = {FromGuest.STDOUT: bytearray(), FromGuest.STDERR: bytearray()}
        self._stdout_hash = hashlib.sha256()
        self._console = bytearray()
        self._files: dict[str, bytearray] = {}
        self._truncated = False
        # Towards the guest: nothing goes out before init listens.
        self._listening = False
        self._sequence = 0
        self._out = bytearray()

    # --- hearing ---

    @property
    def listening(self) -> bool:
        """Return whether init has said that it is there."""
        return self._listening

    def pump(self, timeout_s: float) -> bool:
        """Wait at most so long for something to happen, and deal with it. False once the line has closed."""
        if not self.open:
            return False
        # A pair of pipes has two descriptors.
        writer = getattr(self.line, "write_fileno", self.line.fileno)()
        writers = [writer] if self._listening and self._out else []
        readable, writable, _ = select.select([self.line], writers, [], timeout_s)
        if writable:
            self._send()
        if readable:
            self.hear()
        return self.open

    def report(self) -> GuestReport:
        """Return everything that was heard so far."""

        def text(data: bytes | bytearray) -> str:
            return data.decode("utf-8", "replace")

        return GuestReport(
            marks=tuple(self.marks),
            notes=tuple(self.notes),
            fatal=self.fatal,
            exit_code=self.exit_code,
            signal=self._exit[0],
            exit_reason=self._exit[1],
            results=tuple(self.results),
            stdout=text(self._kept[FromGuest.STDOUT]),
            stderr=text(self._kept[FromGuest.STDERR]),
            truncated=self._truncated,
            files=tuple((name, text(data)) for name, data in self._files.items()),
            console=text(self._console),
            damaged=self._decoder.damaged,
            lost=self._decoder.lost,
            stdout_sha256=self._stdout_hash.hexdigest(),
        )

    def hear(self) -> None:
        """Read what has come on the line, and deal with it."""
        try:
            data = self.line.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.open = False
        frames, text = self._decoder.feed(data) if data else self._decoder.flush()
        self._keep_part(self._console, text)
        for frame in frames:
            self._hear(frame)

    def _hear(self, frame: Frame) -> None:
        kind, payload = frame.type, frame.payload
        if kind in (FromGuest.STDOUT, FromGuest.STDERR):
            self._keep_part(self._kept[FromGuest(kind)], payload)
            if kind == FromGuest.STDOUT:
                self._stdout_hash.update(payload)
        elif kind == FromGuest.HELLO and payload.startswith(b"init"):
            self._listening = True
            self._send()
        elif kind == FromGuest.MARK:
            for mark in parse_marks(payload, time.monotonic()):
                self._append(self.marks, mark)
        elif kind == FromGuest.NOTE:
            self._append(self.notes, parse_note(payload))
        elif kind == FromGuest.FATAL:
            self.fatal = self.fatal or parse_note(payload)
        elif kind == FromGuest.EXIT:
            code, by_signal, why = parse_exit(payload)
            self.exit_code, self._exit = code, (by_signal, why)
        elif kind == FromGuest.RESULT:
            self._append(self.results, parse_result(payload))
        elif kind == FromGuest.FILE:
            self._hear_file(payload)

    def _hear_file(self, payload: bytes) -> None:
        head, _, part = payload.partition(b"\0")
        name = head.decode("ascii", "replace")
        if name in self._takes:
            self._takes[name](part)
        elif len(self._files) < 64 or name in self._files:
            self._keep_part(self._files.setdefault(name, bytearray()), part)

    def _append(self, items: list[T], item: T) -> None:
        if len(items) < 10000:
            items.append(item)
        else:
            self._truncated = True

    def _keep_part(self, kept: bytearray, data: bytes) -> None:
        room = self._keep - len(kept)
        if len(data) > room:
            self._truncated = True
        kept += data[: max(0, room)]

    # --- speaking ---

    def go(self) -> None:
        """Tell that the host's part of the load is done: a guest that holds goes on to stop."""
        self._frame(GO, b"")

    def _frame(self, kind: str, payload: bytes) -> None:
        self._out += encode(kind, payload, self._sequence, self._key or OPEN_KEY)
        self._sequence += 1
        if self._listening:
            self._send()

    def _send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            try:
                del self._out[: self.line.send(bytes(self._out))]
            except BlockingIOError:
                raise
            except OSError:
                self._out.clear()  # the guest is gone; `pump` will hear so
