# SPDX-License-Identifier: Apache-2.0
"""A QEMU under way: a context manager that owns the process, its lines and its monitor; how it ended."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

from vmtailor.base.errors import HostError, NotStarted, UserInputError, VmtailorError
from vmtailor.base.process import TERM_GRACE_S, kill_group, pasteable, spawn
from vmtailor.drivers.guest.guest_text import kernel_text
from vmtailor.drivers.guest.serial_line import SerialLine
from vmtailor.drivers.qemu import forwards, net_guard
from vmtailor.drivers.qemu.handover import Wanted, handed
from vmtailor.drivers.qemu.plugin import Plugin
from vmtailor.drivers.qemu.qemu_command import Ends, command
from vmtailor.drivers.qemu.qemu_program import installed
from vmtailor.drivers.qemu.qmp import Qmp
from vmtailor.drivers.qemu.registers import all_halted
from vmtailor.drivers.rootfs import boot_disk
from vmtailor.model.architecture import Emulator, named, presumed
from vmtailor.model.boots.ending import End, Ending
from vmtailor.model.machine import Accelerator, DiskFormat, DiskMode, Machine

_PANIC = re.compile(r"(?:^|\n)(?:<\d>)?(?:\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? )?Kernel panic - not syncing")
#: Bytes of what QEMU said that are told.
_MOST_SAID = 8000
_PORT_REFUSED = re.compile(r"Could not set up host forwarding rule '([^']*)'")


class RunningMachine:
    """A machine under way. `serial` is its serial line; `qmp`, and its second serial port, are there when they were
    asked for: `probe` is the output of one, `attendant` one for a conversation."""

    #: Host seconds that QEMU has to greet on its monitor.
    GREETING_S = 20.0

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        serial: SerialLine,
        qmp: Qmp | None,
        probe: SerialLine | None,
        attendant: SerialLine | None,
        command: str,
        errors: IO[bytes],
        emulator: Emulator,
    ) -> None:
        self.serial = serial
        self.qmp = qmp
        self.probe = probe
        self.attendant = attendant
        self.command = command
        self.started_s = time.monotonic()
        self._emulator = emulator
        self._greeted = False
        self._process = process
        self._errors = errors

    @property
    def elapsed_s(self) -> float:
        """Host seconds since the start."""
        return time.monotonic() - self.started_s

    def left(self, deadline_s: float) -> float:
        """Host seconds left of a deadline that counts from the start; 0 when it is over."""
        return max(0.0, deadline_s - self.elapsed_s)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def greet(self) -> None:
        """Wait for the monitor's greeting, once. Raises HostError when QEMU ends first, or says none."""
        if self.qmp is not None and not self._greeted:
            self._greeted = True
            self.qmp.accept(self.GREETING_S, lambda: self.running, self.stderr)

    def halted(self) -> bool:
        """Do all CPUs wait for interrupts that none of them takes? Then nothing in the guest runs any more, for ever.
        Needs the monitor; False where it cannot be told."""
        said = ""
        if self.qmp is not None:
            with contextlib.suppress(VmtailorError):
                self.greet()
                said = self.qmp.ask_person("info registers -a")
        return all_halted(said, self._emulator)

    @property
    def returncode(self) -> int | None:
        """QEMU's status, once it has ended."""
        return self._process.poll()

    @property
    def cpu_s(self) -> float | None:
        """Processor seconds that QEMU has used on the host, user and system; None once it has ended."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def held_up_s(self) -> float:
        """Seconds that QEMU's threads, one as the other, were ready to run and the host ran others: summed, so that it
        only grows while they live. 0 where the host does not tell, and once QEMU has ended."""
        found = 0.0
        for thread in Path(f"/proc/{self._process.pid}/task").glob("*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                found += int((thread / "schedstat").read_text().split()[1]) / 1e9
        return found

    @property
    def wants_to_run(self) -> bool:
        """Whether a thread of QEMU runs, waits for a processor of the host, or for its disk, at this moment."""
        for thread in Path(f"/proc/{self._process.pid}/task").glob("*"):
            with contextlib.suppress(OSError, IndexError):
                if (thread / "stat").read_text().rpartition(")")[2].split()[0] in ("R", "D"):
                    return True
        return False

    def wait(self, timeout_s: float, console: str | None = None) -> End:
        """Wait for QEMU's end, at most so long. Somebody must have read the serial line, or its pipe may fill.

        `console`: what of the serial line is the kernel's, when the caller can tell; the guest's programs could fake a
        panic elsewhere. Raises HostError when QEMU could not even start."""
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
        """End QEMU now. The plugin writes its file, for which it has so many seconds; what the guest said last can
        still be read."""
        kill_group(self._process, grace_s)

    def stderr(self) -> str:
        """The end of what QEMU itself has said so far. Where it writes is shared with it, and stays as it is."""
        written = os.fstat(self._errors.fileno()).st_size
        said = os.pread(self._errors.fileno(), _MOST_SAID, max(0, written - _MOST_SAID))
        return said.decode("utf-8", "replace").strip()

    def _end(self, console: str | None) -> End:
        code = self._process.poll()
        text = kernel_text(bytes(self.serial.tail)) if console is None else console
        if code is None:
            ending = Ending.DEADLINE
        elif code != 0:
            ending = Ending.DIED
        else:
            ending = Ending.PANIC if _PANIC.search(text) else Ending.EXITED
        end = End(ending, self.command, text, self.stderr(), self.elapsed_s, code)
        # A QEMU that refuses says so with its status. One that a signal ended did start: 7.2 aborts in some guests that
        # run out of memory before they have said a word ("cpu_io_recompile").
        if ending is Ending.DIED and not self.serial.heard and code is not None and code > 0:
            raise _did_not_start(end)
        return end


def _did_not_start(end: End) -> HostError:
    refused = _PORT_REFUSED.search(end.stderr)
    if refused:
        return forwards.refusal(refused[1])
    return NotStarted(
        "QEMU did not start", hint="vmtailor doctor checks the host", details=f"{end.stderr}\n{end.command}"
    )


class Builder(Protocol):
    """Gives the argument list of one machine."""

    def __call__(self, ends: Ends = ..., *, program: str, sandbox: bool) -> list[str]: ...


@contextlib.contextmanager
def launch(
    build: Builder,
    wanted: Wanted,
    *,
    architecture: str | None = None,
    qmp: bool = False,
    probe: bool = False,
    attendant: bool = False,
    greeted: bool = True,
) -> Iterator[RunningMachine]:
    """Start QEMU with the argument list that `build` gives, shut in as far as the host allows. When the block is left,
    or we are gone, QEMU and all it started are gone. `wanted`: all that QEMU gets of the host. `greeted`: wait for the
    monitor; else `greet` does when it is needed. Raises UserInputError when a file is not there, HostError when QEMU
    does not start."""
    row = presumed() if architecture is None else named(architecture)
    qemu = installed(row.name)
    for path in wanted.files:
        if not Path(path).is_file():
            raise UserInputError(f"{path} does not exist", hint="the machine cannot be booted without it")
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile())
        monitor = stack.enter_context(Qmp()) if qmp else None
        serial = stack.enter_context(SerialLine())
        second = stack.enter_context(SerialLine()) if probe or attendant else None
        given = stack.enter_context(handed(wanted, qemu))
        ends = Ends(
            monitor.theirs if monitor else None,
            second.guest_out if second and probe else None,
            given.names,
            tuple(given.sets),
            second.guest_out if second and attendant else None,
        )
        argv = build(ends, program=qemu.program, sandbox=qemu.sandbox)
        words = [f"{name}={value}" for name, value in wanted.variables.items()]
        shown = pasteable([*(("env", *words) if words else ()), *build(program=qemu.program, sandbox=qemu.sandbox)])
        process = stack.enter_context(
            spawn(
                given.argv(argv),
                stdin=serial.guest_in,
                stdout=serial.guest_out,
                stderr=errors,
                env=given.environment,
                pass_fds=[one for one in (ends.qmp, ends.probe, ends.console, *given.descriptors) if one is not None],
            )
        )
        serial.started()
        if second is not None:
            second.started()
        console, talk = (second, serial) if second is not None and attendant else (serial, None)
        heard = None if attendant else second
        running = RunningMachine(process, console, monitor, heard, talk, shown, errors, row.emulator)
        if monitor is not None:
            monitor.started()
            if greeted:
                running.greet()
                given.settled()
        yield running


def start(
    machine: Machine,
    *,
    plugin: Plugin | None = None,
    qmp: bool = False,
    probe: bool = False,
    attendant: bool = False,
    greeted: bool = True,
) -> contextlib.AbstractContextManager[RunningMachine]:
    """Start a machine; `launch` says what else holds. `probe`: with a second serial port for what the guest says;
    `attendant`: with one for a conversation, in its place. Raises UserInputError for a disk image that stands on
    another file of the host."""
    for disk in machine.disks:
        if disk.format is DiskFormat.QCOW2:
            boot_disk.require_alone(disk.path)
    build = functools.partial(command, machine, plugin=plugin)
    wanted = Wanted(
        named=machine.files,
        disks={disk.path: disk.mode is DiskMode.WRITTEN for disk in machine.disks},
        plugin=plugin,
        overlays=any(disk.mode is DiskMode.OVERLAID for disk in machine.disks),
        kvm=machine.accelerator is Accelerator.KVM,
        outbound=machine.outbound,
        low_ports=any(0 < port.host_port < 1024 for port in machine.ports),
        variables=net_guard.variables(machine, installed(machine.architecture).program),
    )
    return launch(
        build, wanted, architecture=machine.architecture, qmp=qmp, probe=probe, attendant=attendant, greeted=greeted
    )
