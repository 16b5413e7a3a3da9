# SPDX-License-Identifier: Apache-2.0
"""`run` of a whole system: its console on the caller's terminal until the machine ends."""

from __future__ import annotations

import contextlib
import os
import select
from dataclasses import dataclass, field

from vmtailor.analysis.timeline import bootmarks
from vmtailor.drivers.guest.serial_line import SerialLine
from vmtailor.drivers.host import tty
from vmtailor.drivers.host.caught_signals import STOPPING, CaughtSignals
from vmtailor.drivers.host.outlet import Outlet
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.running_machine import RunningMachine
from vmtailor.model.boots.ending import End
from vmtailor.model.machine import Machine

#: Ends the machine, as in telnet: no system has a use for it.
LEAVE = b"\x1d"
LEAVE_NAME = "Ctrl-]"
#: Bytes of standard input that may wait for the guest; seconds for what is still to be written at the end.
_AHEAD_BYTES = 65536
_LAST_S = 5.0
_LOOK_S = 0.5
#: Bytes at the end of the console that are searched for the reason why a machine was lost.
_TAIL_BYTES = 16384


@dataclass
class _Attached:
    """A machine's console and the caller. `left`: the caller asked for the end."""

    running: RunningMachine
    signals: CaughtSignals
    reading: bool
    left: bool = False
    tail: bytearray = field(default_factory=bytearray)
    _ahead: bytearray = field(default_factory=bytearray)

    def run(self, out: Outlet, raw: tty.RawTerminal) -> None:
        """Relay until the machine has ended, or the caller asks for its end."""
        with raw.held():
            while not self.left:
                ready, writable, _ = select.select(self._sources(out), self._sinks(), [], _LOOK_S)
                if self.running.serial in ready and not self._hear(out):
                    return
                if 0 in ready:
                    self._read()
                if writable:
                    self._send()
                self._take_signals(raw)

    def _sources(self, out: Outlet) -> list[CaughtSignals | SerialLine | int]:
        found: list[CaughtSignals | SerialLine | int] = [self.signals]
        if not out.full:  # a reader that is slow slows the guest's console down, and loses nothing
            found.append(self.running.serial)
        if self.reading and len(self._ahead) < _AHEAD_BYTES:
            found.append(0)
        return found

    def _sinks(self) -> list[int]:
        return [self.running.serial.write_fileno()] if self._ahead else []

    def _hear(self, out: Outlet) -> bool:
        try:
            data = self.running.serial.recv(65536)
        except BlockingIOError:
            return True
        self.tail += data
        del self.tail[:-_TAIL_BYTES]
        out.put(data)
        return bool(data)

    def _read(self) -> None:
        try:
            data = os.read(0, 4096)
        except OSError:
            data = b""
        self.reading = bool(data)
        before, leave, _ = data.partition(LEAVE)
        self.left = self.left or bool(leave)
        self._ahead += before

    def _send(self) -> None:
        try:
            del self._ahead[: self.running.serial.send(bytes(self._ahead))]
        except BlockingIOError:
            return
        except OSError:
            self._ahead.clear()

    def _take_signals(self, raw: tty.RawTerminal) -> None:
        for number in self.signals.take():
            if number in STOPPING:
                self.left = True
            else:
                raw.again()  # a shell that had stopped us had the terminal


@dataclass(frozen=True)
class Finished:
    """The end of an attached machine. `left`: the caller ended it. `lost`: the reason why the guest was lost, or ""."""

    end: End
    left: bool
    lost: str


def attached(machine: Machine, signals: CaughtSignals, *, interactive: bool) -> Finished:
    """Start a machine with its console on standard output, and standard input on its console if `interactive`. No
    process is left running. Raises HostError when the machine does not start."""
    out = Outlet(1, signals.wake)
    with monitors.of(machine).start(machine) as running:
        talk = _Attached(running, signals, interactive)
        talk.run(out, tty.RawTerminal(interactive))
        if talk.left:
            running.stop()
        end = running.wait(_LAST_S)
        with contextlib.suppress(BlockingIOError, OSError):
            while data := running.serial.recv(65536):
                out.put(data)
    out.wait(_LAST_S)
    out.close()
    lines = talk.tail.decode("utf-8", "replace").splitlines()
    lost = next((why for line in lines if (why := bootmarks.dead_end(line))), "")
    return Finished(end, talk.left, "" if talk.left else lost)
