# SPDX-License-Identifier: Apache-2.0
"""QEMU: the command as a pure function of a machine, and a context manager that owns the process."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO

from vmtailor.base.errors import GuestError, HostError, UserInputError
from vmtailor.base.process import kill_group, pasteable, require_tool, run, spawn
from vmtailor.drivers.plugin import Plugin
from vmtailor.drivers.qmp import Qmp
from vmtailor.drivers.serial_line import SerialLine
from vmtailor.model.machine import Accelerator, Clock, Machine, MachineKind

#: Names another QEMU than the one on the PATH.
BINARY_VARIABLE = "VMTAILOR_QEMU"
#: The guest's clock at reset on the instruction clock: the same in every run.
RTC_BASE = "2026-01-01T00:00:00"
_CLOCK = ("-icount", "shift=0,sleep=off", "-rtc", f"base={RTC_BASE},clock=vm", "-seed", "1")
#: microvm's transport for the first disk. Guests find transports, and name disks, from the highest number down; there
#: are eight in any case.
_FIRST_BUS = 7
#: The wall clock under TCG. Without it the time stamp counter is the host's, and a guest on a busy host cannot check
#: it against an emulated timer: it hangs. The guest's clocks still follow the host's time, waits included.
_PACED = ("-icount", "shift=auto")
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
_PANIC = re.compile(rb"(?:^|\n)(?:<\d>)?(?:\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? )?Kernel panic - not syncing")
_PORT_TAKEN = re.compile(r"Could not set up host forwarding rule '([^']*)'")


class Ending(StrEnum):
    """How a machine ended."""

    EXITED = "exited"  # by itself: power-off, or a triple fault with -no-reboot
    PANIC = "panic"  # the kernel said so on its console
    DEADLINE = "deadline"  # it still ran when its time was over
    DIED = "died"  # QEMU failed, or was killed from outside


@dataclass(frozen=True)
class End:
    """The end of one boot, with what a person needs to see why. `seconds` of host time since QEMU was started."""

    ending: Ending
    command: str
    console_tail: str
    stderr: str
    seconds: float
    returncode: int | None

    def error(self) -> GuestError:
        """This end as the error it is where it was not wanted."""
        what = {
            Ending.EXITED: "the machine ended by itself too early",
            Ending.PANIC: "the guest's kernel panicked",
            Ending.DEADLINE: f"the guest was not done after {self.seconds:.0f} s",
            Ending.DIED: f"QEMU ended with status {self.returncode}",
        }[self.ending]
        parts = (self.console_tail[-4000:], self.stderr, f"{self.command}\nafter {self.seconds:.1f} s")
        hint = "give it more time" if self.ending is Ending.DEADLINE else "the console's last lines tell more"
        return GuestError(what, hint=hint, details="\n".join(part.strip() for part in parts if part.strip()))


@dataclass(frozen=True)
class Qemu:
    """One QEMU: its program, version and what it can do. `plugin_api` is None where its plugins cannot be used."""

    program: str
    version: tuple[int, int]
    sandbox: bool
    plugin_api: int | None


@functools.cache
def _probe(program: str) -> Qemu:
    text = run([program, "--version"], timeout_s=20).text
    found = re.search(r"version (\d+)\.(\d+)", text)
    if found is None:
        raise HostError(f"{program} does not say its version", details=text[:200])
    version = (int(found[1]), int(found[2]))
    helped = run([program, "-help"], timeout_s=20).text
    api = plugin_api_of(version) if "-plugin " in helped else None
    return Qemu(program, version, "-sandbox " in helped, api)


def plugin_api_of(version: tuple[int, int]) -> int | None:
    """The build of the plugin that a version of QEMU loads: 1 up to 8.2, 4 from 9.2 on; between them, none."""
    if version < (9, 0):
        return 1
    return 4 if version >= (9, 2) else None


def installed() -> Qemu:
    """The QEMU to use: $VMTAILOR_QEMU, or the one on the PATH. Raises HostError when there is none."""
    return _probe(os.environ.get(BINARY_VARIABLE) or require_tool("qemu-system-x86_64", "qemu-system-x86"))


def plugin_api() -> int:
    """Which build of the plugin `installed()` loads. Raises HostError when it loads none."""
    qemu = installed()
    if qemu.plugin_api is None:
        raise HostError(
            f"QEMU {qemu.version[0]}.{qemu.version[1]} ({qemu.program}) cannot load the counting plugin",
            hint="use the QEMU of Debian 12 (7.2) or 13 (10.0)",
        )
    return qemu.plugin_api


def command(
    machine: Machine,
    *,
    program: str = "qemu-system-x86_64",
    sandbox: bool = True,
    qmp: str | None = None,
    plugin: Plugin | None = None,
) -> list[str]:
    """QEMU's argument list: a pure function. The serial line is standard input and output. `qmp`: a Unix socket on
    which somebody listens already. Raises UserInputError for what cannot be had together."""
    counting = machine.clock is Clock.INSTRUCTIONS
    if counting and machine.accelerator is not Accelerator.TCG:
        raise UserInputError("the instruction clock runs under TCG only", hint="use the wall clock with KVM")
    if plugin is not None and machine.cpus != 1:
        raise UserInputError("instructions are counted on one CPU only", hint="use the wall clock, or one CPU")
    argv = [program, "-machine", _machine_option(machine), "-cpu", machine.cpu_model, "-smp", str(machine.cpus)]
    argv += ["-m", f"{machine.memory_bytes >> 10}K", "-accel", str(machine.accelerator)]
    argv += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    if sandbox:
        argv += ["-sandbox", _SANDBOX]
    if counting:
        argv += _CLOCK
    elif machine.accelerator is Accelerator.TCG and machine.cpus == 1:
        argv += _PACED
    argv += ["-chardev", "stdio,id=serial,signal=off", "-serial", "chardev:serial"]
    if qmp is not None:
        argv += ["-chardev", f"socket,id=qmp,path={_comma(qmp)}", "-mon", "chardev=qmp,mode=control"]
    argv += ["-kernel", machine.kernel]
    if machine.initrd is not None:
        argv += ["-initrd", machine.initrd]
    if machine.append:
        argv += ["-append", " ".join(machine.append)]
    argv += _devices(machine)
    if plugin is not None:
        argv += ["-plugin", plugin.option()]
    return argv


def _machine_option(machine: Machine) -> str:
    if machine.kind is MachineKind.MICROVM:
        return f"microvm,acpi={'on' if machine.acpi else 'off'}"
    return str(machine.kind)


def _devices(machine: Machine) -> list[str]:
    argv: list[str] = []
    microvm = machine.kind is MachineKind.MICROVM
    flavour = "device" if microvm else "pci"
    for number, disk in enumerate(machine.disks):
        place = f",bus=virtio-mmio-bus.{_FIRST_BUS - number}" if microvm else ""
        read_only = "on" if disk.read_only else "off"
        argv += ["-drive", f"if=none,id=disk{number},file={_comma(disk.path)},format=raw,read-only={read_only}"]
        # A full disk of the host is the guest's error; by default QEMU would halt the guest until somebody comes.
        errors = "" if disk.read_only else ",werror=report"
        argv += ["-device", f"virtio-blk-{flavour},drive=disk{number}{place}{errors}"]
    if machine.network:
        forwards = "".join(
            f",hostfwd={port.protocol}:{port.host_address}:{port.host_port}-:{port.guest_port}"
            for port in machine.ports
        )
        place = f",bus=virtio-mmio-bus.{_FIRST_BUS - len(machine.disks)}" if microvm else ",romfile="
        restrict = "off" if machine.outbound else "on"
        argv += ["-netdev", f"user,id=net,ipv6=off,restrict={restrict}{forwards}"]
        argv += ["-device", f"virtio-net-{flavour},netdev=net,mac=52:54:00:12:34:56{place}"]
    else:
        argv += ["-nic", "none"]
    return argv


def _comma(path: str) -> str:
    return path.replace(",", ",,")


def environment() -> dict[str, str]:
    """What QEMU sees of our environment: next to nothing."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    return {"LC_ALL": "C", **kept}


class RunningMachine:
    """A machine under way. `serial` is its serial line; `qmp` is there when it was asked for."""

    def __init__(
        self, process: subprocess.Popen[bytes], serial: SerialLine, qmp: Qmp | None, command: str, errors: IO[bytes]
    ) -> None:
        self.serial = serial
        self.qmp = qmp
        self.command = command
        self.started_s = time.monotonic()
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

    def stop(self) -> None:
        """End QEMU now; the plugin writes its file."""
        kill_group(self._process)

    def stderr(self) -> str:
        """What QEMU itself has said so far."""
        self._errors.seek(0)
        return self._errors.read()[-8000:].decode("utf-8", "replace").strip()

    def _end(self, console: str | None) -> End:
        code = self._process.poll()
        raw = bytes(self.serial.tail)
        text = raw if console is None else console.encode()
        if code is None:
            ending = Ending.DEADLINE
        elif code != 0:
            ending = Ending.DIED
        else:
            ending = Ending.PANIC if _PANIC.search(text) else Ending.EXITED
        end = End(ending, self.command, raw.decode("utf-8", "replace"), self.stderr(), self.elapsed_s, code)
        # A QEMU that refuses says so with its status. One that a signal ended did start: 7.2 aborts in some guests that
        # run out of memory before they have said a word ("cpu_io_recompile").
        if ending is Ending.DIED and not self.serial.heard and code is not None and code > 0:
            raise _did_not_start(end)
        return end


def _did_not_start(end: End) -> HostError:
    taken = _PORT_TAKEN.search(end.stderr)
    if taken:
        return HostError(f"the host port of '{taken[1]}' is already in use", hint="publish another port")
    return HostError(
        "QEMU did not start", hint="vmtailor doctor checks the host", details=f"{end.stderr}\n{end.command}"
    )


@contextlib.contextmanager
def boot(machine: Machine, *, plugin: Plugin | None = None, qmp: bool = False) -> Iterator[RunningMachine]:
    """Start a machine. When the block is left, QEMU and all it started are gone, whatever happened."""
    qemu = installed()
    for path in filter(None, (machine.kernel, machine.initrd, *(disk.path for disk in machine.disks))):
        if not Path(path).is_file():
            raise UserInputError(f"{path} does not exist", hint="the machine cannot be booted without it")
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile())
        monitor = None
        if qmp:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vmtailor-"))
            monitor = stack.enter_context(Qmp(f"{folder}/qmp"))
        argv = command(
            machine, program=qemu.program, sandbox=qemu.sandbox, plugin=plugin, qmp=monitor.path if monitor else None
        )
        shown = pasteable(command(machine, program=qemu.program, sandbox=qemu.sandbox, plugin=plugin))
        serial = stack.enter_context(SerialLine())
        process = stack.enter_context(
            spawn(argv, stdin=serial.guest_in, stdout=serial.guest_out, stderr=errors, env=environment())
        )
        serial.started()
        running = RunningMachine(process, serial, monitor, shown, errors)
        if monitor is not None:
            monitor.accept(20.0, lambda: running.running, running.stderr)
        yield running
