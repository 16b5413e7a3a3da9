# SPDX-License-Identifier: Apache-2.0
"""A QEMU under way: a context manager that owns the process, its lines and its monitor; how it ended, and why it
did not start."""

from __future__ import annotations

import contextlib
import functools
import re
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Protocol

from vmtailor.base.errors import GuestError, HostError, UserInputError
from vmtailor.base.process import pasteable, spawn
from vmtailor.drivers.guest.serial_line import PortLine, SerialLine
from vmtailor.drivers.host.host_ports import explained
from vmtailor.drivers.monitors.running_machine import DiskCounts, Lines, RunningMachine
from vmtailor.drivers.monitors.supervised_start import CONTROL, LINE, RUN_VOLUME, SupervisedStart
from vmtailor.drivers.qemu import net_guard
from vmtailor.drivers.qemu.handover import Wanted, handed, listed
from vmtailor.drivers.qemu.plugin import Plugin
from vmtailor.drivers.qemu.qemu_command import Ends, command
from vmtailor.drivers.qemu.qemu_program import Qemu, installed
from vmtailor.drivers.qemu.qmp import Qmp
from vmtailor.drivers.rootfs import boot_disk
from vmtailor.model.architecture import named, presumed
from vmtailor.model.boots.ending import End
from vmtailor.model.guest_mounts import Share
from vmtailor.model.machine import Accelerator, DiskFormat, DiskMode, Machine, TalkLine

_USERNET = re.compile(r"TCP\[([A-Z_0-9]+)\]\s+-?\d+\s+(\S+)\s+(\d+)\s+(\S+)\s+(\d+)")
_PORT_REFUSED = re.compile(r"Could not set up host forwarding rule '([^']*)'")


class QemuMachine(RunningMachine):
    """A machine under way in QEMU, which is asked through `qmp` where that is wanted."""

    title = "QEMU"
    #: Host seconds that QEMU has to greet on its monitor.
    GREETING_S = 20.0

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        lines: Lines,
        command: str,
        errors: IO[bytes],
        qmp: Qmp | None,
    ) -> None:
        super().__init__(process, lines, command, errors, qmp)
        self.qmp = qmp

    def greet(self) -> None:
        """Wait for the monitor's greeting. Raises HostError when QEMU ends first, or says none."""
        if self.qmp is not None:
            self.qmp.accept(self.GREETING_S, lambda: self.running, self.stderr)

    def executed(self) -> int | None:
        """Return QEMU's own count of instructions, which it keeps on the instruction clock alone."""
        if self.qmp is None:
            return None
        try:
            return int(self.qmp.ask("query-replay")["icount"]) or None
        except (GuestError, OSError):  # it may be ending just now
            return None

    def disk_counts(self) -> dict[str, DiskCounts]:
        """Return QEMU's counts of each block device."""
        if self.qmp is None:
            return {}
        try:
            return _disk_counts(self.qmp.ask("query-blockstats"))
        except (GuestError, OSError):  # it may be ending just now
            return {}

    def forwards(self) -> dict[int, int]:
        """Return the forwarded ports of QEMU's user-mode network, guest → host."""
        usernet = self._usernet()
        return {int(guest): int(host) for state, _, host, _, guest in usernet if state == "HOST_FORWARD"}

    def established(self, local_port: int) -> bool:
        """Return whether QEMU's user-mode network has an established connection from a port."""
        return any(state == "ESTABLISHED" and int(port) == local_port for state, _, port, _, _ in self._usernet())

    def _usernet(self) -> list[tuple[str, str, str, str, str]]:
        return _USERNET.findall(self.qmp.ask_person("info usernet")) if self.qmp is not None else []

    def not_started(self, end: End) -> HostError:
        """Return the error of a machine that did not start, with the host port if one could not be opened."""
        return port_refused(end) or super().not_started(end)


def _disk_counts(answer: object) -> dict[str, DiskCounts]:
    """Return the counts in an answer to `query-blockstats`. A device without a name has that of its node."""
    found = {}
    for number, one in enumerate(answer if isinstance(answer, list) else ()):
        stats = one.get("stats", {})
        name = str(one.get("device") or one.get("node-name") or f"disk{number}")
        keys = ("rd_operations", "rd_bytes", "wr_operations", "wr_bytes")
        found[name[:64]] = DiskCounts(*(int(stats.get(key, 0)) for key in keys))
    return found


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
    port: bool = False,
) -> Iterator[QemuMachine]:
    """Start QEMU with the argument list that `build` gives, shut in as far as the host allows. When the block is left,
    or we are gone, QEMU and all it started are gone. `wanted`: all that QEMU gets of the host. Raises UserInputError
    when a file is not there, HostError when QEMU does not start."""
    family = presumed() if architecture is None else named(architecture)
    qemu = installed(family.name)
    _require(wanted.files)
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile())
        monitor = stack.enter_context(Qmp()) if qmp else None
        serial = stack.enter_context(PortLine() if port else SerialLine())
        second = stack.enter_context(SerialLine()) if probe or attendant or port else None
        given = stack.enter_context(handed(wanted, qemu))
        ends = Ends(
            qmp=monitor.theirs if monitor else None,
            probe=second.guest_out if second and probe else None,
            names=given.names,
            sets=tuple(given.sets),
            console=second.guest_out if second and (attendant or port) else None,
            shares=tuple(given.shares),
            folders=tuple(given.folders),
            opened_tap=given.tap,
        )
        argv = build(ends, program=qemu.program, sandbox=qemu.sandbox)
        shown = _shown(build, wanted, qemu)
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
        console, talk = (second, serial) if second is not None and (attendant or port) else (serial, None)
        lines = Lines(
            console,
            probe=second if probe else None,
            attendant=talk if attendant else None,
            port=talk if port else None,
        )
        running = QemuMachine(process, lines, shown, errors, monitor)
        if monitor is not None:
            monitor.started()
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
    shares: tuple[Share, ...] = (),
) -> contextlib.AbstractContextManager[QemuMachine]:
    """Start a machine; `launch` says what else holds. `probe`: with a second serial port for what the guest says;
    `attendant`: with one for a conversation, in its place. `shares`: of the host's files. Raises UserInputError for a
    disk image that stands on another file of the host."""
    wanted = _wanted(machine, plugin, shares)
    build = functools.partial(command, machine, plugin=plugin)
    return launch(
        build, wanted, architecture=machine.architecture, qmp=qmp, probe=probe, attendant=attendant,
        port=machine.line is TalkLine.VIRTIO,
    )  # fmt: skip


def supervised(machine: Machine, shares: tuple[Share, ...] = ()) -> SupervisedStart:
    """Return the start of a machine by a supervisor. Raises as `start` does, and for disks that need a place for
    temporary files."""
    wanted, family = _wanted(machine, shares=shares), named(machine.architecture)
    qemu = installed(family.name)
    if wanted.overlays:
        raise UserInputError("a supervised machine has no disk of which what is written is thrown away")
    _require(path for path in wanted.files if path != RUN_VOLUME)
    given, files = listed(wanted, qemu)
    line = LINE if machine.line is TalkLine.VIRTIO else 0
    ends = Ends(
        qmp=CONTROL,
        names=given.names,
        sets=tuple(given.sets),
        console=line or None,
        opened_tap=given.tap,
        shares=tuple(given.shares),
        folders=tuple(given.folders),
    )
    return SupervisedStart(
        argv=tuple(given.argv(command(machine, ends, program=qemu.program, sandbox=qemu.sandbox))),
        command=_shown(functools.partial(command, machine), wanted, qemu),
        environment=given.environment,
        files=files,
        programs=(given.launcher[0], qemu.program, *(path for path in qemu.needs or () if Path(path).is_file())),
        inherited=() if given.tap is None else (given.tap,),
        control=CONTROL,
        line=line,
        cpu=family.emulator.cpu,
        halted=family.emulator.halted,
    )


def _wanted(machine: Machine, plugin: Plugin | None = None, shares: tuple[Share, ...] = ()) -> Wanted:
    for disk in machine.disks:
        if disk.format is DiskFormat.QCOW2:
            boot_disk.require_alone(disk.path)
    return Wanted(
        named=machine.files,
        disks={disk.path: disk.mode is DiskMode.WRITTEN for disk in machine.disks},
        plugin=plugin,
        overlays=any(disk.mode is DiskMode.OVERLAID for disk in machine.disks),
        kvm=machine.accelerator is Accelerator.KVM,
        outbound=machine.outbound,
        tap=machine.tap,
        low_ports=any(0 < port.host_port < 1024 for port in machine.ports),
        variables=net_guard.variables(machine, installed(machine.architecture).program),
        shares=shares,
    )


def _require(paths: Iterable[str]) -> None:
    for path in paths:
        if not Path(path).is_file():
            raise UserInputError(f"{path} does not exist", hint="the machine cannot be booted without it")


def _shown(build: Builder, wanted: Wanted, qemu: Qemu) -> str:
    """Return the command for people."""
    words = [f"{name}={value}" for name, value in wanted.variables.items()]
    return pasteable([*(("env", *words) if words else ()), *build(program=qemu.program, sandbox=qemu.sandbox)])


def port_refused(end: End) -> HostError | None:
    """Return the error of a QEMU that could not open a host port; None where that is not why it ended."""
    refused = _PORT_REFUSED.search(end.stderr)
    return port_refusal(refused[1]) if refused else None


_FORWARD = re.compile(r"(?P<protocol>tcp|udp):(?P<address>[0-9.]+):(?P<port>[0-9]+)-")


def port_refusal(rule: str) -> HostError:
    """Return what is wrong with a forwarding rule that QEMU could not set up, such as `tcp:127.0.0.1:80-:80`. The port
    is tried once more, as QEMU does it."""
    match = _FORWARD.match(rule)
    if match is None:
        return HostError(f"QEMU could not publish '{rule}'", hint="publish another port")
    protocol, address, port = match["protocol"], match["address"], int(match["port"])
    try:
        _try_port(protocol, address, port)
    except OSError as error:
        return explained(error, protocol, address, port)
    return HostError(
        f"QEMU could not open the host port {address}:{port}/{protocol}, which is free now",
        hint="something had it for a moment: try again, or publish another port",
    )


def _try_port(protocol: str, address: str, port: int) -> None:
    kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as tried:
        if protocol == "tcp":
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tried.bind((address, port))
        if protocol == "tcp":
            tried.listen(1)
