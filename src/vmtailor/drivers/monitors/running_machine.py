# SPDX-License-Identifier: Apache-2.0
"""A machine under way: the process of its monitor, its serial lines, its evidence; how it ended."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from vmtailor.base.errors import HostError, NotStarted
from vmtailor.base.natives import locate
from vmtailor.base.process import TERM_GRACE_S, kill_group, run
from vmtailor.drivers.guest.guest_text import kernel_text
from vmtailor.drivers.guest.serial_line import SerialLine
from vmtailor.model.boots.ending import End, Ending

_PANIC = re.compile(r"(?:^|\n)(?:<\d>)?(?:\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? )?Kernel panic - not syncing")
#: Bytes of what a monitor said that are told.
_MOST_SAID = 8000
#: Seconds that a client of loads may take beyond its own limit.
_CLIENT_S = 60.0


class Control(Protocol):
    """The line on which a monitor speaks while its machine runs."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when there may be something for `feed`."""

    def feed(self) -> bool:
        """Read what is there, for `heard`. Return False once there is nothing more to wait for."""

    def heard(self) -> list[str]:
        """Return the names of the events that were read since the last call. Does not wait."""


@dataclass(frozen=True)
class Lines:
    """The lines of a machine. `console`: its serial line. `probe`: the output of a second serial port; `attendant`: a
    second one for a conversation; `port`: a virtio port for one. Each is there when it was asked for."""

    console: SerialLine
    probe: SerialLine | None = None
    attendant: SerialLine | None = None
    port: SerialLine | None = None


@dataclass(frozen=True)
class DiskCounts:
    """Operations and bytes of one disk since the machine's start."""

    reads: int
    read_bytes: int
    writes: int
    written_bytes: int


class RunningMachine:
    """A machine under way. `serial` is its serial line; `control`, and its second serial port, are there when they were
    asked for: `probe` is the output of one, `attendant` one for a conversation; `port` is its virtio line.

    A monitor says more of its machines by overriding: what it does not tell is not known."""

    title = "the monitor"

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        lines: Lines,
        command: str,
        errors: IO[bytes],
        control: Control | None = None,
    ) -> None:
        self.serial = lines.console
        self.probe = lines.probe
        self.attendant = lines.attendant
        self.port = lines.port
        self.control = control
        self.command = command
        self.started_s = time.monotonic()
        self._process = process
        self._errors = errors

    # --- what a monitor may tell

    def executed(self) -> int | None:
        """Return how many instructions the guest has executed on the instruction clock; None where it is not told."""
        return None

    def forwards(self) -> dict[int, int]:
        """Return which host ports lead to which guest ports, by the guest's. Raises GuestError when it is not told."""
        return {}

    def established(self, local_port: int) -> bool:
        """Return whether the guest itself took the connection that came from this local port of the host."""
        return True

    def disk_counts(self) -> dict[str, DiskCounts]:
        """Return what the monitor has read from and written to each disk of the machine, by the disk's name there;
        empty where it is not told."""
        return {}

    def load(self, place: int, words: Sequence[str], most_s: float) -> bytes:
        """Drive a load from the machine's host by the exercise's client, and return what that says. `place`: of its
        words among those that the machine was started with. Raises HostError for a client that does not end."""
        return run([str(locate().load_client), *words], timeout_s=most_s + _CLIENT_S, ok=(0, 1)).stdout

    def not_started(self, end: End) -> HostError:
        """Return the error of a monitor that ended before it had started its machine."""
        return not_started(self.title, end)

    # --- the process

    @property
    def elapsed_s(self) -> float:
        """Return the host seconds since the start."""
        return time.monotonic() - self.started_s

    def left(self, deadline_s: float) -> float:
        """Return the host seconds left of a deadline that counts from the start; 0 when it is over."""
        return max(0.0, deadline_s - self.elapsed_s)

    @property
    def running(self) -> bool:
        """Return whether the monitor has not ended."""
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """Return the monitor's status, once it has ended."""
        return self._process.poll()

    @property
    def cpu_s(self) -> float | None:
        """Return the processor seconds, user and system, that the monitor has used; None once it has ended."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident_bytes(self) -> int | None:
        """Return the memory of this host that the monitor's process holds; None once it has ended."""
        try:
            return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        except (OSError, ValueError, IndexError):
            return None

    @property
    def lasted_ns(self) -> int | None:
        """Return how long the monitor lasted on a clock of its own; None where it has none."""
        return None

    @property
    def held_up_s(self) -> float:
        """Return the seconds that the monitor's threads, one as the other, were ready to run while the host ran others.

        They are summed, so that they only grow while the threads live. 0 where the host does not tell, and once the
        monitor has ended."""
        found = 0.0
        for thread in Path(f"/proc/{self._process.pid}/task").glob("*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                found += int((thread / "schedstat").read_text().split()[1]) / 1e9
        return found

    @property
    def wants_to_run(self) -> bool:
        """Return whether a thread of the monitor now runs, or waits for a processor or a disk of the host."""
        for thread in Path(f"/proc/{self._process.pid}/task").glob("*"):
            with contextlib.suppress(OSError, IndexError):
                if (thread / "stat").read_text().rpartition(")")[2].split()[0] in ("R", "D"):
                    return True
        return False

    def wait(self, timeout_s: float, console: str | None = None) -> End:
        """Wait for the monitor's end, at most so long. Somebody must have read the serial line, or its pipe may fill.

        `console`: what of the serial line is the kernel's, when the caller can tell; the guest's programs could fake a
        panic elsewhere. Raises HostError when the monitor could not even start."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._end(console)

    def run(self, deadline_s: float, on_output: Callable[[bytes], object] = lambda data: None) -> End:
        """Read the serial line until the machine ends or the deadline (from its start) is over."""
        while (left := self.left(deadline_s)) > 0 and self.serial.wait_readable(left):
            data = self.serial.recv(65536)
            if not data:
                return self.wait(max(1.0, self.left(deadline_s)))
            on_output(data)
        return self._end(None)

    def stop(self, grace_s: float = TERM_GRACE_S) -> None:
        """End the machine now. A counter has so many seconds to write its file; what the guest said last can still be
        read."""
        kill_group(self._process, grace_s)

    def stderr(self) -> str:
        """Return the end of what the monitor itself has said so far. The place where it writes next stays as it is."""
        written = os.fstat(self._errors.fileno()).st_size
        said = os.pread(self._errors.fileno(), _MOST_SAID, max(0, written - _MOST_SAID))
        return said.decode("utf-8", "replace").strip()

    def _end(self, console: str | None) -> End:
        code = self._process.poll()
        text = kernel_text(bytes(self.serial.tail)) if console is None else console
        end = End(
            ending=ending_of(code, text),
            command=self.command,
            console_tail=text,
            stderr=self.stderr(),
            seconds=self.elapsed_s,
            returncode=code,
            monitor=self.title,
        )
        # A monitor that refuses says so with its status. One that a signal ended did start: QEMU 7.2
        # aborts in some guests that run out of memory before they have said a word ("cpu_io_recompile").
        if refuses(end, self.serial.heard or (self.port is not None and self.port.heard)):
            raise self.not_started(end)
        return end


def ending_of(code: int | None, console: str) -> Ending:
    """Return how a machine ended whose monitor has this status, None while it runs, and whose kernel said this."""
    if code is None:
        return Ending.DEADLINE
    if code != 0:
        return Ending.DIED
    return Ending.PANIC if _PANIC.search(console) else Ending.EXITED


def refuses(end: End, heard: bool) -> bool:
    """Return whether a monitor ended without starting its machine. `heard`: something came on the serial line."""
    return end.ending is Ending.DIED and not heard and end.returncode is not None and end.returncode > 0


def not_started(title: str, end: End) -> HostError:
    """Return the error of a monitor that ended before it had started its machine."""
    hint = "vmtailor doctor checks the host"
    return NotStarted(f"{title} did not start", hint=hint, details=f"{end.stderr}\n{end.command}")
