# SPDX-License-Identifier: Apache-2.0
"""Host's end of the line: hears what a guest says, and speaks to it."""

from __future__ import annotations

import contextlib
import hashlib
import re
import select
import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from vmtailor.base.text import is_number
from vmtailor.drivers.guest.further import FurtherProcesses
from vmtailor.drivers.guest.guest_text import parse_exit, parse_marks, parse_note, parse_result
from vmtailor.drivers.guest.wire import (
    FURTHER,
    MAX_BLOCK,
    OPEN_KEY,
    Decoder,
    Frame,
    FromGuest,
    PortDecoder,
    ToGuest,
    encode,
    encode_on_port,
)
from vmtailor.model.guest import GuestMark, GuestNote, GuestReport, StepResult

#: Bytes of each stream, of the console and of all files that are kept; what comes after is relayed but not kept.
KEEP_BYTES = 4 << 20
#: Bytes of standard input that may be under way, and of one frame of it: a serial line has no other flow control, and
#: on a port signals must not wait behind a stream that nobody takes.
_WINDOW, _PART = 2048, 1024
_PORT_WINDOW, _PORT_PART = 128 << 10, MAX_BLOCK
#: Bytes of output after which a guest on a port is told that they were taken.
_TAKEN_STEP = 64 << 10
#: Most bytes that are given to a line at once, and that wait for a guest that reads nothing.
_SEND_BYTES, _WAIT_BYTES = 64 << 10, 1 << 20
#: Last message of a kernel that was asked to end. It prints this at any console level.
_FAREWELL = re.compile(
    rb"(?:^|\n)(?:\[[^\]\n]{1,24}\] ?){0,2}"
    rb"(reboot: (?:(?:Power off not available: )?System halted(?: instead)?|Power down|Restarting system))\r?\n"
)
_FAREWELL_BYTES = 128


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
    """One boot's conversation. Call `pump` until it says False, or `run`.

    `key`: the run volume's, None where there is none. `port`: the virtio port on which init talks; the line is the
    kernel's alone then, unless init finds no port. `keep_output`: the streams are kept for the report. `on_stdout` and
    `on_stderr` get bytes as they come, `on_mark` each mark; `on_file`, by name, the parts of files that are too long to
    be kept. Everything heard is in `report()`; `farewell` is what the kernel said when something had it halt, power off
    or start again. `further` starts further processes in the container. Not safe for several threads."""

    def __init__(
        self,
        line: Line,
        *,
        key: bytes | None,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
        on_mark: Callable[[GuestMark], None] | None = None,
        on_file: Mapping[str, Callable[[bytes], None]] | None = None,
        port: Line | None = None,
        keep_bytes: int = KEEP_BYTES,
        keep_output: bool = True,
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
        self._port = port
        self._decoders: dict[Line, Decoder | PortDecoder] = {line: Decoder(key)}
        if port is not None:
            self._decoders[port] = PortDecoder(key or OPEN_KEY)
        #: The lines on which something may still come.
        self.lines = tuple(self._decoders)
        self._callbacks = {FromGuest.STDOUT: on_stdout, FromGuest.STDERR: on_stderr}
        self._on_mark = on_mark
        self._on_file = on_file or {}
        self._keep = keep_bytes
        self._keep_output = keep_output
        self._kept = {FromGuest.STDOUT: bytearray(), FromGuest.STDERR: bytearray()}
        self._stdout_hash = hashlib.sha256()
        self._console = bytearray()
        self._last_text = b""
        self.farewell = ""
        self._files: dict[str, bytearray] = {}
        self._truncated = False
        # Towards the guest: nothing goes out before init listens, standard input no faster than it is taken.
        self._listening = False
        self._sequence = 0
        self._out = bytearray()
        self._stdin = bytearray()
        self._stdin_end = False
        self._window, self._part = (_WINDOW, _PART) if port is None else (_PORT_WINDOW, _PORT_PART)
        self._credit = self._window
        self._taken = 0
        self._said_bye = False
        self.further = FurtherProcesses(self._frame, on_port=port is not None)
        if port is not None:
            self._greet(port)

    # --- hearing ---

    def fileno(self) -> int:
        return self.line.fileno()

    @property
    def wants_write(self) -> bool:
        """Return whether something waits to be sent, for callers with a selector of their own."""
        return self.open and self._listening and bool(self._out)

    @property
    def listening(self) -> bool:
        """Return whether init has said that it is there."""
        return self._listening

    @property
    def ended(self) -> bool:
        """Return whether the container has ended, or init given up."""
        return self.exit_code is not None or self.fatal is not None

    def pump(self, timeout_s: float) -> bool:
        """Wait at most so long for something to happen, and deal with it. False once the line has closed."""
        if not self.open:
            return False
        writers = [self.write_fileno()] if self.wants_write else []
        readable, writable, _ = select.select(self.lines, writers, [], timeout_s)
        if writable:
            self.send_waiting()
        for line in readable:
            self.hear(line)
        return self.open

    def write_fileno(self) -> int:
        """Return the descriptor on which the guest is spoken to."""
        line = self._port or self.line
        return int(getattr(line, "write_fileno", line.fileno)())  # a pair of pipes has two descriptors

    def send_waiting(self) -> None:
        """Send what waits to be sent, as far as the line takes it; hear nothing."""
        if self.wants_write:
            self._send()
            self._fill()

    def run(self, deadline_s: float, until: Callable[[GuestSession], bool] | None = None) -> bool:
        """Pump until the line closes or `until` holds; False when `deadline_s` seconds went by first."""
        end = time.monotonic() + deadline_s
        while self.open and not (until is not None and until(self)):
            left = end - time.monotonic()
            if left <= 0:
                return False
            self.pump(min(left, 1.0))
        return True

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
            damaged=sum(one.damaged for one in self._decoders.values()),
            lost=sum(one.lost for one in self._decoders.values()),
            stdout_sha256=self._stdout_hash.hexdigest(),
        )

    def hear(self, line: Line | None = None) -> None:
        """Read what has come on a line, by default the first, and deal with it."""
        line = line or self.line
        decoder = self._decoders[line]
        try:
            data = line.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.lines = tuple(one for one in self.lines if one is not line)
            self.open = bool(self.lines)
            frames, text = decoder.flush()
        else:
            frames, text = decoder.feed(data)
        if text:
            self._keep_part(self._console, text)
            self._hear_farewell(text)
        for frame in frames:
            self._hear(frame)

    def _hear_farewell(self, text: bytes) -> None:
        self._last_text += text
        found = _FAREWELL.search(self._last_text)
        if found:
            self.farewell = found[1].decode()
        self._last_text = self._last_text[-_FAREWELL_BYTES:]

    def _hear(self, frame: Frame) -> None:
        kind, payload = frame.type, frame.payload
        if kind in (FromGuest.STDOUT, FromGuest.STDERR):
            self._hear_output(FromGuest(kind), payload)
        elif kind == FromGuest.HELLO and payload.startswith(b"init"):
            self._listening = True
            self._fill()
        elif kind == FromGuest.MARK:
            self._hear_mark(payload)
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
        elif kind in FURTHER:
            self.further.hear(kind, payload)
        elif kind == FromGuest.CREDIT and is_number(payload) and len(payload) < 8:
            self._credit = min(self._window, self._credit + int(payload))
            self._fill()
        elif kind == FromGuest.BYE and self._port is not None and not self._said_bye:
            self._said_bye = True
            self._frame(ToGuest.HEARD, b"")

    def _hear_output(self, stream: FromGuest, payload: bytes) -> None:
        if self._keep_output:
            self._keep_part(self._kept[stream], payload)
            if stream is FromGuest.STDOUT:
                self._stdout_hash.update(payload)
        callback = self._callbacks[stream]
        if callback is not None:
            callback(payload)
        if self._port is None:
            return
        self._taken += len(payload)
        if self._taken >= _TAKEN_STEP and len(self._out) < _WAIT_BYTES:
            self._frame(ToGuest.TAKEN, b"%d" % self._taken)
            self._taken = 0

    def _hear_mark(self, payload: bytes) -> None:
        for mark in parse_marks(payload, time.monotonic()):
            self._append(self.marks, mark)
            if self._on_mark is not None:
                self._on_mark(mark)

    def _hear_file(self, payload: bytes) -> None:
        name, _, part = payload.partition(b"\0")
        callback = self._on_file.get(name.decode("ascii", "replace"))
        if callback is not None:
            callback(part)
        elif len(self._files) < 64 or name.decode("ascii", "replace") in self._files:
            self._keep_part(self._files.setdefault(name.decode("ascii", "replace"), bytearray()), part)

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

    def send_stdin(self, data: bytes) -> None:
        """Queue standard input; it goes out as fast as the entry point takes it. `stdin_queued` says how much waits."""
        self._stdin += data
        self._fill()

    @property
    def stdin_queued(self) -> int:
        """Return the bytes of standard input that have not been sent."""
        return len(self._stdin)

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

    def go(self) -> None:
        """Tell that the host's part of the load is done: a guest that holds goes on to stop."""
        self._frame(ToGuest.GO, b"")

    def _fill(self) -> None:
        while self._listening and self._stdin and self._credit > 0 and len(self._out) < _WAIT_BYTES:
            part = bytes(self._stdin[: min(self._part, self._credit)])
            del self._stdin[: len(part)]
            self._credit -= len(part)
            self._frame(ToGuest.STDIN, part)
        if self._listening and self._stdin_end and not self._stdin:
            self._stdin_end = False
            self._frame(ToGuest.STDIN_END, b"")

    def _frame(self, kind: ToGuest, payload: bytes) -> None:
        build = encode if self._port is None else encode_on_port
        self._out += build(kind, payload, self._sequence, self._key or OPEN_KEY)
        self._sequence += 1
        if self._listening:
            self._send()

    def _greet(self, port: Line) -> None:
        """Say which port is the host's: init tries those that there are. It fits into a line that is new."""
        with contextlib.suppress(OSError):  # the guest is gone; `pump` will hear so
            port.send(encode_on_port(ToGuest.GREETING, b"", self._sequence, self._key or OPEN_KEY))
        self._sequence += 1

    def _send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            try:
                sent = (self._port or self.line).send(bytes(self._out[:_SEND_BYTES]))
                del self._out[:sent]
            except BlockingIOError:
                raise
            except OSError:
                self._out.clear()  # the guest is gone; `pump` will hear so
