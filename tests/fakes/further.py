# SPDX-License-Identifier: Apache-2.0
"""Further processes in a container that runs: their orders, and what is said with each on the wire.

Each has a number of its own, which the host chooses, so that several talk at once (docs/reference/guest-init.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from tests.fakes.port_wire import MAX_BLOCK, ToGuest

from vmtailor.base.text import is_number
from vmtailor.drivers.guest.guest_text import parse_exit
from vmtailor.drivers.guest.guest_volume import records
from vmtailor.drivers.guest.wire import MAX_PAYLOAD, FromGuest
from vmtailor.model.boots.workload import Terminal

#: Processes that init has at once, and the largest number that one may have.
MOST_AT_ONCE = 64
_MOST_NUMBER = 250
#: Bytes of output that may be under way until the host gives more room.
WINDOW_BYTES = 65536
#: Bytes of standard input that may be under way on a serial line.
SERIAL_WINDOW_BYTES = 2048
#: Bytes that the host has taken before it says so.
_GIVE_BYTES = 16384
_PART = MAX_PAYLOAD - 1


class Builtin(StrEnum):
    """Programs of init's own, which need nothing of the image."""

    ARCHIVE = "archive"  # write a tar of `path` to standard output
    EXTRACT = "extract"  # read a tar from standard input into `path`
    STATS = "stats"  # print records of memory, processes and uptime
    TOP = "top"  # print a record for each process


@dataclass(frozen=True)
class Order:
    """A further process to be started. None means as the container's own; `env` is put over the container's.

    `detach`: its streams are /dev/null, and init tells its end as soon as it is executed. `follow`: an archive holds
    what a link leads to that `path` names."""

    argv: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    cwd: str | None = None
    stdin: bool = False
    terminal: Terminal | None = None
    privileged: bool = False
    detach: bool = False
    builtin: Builtin | None = None
    path: str | None = None
    follow: bool = False

    def encode(self) -> bytes:
        """Return the order as init reads it. Raises UserInputError for a NUL in a value."""
        optional = (("user", self.user), ("cwd", self.cwd), ("builtin", self.builtin), ("path", self.path))
        flags = (
            ("stdin", self.stdin), ("privileged", self.privileged), ("detach", self.detach), ("follow", self.follow),
        )  # fmt: skip
        pairs = [("arg", arg) for arg in self.argv]
        pairs += [("env", f"{name}={value}") for name, value in self.env]
        pairs += [(key, str(value)) for key, value in optional if value is not None]
        pairs += [(key, "1") for key, value in flags if value]
        if self.terminal is not None:
            pairs += [("terminal", "1"), ("rows", str(self.terminal.rows)), ("cols", str(self.terminal.columns))]
        return records(pairs) + b"\0"


class Send(Protocol):
    """Sends one frame to the guest."""

    def __call__(self, kind: ToGuest, payload: bytes, /) -> None: ...


@dataclass
class FurtherProcess:
    """One further process, from its order to its end.

    `stdout` and `stderr` keep all. With `held`, the host makes no room for more output: `release` makes it."""

    number: int
    send: Send
    held: bool = False
    window: int = SERIAL_WINDOW_BYTES
    part: int = _PART
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    exit_code: int | None = None
    by_signal: int = 0
    why: str = ""
    _stdin: bytearray = field(default_factory=bytearray)
    _stdin_end: bool = False
    _taken: int = 0

    @property
    def ended(self) -> bool:
        """Return whether init has told the end of it."""
        return self.exit_code is not None

    def send_stdin(self, data: bytes) -> None:
        """Queue standard input; it goes out as fast as the process takes it."""
        if not self.ended:
            self._stdin += data
            self._fill()

    def end_stdin(self) -> None:
        """End standard input after what is queued."""
        self._stdin_end = True
        self._fill()

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""
        self._say(ToGuest.FURTHER_SIGNAL, b"%d" % number)

    def resize(self, rows: int, columns: int) -> None:
        """Tell that its terminal has another size."""
        self._say(ToGuest.FURTHER_WINDOW, b"%d %d" % (rows, columns))

    def release(self) -> None:
        """Make room for more output from now on."""
        self.held = False
        self._make_room(0)

    def hear(self, kind: str, payload: bytes) -> None:
        """Take a frame about this process, without its number."""
        if kind == FromGuest.FURTHER_STDOUT:
            self._hear_output(payload, self.stdout)
        elif kind == FromGuest.FURTHER_STDERR:
            self._hear_output(payload, self.stderr)
        elif kind == FromGuest.FURTHER_EXIT:
            self.exit_code, self.by_signal, self.why = parse_exit(payload)
            self._stdin.clear()
        elif kind == FromGuest.FURTHER_CREDIT and is_number(payload) and len(payload) < 7:
            self.window = min(WINDOW_BYTES, self.window + int(payload))
            self._fill()

    def _hear_output(self, data: bytes, kept: bytearray) -> None:
        kept += data
        self._make_room(len(data))

    def _make_room(self, taken: int) -> None:
        self._taken += taken
        if self._taken >= (1 if not taken else _GIVE_BYTES) and not self.held:
            self._say(ToGuest.FURTHER_TAKEN, b"%d" % self._taken)
            self._taken = 0

    def _fill(self) -> None:
        while self._stdin and self.window > 0:
            part = bytes(self._stdin[: min(self.part, self.window)])
            del self._stdin[: len(part)]
            self.window -= len(part)
            self._say(ToGuest.FURTHER_STDIN, part)
        if self._stdin_end and not self._stdin:
            self._stdin_end = False
            self._say(ToGuest.FURTHER_STDIN_END, b"")

    def _say(self, kind: ToGuest, payload: bytes) -> None:
        if not self.ended:
            self.send(kind, bytes((self.number,)) + payload)


class FurtherProcesses:
    """All further processes of one guest. `on_port`: the line is a virtio port."""

    def __init__(self, send: Send, *, on_port: bool = False) -> None:
        self._send = send
        self._window, self._part = (WINDOW_BYTES, MAX_BLOCK - 1) if on_port else (SERIAL_WINDOW_BYTES, _PART)
        self._running: dict[int, FurtherProcess] = {}

    def start(self, order: Order, *, held: bool = False) -> FurtherProcess:
        """Send an order; returns the process, which tells its end when it could not be started. Raises
        UserInputError for a NUL in the order, ValueError when there is no number left."""
        text = order.encode()
        number = next((one for one in range(1, _MOST_NUMBER + 1) if one not in self._running), None)
        if number is None:
            raise ValueError(f"{_MOST_NUMBER} further processes run")
        process = FurtherProcess(number=number, send=self._send, held=held, window=self._window, part=self._part)
        self._running[number] = process
        for at in range(0, len(text), _PART):
            self._send(ToGuest.FURTHER, bytes((number,)) + text[at : at + _PART])
        return process

    def hear(self, kind: str, payload: bytes) -> None:
        """Take a frame about one of them; those about none are left alone."""
        process = self._running.get(payload[0]) if payload else None
        if process is None:
            return
        process.hear(kind, payload[1:])
        if process.ended:
            del self._running[process.number]
