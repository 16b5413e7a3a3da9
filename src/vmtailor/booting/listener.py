# SPDX-License-Identifier: Apache-2.0
"""A listener of a machine: console, second serial port and monitor in one loop, all with host times."""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from vmtailor.base.errors import GuestError
from vmtailor.drivers.guest.console import Console
from vmtailor.drivers.guest.serial_line import SerialLine
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import NOTHING_MORE, Wants
from vmtailor.drivers.monitors.running_machine import RunningMachine
from vmtailor.model.boots.ending import End, Ending
from vmtailor.model.machine import Machine

#: A guest's second serial port is cut off here.
MAX_PROBE = 256 << 20
#: Most bytes of the console, at its end, that go with the end of a machine.
_TAIL_BYTES = 65536


@dataclass
class Listener:
    """A listener of a running machine. Times are seconds since its monitor was started."""

    machine: RunningMachine
    console: Console = field(default_factory=Console)
    probe: bytearray = field(default_factory=bytearray)
    events: list[str] = field(default_factory=list)
    forwards: dict[int, int] = field(default_factory=dict)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def __post_init__(self) -> None:
        for source in (self.machine.serial, self.machine.probe, self.machine.control):
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
        """Read everything that comes within `wait_s`, at least once, and return new text of the console."""
        text = ""
        for key, _ in self._selector.select(wait_s):
            if isinstance(key.fileobj, SerialLine):
                text += self._read(key.fileobj)
            elif self.machine.control is not None and not self.machine.control.feed():
                self._selector.unregister(key.fileobj)
        if self.machine.control is not None:
            self.events += self.machine.control.heard()
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

    def end(self) -> End:
        """Return the end of the machine as it stands now; a caller that stops listening may leave it running."""
        machine, code = self.machine, self.machine.returncode
        return End(
            ending=Ending.DEADLINE if code is None else Ending.DIED if code else Ending.EXITED,
            command=machine.command,
            console_tail=bytes(self.console.raw[-_TAIL_BYTES:]).decode("utf-8", "replace"),
            stderr=machine.stderr(),
            seconds=self.now,
            returncode=code,
            monitor=machine.title,
        )

    def quit(self, wait_s: float) -> None:
        """End the machine, so that a counter writes its counts, and read the guest's last output."""
        self.machine.stop(wait_s)
        self.drain()

    def drain(self) -> None:
        """Read what is left after the machine's end."""
        before = -1
        while before != (before := len(self.console.raw) + len(self.probe)):
            self.pump(0.0)


@contextlib.contextmanager
def listening(machine: Machine, wants: Wants = NOTHING_MORE) -> Iterator[Listener]:
    """Start a machine and listen to it; the machine is ended when the block is left. Raises HostError or GuestError,
    with the monitor's words, when it does not start."""
    with (
        monitors.of(machine).start(machine, replace(wants, control=True)) as running,
        contextlib.closing(Listener(running)) as listener,
    ):
        if machine.ports:
            try:
                listener.forwards.update(running.forwards())
            except GuestError as error:
                raise GuestError(error.message, details=f"{running.stderr()}\n{running.command}") from error
        yield listener
