# SPDX-License-Identifier: Apache-2.0
"""`attach` and `exec`: a relay between the caller's terminal and signals and a machine's control socket.

Nothing of what a guest prints is changed or understood here: it goes to the caller's standard output and error."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass

from vmtailor.base import output
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.text import plain
from vmtailor.drivers.host import control_socket, tty
from vmtailor.drivers.host.caught_signals import STOPPING, CaughtSignals, caught
from vmtailor.drivers.host.control_socket import (
    AHEAD_BYTES,
    BrokenLine,
    ControlSocket,
    FromSupervisor,
    ProgramExit,
    RequestRefused,
    ToSupervisor,
    exit_of,
    failure_of,
    frame,
)
from vmtailor.drivers.host.machine_folders import MachineFolder
from vmtailor.drivers.host.outlet import Outlet

#: Keys that leave a terminal, unless others are named.
DETACH_KEYS = "ctrl-p,ctrl-q"
_PART = 64 << 10
#: Seconds that a reader of the output has once the program has ended and a second signal came.
_READER_S = 1.0
_LOOK_MS = 500
#: Errors of a write whose other end is gone.
_GONE = (errno.EPIPE, errno.EIO)


def parse_keys(text: str) -> bytes:
    """Return the bytes of keys as `--detach-keys` takes them: `a`, `ctrl-p,ctrl-q`; "" for none. Raises
    UserInputError."""
    found = bytearray()
    for key in text.split(",") if text else ():
        control = key.removeprefix("ctrl-")
        if len(key) == 1 and key.isascii():
            found += key.encode()
        elif control != key and len(control) == 1 and control.lower() in "abcdefghijklmnopqrstuvwxyz@[\\]^_":
            found.append(ord(control.upper()) & 0x1F)
        else:
            raise UserInputError(f"--detach-keys: no key is called '{key[:40]}'", hint="such as ctrl-p,ctrl-q")
    return bytes(found)


class DetachKeys:
    """Finds the keys that leave a terminal in what is typed."""

    def __init__(self, keys: bytes) -> None:
        self._keys = keys
        self._seen = 0

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """Return the bytes to pass on, and whether the keys were typed. Keys that begin like them wait for more."""
        if not self._keys:
            return data, False
        out = bytearray()
        for byte in data:
            if byte == self._keys[self._seen]:
                self._seen += 1
                if self._seen == len(self._keys):
                    self._seen = 0
                    return bytes(out), True
                continue
            out += self._keys[: self._seen]
            self._seen = 1 if byte == self._keys[0] else 0
            if not self._seen:
                out.append(byte)
            elif len(self._keys) == 1:
                self._seen = 0
                return bytes(out), True
        return bytes(out), False


@dataclass(frozen=True)
class ControlWishes:
    """The caller's wishes. `stdin`: standard input is passed on; `terminal`: the program has a terminal; `keys`: that
    leave it; `proxy`: signals are passed on, else the first one that asks for an end leaves; `out`, `err`: shown;
    `leaves`: once standard input has ended."""

    stdin: bool = False
    terminal: bool = False
    keys: bytes = b""
    proxy: bool = True
    out: bool = True
    err: bool = True
    leaves: bool = False


class ControlRelay:
    """The relay of one connection."""

    def __init__(self, line: ControlSocket, wishes: ControlWishes, signals: CaughtSignals) -> None:
        self._line = line
        self._wishes = wishes
        self._signals = signals
        self._out, self._err = Outlet(1, signals.wake), Outlet(2, signals.wake)
        self._raw = tty.RawTerminal(wishes.terminal and wishes.stdin)
        self._reading = wishes.stdin
        self._keys = DetachKeys(wishes.keys if wishes.terminal and wishes.stdin else b"")
        self._left = False
        self._asked = False
        self._end: ProgramExit | None = None

    def run(self) -> ProgramExit | None:
        """Relay until the program has ended; returns its end, or None when the caller has left it. Raises
        RequestRefused, BrokenLine."""
        with self._raw.held():
            self._resize()
            while not self._line.ended and not self._left and self._end is None:
                self._turn()
                self._hear_signals()
                self._left = self._left or (self._wishes.leaves and not self._reading and not self._line.unsent)
        self._drain()
        if self._end is None and not self._left:
            raise BrokenLine("ended, and the machine with it")
        return self._end

    @property
    def unwritten(self) -> int:
        """Return the errno of output that could not be written for another reason than a reader that left; 0 else."""
        failed = (self._out.failed, self._err.failed)
        return next((one for one in failed if one and one not in _GONE), 0)

    def _turn(self) -> None:
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        hears = not (self._out.full or self._err.full)
        wanted = (select.POLLIN if hears else 0) | (select.POLLOUT if self._line.unsent else 0)
        if wanted:
            poll.register(self._line, wanted)
        if self._reading and self._line.unsent < AHEAD_BYTES:
            poll.register(0, select.POLLIN)
        for descriptor, events in poll.poll(_LOOK_MS):
            if descriptor == self._line.fileno():
                if events & select.POLLOUT:
                    self._line.flush()
                if hears and events & ~select.POLLOUT:
                    self._hear()
            elif descriptor == 0 and self._end is None:
                self._read()

    def _hear(self) -> None:
        for kind, payload in self._line.receive():
            if kind == FromSupervisor.STDOUT and self._wishes.out:
                self._out.put(payload)
            elif kind == FromSupervisor.STDERR and self._wishes.err:
                self._err.put(payload)
            elif kind == FromSupervisor.EXIT:
                self._end = exit_of(payload)
                return
            elif kind == FromSupervisor.FAILURE:
                raise RequestRefused(failure_of(payload))

    def _read(self) -> None:
        try:
            data = os.read(0, _PART)
        except BlockingIOError:
            return
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            self._reading = False
            self._line.send(frame(ToSupervisor.STDIN_END))
            return
        data, self._left = self._keys.feed(data)
        for at in range(0, len(data), _PART):
            self._line.send(frame(ToSupervisor.STDIN, data[at : at + _PART]))

    def _resize(self) -> None:
        if self._wishes.terminal:
            rows, columns = tty.size()
            self._line.send(frame(ToSupervisor.WINDOW, f"{rows} {columns}".encode()))

    def _hear_signals(self) -> None:
        for number in self._signals.take():
            if number == signal.SIGCONT:
                self._raw.again()
            if number == signal.SIGWINCH:
                self._resize()
            elif number in STOPPING and (not self._wishes.proxy or (number == signal.SIGINT and self._asked)):
                self._left = True
            elif self._wishes.proxy and number != signal.SIGCONT:
                self._asked = self._asked or number in STOPPING
                self._line.send(frame(ToSupervisor.SIGNAL, str(number).encode()))
        if self._out.failed or self._err.failed:  # whoever reads our output has left
            self._left = True

    def _drain(self) -> None:
        """Wait until all output is read; a signal that asks for an end leaves its reader a second."""
        end = None
        while self._out.queued or self._err.queued:
            if any(number in STOPPING for number in self._signals.take()):
                end = time.monotonic() + _READER_S
            if self._left or (end is not None and time.monotonic() > end):
                break
            select.select([self._signals], [], [], 0.1)
        self._out.close()
        self._err.close()


def relayed(line: ControlSocket, wishes: ControlWishes) -> tuple[ProgramExit | None, int]:
    """Relay a connection to its end; returns the program's end, or None where the caller has left, and the errno of
    output that could not be written. Raises RequestRefused, BrokenLine. For the main thread."""
    with caught() as signals:
        relay = ControlRelay(line, wishes, signals)
        end = relay.run()
    return end, relay.unwritten


def session(folder: MachineFolder, verb: str, pairs: Iterable[tuple[str, str]], wishes: ControlWishes) -> int | None:
    """Relay a session with a machine to its end, and return the status of its program; None where the caller has left
    it. Raises NotRunning, RequestRefused, BrokenLine, HostError. For the main thread."""
    with control_socket.asked(folder, verb, pairs) as line:
        end, unwritten = relayed(line, wishes)
    if end is None:
        return None
    if end.why:
        output.note(f"vmtailor: the command could not be started: {plain(end.why)}")
    if unwritten and not end.code:
        raise HostError(f"the output could not be written: {os.strerror(unwritten).lower()}", hint="free some space")
    return end.code
