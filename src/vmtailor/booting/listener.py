# SPDX-License-Identifier: Apache-2.0
"""Listening to a machine that says what it likes: console, second serial port and monitor in one loop, all with host
times."""

from __future__ import annotations

import contextlib
import re
import selectors
from collections.abc import Iterator
from dataclasses import dataclass, field

from vmtailor.base.errors import GuestError
from vmtailor.drivers.guest.console import Console
from vmtailor.drivers.guest.serial_line import SerialLine
from vmtailor.drivers.qemu import qemu
from vmtailor.drivers.qemu.plugin import Plugin
from vmtailor.drivers.qemu.qemu import RunningMachine
from vmtailor.drivers.qemu.qmp import Qmp
from vmtailor.model.machine import Machine

#: A guest's second serial port is cut off here.
MAX_PROBE = 256 << 20
_USERNET = re.compile(r"TCP\[([A-Z_0-9]+)\]\s+-?\d+\s+(\S+)\s+(\d+)\s+(\S+)\s+(\d+)")


@dataclass
class Listener:
    """Listens to a machine under way. Times are seconds since QEMU was started."""

    machine: RunningMachine
    qmp: Qmp
    console: Console = field(default_factory=Console)
    probe: bytearray = field(default_factory=bytearray)
    events: list[str] = field(default_factory=list)
    forwards: dict[int, int] = field(default_factory=dict)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def __post_init__(self) -> None:
        for source in (self.machine.serial, self.machine.probe, self.qmp):
            if source is not None:
                self._selector.register(source, selectors.EVENT_READ)

    def close(self) -> None:
        self._selector.close()

    @property
    def now(self) -> float:
        return self.machine.elapsed_s

    @property
    def ended(self) -> bool:
        return not self.machine.running

    def pump(self, wait_s: float) -> str:
        """Read whatever comes within `wait_s`, at least once; returns new text of the console."""
        text = ""
        for key, _ in self._selector.select(wait_s):
            if isinstance(key.fileobj, SerialLine):
                text += self._read(key.fileobj)
            elif not self.qmp.feed():
                self._selector.unregister(key.fileobj)
        self.events += self.qmp.heard()
        return text

    def _read(self, line: SerialLine) -> str:
        data = line.recv(65536)
        if not data:
            self._selector.unregister(line)
        elif line is self.machine.serial:
            return self.console.take(data, self.now)
        elif len(self.probe) < MAX_PROBE:
            self.probe += data
        return ""

    def established(self, local_port: int) -> bool:
        """Whether the guest itself took the connection that came from this local port."""
        return any(state == "ESTABLISHED" and int(port) == local_port for state, _, port, _, _ in self._usernet())

    def executed(self) -> int | None:
        """Instructions that the guest has executed, by QEMU's own count, which it keeps on the instruction clock alone:
        on others the number says nothing. None where it does not tell."""
        try:
            return int(self.qmp.ask("query-replay")["icount"]) or None
        except (GuestError, OSError):  # it may be ending just now
            return None

    def learn_forwards(self) -> None:
        """Which host ports lead to which guest ports."""
        for state, _, host_port, _, guest_port in self._usernet():
            if state == "HOST_FORWARD":
                self.forwards[int(guest_port)] = int(host_port)

    def _usernet(self) -> list[tuple[str, str, str, str, str]]:
        return _USERNET.findall(self.qmp.ask_person("info usernet"))

    def quit(self, wait_s: float) -> None:
        """End QEMU, so that a plugin writes what it has, and read what the guest said last."""
        self.machine.stop(wait_s)
        self.drain()

    def drain(self) -> None:
        """Read what is left after QEMU's end."""
        before = -1
        while before != (before := len(self.console.raw) + len(self.probe)):
            self.pump(0.0)


@contextlib.contextmanager
def listening(
    machine: Machine, *, plugin: Plugin | None = None, probe: bool = False, attendant: bool = False
) -> Iterator[Listener]:
    """Start a machine and listen to it; it is gone when the block is left. `probe`: it has a second serial port;
    `attendant`: one for a conversation, which is not listened to here. Raises
    HostError or GuestError, with QEMU's words, when it does not start."""
    with qemu.start(machine, plugin=plugin, qmp=True, probe=probe, attendant=attendant) as running:
        assert running.qmp is not None
        with contextlib.closing(Listener(running, running.qmp)) as listener:
            if machine.ports:
                try:
                    listener.learn_forwards()
                except GuestError as error:
                    raise GuestError(error.message, details=f"{running.stderr()}\n{running.command}") from error
            yield listener
