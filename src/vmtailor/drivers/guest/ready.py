# SPDX-License-Identifier: Apache-2.0
"""Ready signals: how the host learns, without asking the guest for anything but its service, that it is up."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import without_sequences
from vmtailor.model.boots.workload import ReadyBy, ReadySignal

#: Seconds between two tries of a port. The answer is at most this much too late; the record says so.
POLL_S = 0.1
#: Longest text of the console that a pattern is matched against at a time.
MAX_LINE = 4096
LOGIN = re.compile(r"(?:^|[\r\n])[\w.() -]{0,80}login: ?$")
SYSTEMD = re.compile(r"Startup finished in ")
FORMS = "log:REGEX, tcp:PORT, ssh[:PORT], http:PORT[/PATH], login, systemd, event:NAME or nothing:SECONDS"


def parse_signal(text: str) -> ReadySignal:
    """Read `log:REGEX`, `tcp:PORT`, … as the user wrote it. Raises UserInputError that names the forms."""
    kind, _, rest = text.partition(":")
    try:
        by = ReadyBy(kind)
        if by is ReadyBy.EXERCISE:
            raise ValueError("only a bundle has an exercise, and uses it by itself")
        if by is ReadyBy.LOG:
            re.compile(rest)
            if not rest:
                raise ValueError("empty pattern")
            return ReadySignal(by, pattern=rest)
        if by is ReadyBy.EVENT:
            if not re.fullmatch(r"[A-Z][A-Z0-9_]*", rest):
                raise ValueError(f"{rest!r} is no QEMU event")
            return ReadySignal(by, event=rest)
        if by is ReadyBy.HTTP:
            port, slash, path = rest.partition("/")
            return ReadySignal(by, port=_port(port), path=slash + path or "/")
        if by is ReadyBy.NOTHING:
            return ReadySignal(by, seconds=_seconds(rest))
        if by in (ReadyBy.TCP, ReadyBy.SSH):
            return ReadySignal(by, port=_port(rest or ("22" if by is ReadyBy.SSH else "")))
        if rest:
            raise ValueError(f"{kind} takes nothing behind the colon")
        return ReadySignal(by)
    except (ValueError, re.error) as error:
        raise UserInputError(f"ready signal {text!r}: {error}", hint=f"it is one of {FORMS}") from error


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port < 65536:
        raise ValueError(f"{port} is not a port")
    return port


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 86400:
        raise ValueError(f"{text} is not between 0.1 and 86400 seconds")
    return seconds


def words_for(signal: ReadySignal) -> tuple[str, ...]:
    """Return kernel command-line words without which the signal would not be seen: systemd says its line to its journal
    only."""
    if signal.by is ReadyBy.SYSTEMD:
        return ("systemd.log_target=kmsg", "printk.devkmsg=on")
    return ()


class Watcher(Protocol):
    """Sees a boot from outside. Both say what was seen, or "" for not yet."""

    def console(self, text: str) -> str:
        """Take new text of the console, escapes and all, and return a sentence once it means ready."""

    def poll(self) -> str:
        """Ask, every POLL_S, and return a sentence once the answer means ready."""


class ConsoleWatcher:
    """Looks for a pattern in each line of the console, and in the line that has not ended yet (a prompt)."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._line = ""

    def console(self, text: str) -> str:
        *lines, self._line = (self._line + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._line = self._line[-MAX_LINE:]
        for line in (*lines, self._line):
            clean = without_sequences(line[:MAX_LINE])
            if self._pattern.search(clean):
                return clean.strip()[:200]
        return ""

    def poll(self) -> str:
        return ""


class PortWatcher:
    """Asks a published port until it gives the right answer. QEMU's network accepts for a guest that does not listen
    yet, so a connection by itself means nothing: `established` tells whether the guest took the one from this local
    port."""

    def __init__(self, signal: ReadySignal, host_port: int, established: Callable[[int], bool]) -> None:
        self._signal = signal
        self._port = host_port
        self._established = established
        self._socket: socket.socket | None = None
        self._got = b""

    def console(self, text: str) -> str:
        return ""

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._got = b""

    def poll(self) -> str:
        try:
            return self._step()
        except OSError:  # refused or reset: not yet
            self.close()
            return ""

    def _step(self) -> str:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=1.0)
            if self._signal.by is ReadyBy.HTTP:
                request = f"GET {self._signal.path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                self._socket.sendall(request.encode("utf-8", "replace"))
            self._socket.setblocking(False)
            return ""
        if self._signal.by is ReadyBy.TCP and self._established(self._socket.getsockname()[1]):
            self.close()
            return f"port {self._signal.port} accepts"
        try:
            data = self._socket.recv(4096)
        except BlockingIOError:
            return ""
        self._got = (self._got + data)[:65536]
        said = judge(self._signal, self._got)
        if said or not data:
            self.close()
        return said


def judge(signal: ReadySignal, data: bytes) -> str:
    """Return what the first bytes of an answer say: a sentence when they mean ready, "" when not or not yet."""
    if signal.by is ReadyBy.SSH and (found := re.match(rb"(?:[^\n]*\n){0,20}?SSH-[\d.]+-[ -~]{1,200}", data)):
        return found[0].decode("ascii", "replace").splitlines()[-1][:80]
    if signal.by is ReadyBy.HTTP and (found := re.match(rb"HTTP/1\.[01] ([23]\d\d)\b", data)):
        return f"HTTP {found[1].decode()}"
    if signal.by is ReadyBy.TCP and data:
        return f"port {signal.port} sent {len(data)} bytes"
    return ""


@dataclass
class EventWatcher:
    """Waits for a QEMU event; `events` is filled by whoever reads QMP."""

    name: str
    events: list[str]

    def console(self, text: str) -> str:
        return ""

    def poll(self) -> str:
        return f"QEMU event {self.name}" if self.name in self.events else ""


def watcher_for(
    signal: ReadySignal, *, forwards: dict[int, int], established: Callable[[int], bool], events: list[str]
) -> Watcher:
    """Return the watcher of a signal. `forwards`: guest port → host port."""
    if signal.by is ReadyBy.LOG:
        return ConsoleWatcher(re.compile(signal.pattern))
    if signal.by is ReadyBy.LOGIN:
        return ConsoleWatcher(LOGIN)
    if signal.by is ReadyBy.SYSTEMD:
        return ConsoleWatcher(SYSTEMD)
    if signal.by is ReadyBy.EVENT:
        return EventWatcher(signal.event, events)
    return PortWatcher(signal, forwards[signal.port], established)
