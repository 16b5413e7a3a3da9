# SPDX-License-Identifier: Apache-2.0
"""QEMU's argument list as a pure function of a machine, in the parts that all our machines are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.qemu.plugin import Plugin
from vmtailor.model.machine import Accelerator, Clock, Machine, MachineKind

PROGRAM = "qemu-system-x86_64"
#: The guest's clock at reset on the instruction clock: the same in every run.
RTC_BASE = "2026-01-01T00:00:00"
_CLOCK = ("-icount", "shift=0,sleep=off", "-rtc", f"base={RTC_BASE},clock=vm", "-seed", "1")
#: The wall clock under TCG. Without it the time stamp counter is the host's, and a guest on a busy host cannot check
#: it against an emulated timer: it hangs, or sets its clock wrong. Its clocks still follow the host's time, waits
#: included. Several CPUs take turns then.
_PACED = ("-icount", "shift=auto")
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
#: microvm's transport for the first disk. Guests find transports, and name disks, from the highest number down; there
#: are eight in any case.
_FIRST_BUS = 7


@dataclass(frozen=True)
class Ends:
    """What QEMU inherits, besides the serial line on its standard input and output. `qmp`: a connected socket.
    `probe`: a descriptor for the output of a second serial port. `names`: what it calls a file, where that is not its
    path (drivers/qemu/handover.py); `sets`: descriptors, each with the descriptor set that it is in."""

    qmp: int | None = None
    probe: int | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    sets: tuple[tuple[int, int], ...] = ()

    def name(self, path: str) -> str:
        """What QEMU calls the file at a path."""
        return self.names.get(path, path)


NO_ENDS = Ends()


class Board(Protocol):
    """What every machine has."""

    @property
    def kind(self) -> MachineKind: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def cpus(self) -> int: ...
    @property
    def cpu_model(self) -> str: ...
    @property
    def kernel(self) -> str | None: ...
    @property
    def initrd(self) -> str | None: ...
    @property
    def append(self) -> tuple[str, ...]: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def accelerator(self) -> Accelerator: ...


def board(
    machine: Board,
    options: str,
    ends: Ends,
    *,
    program: str = PROGRAM,
    sandbox: bool = True,
    plugin: Plugin | None = None,
) -> list[str]:
    """A machine without its devices; `options` go with its type. Raises UserInputError for what cannot be had
    together."""
    counting = machine.clock is Clock.INSTRUCTIONS
    if counting and machine.accelerator is not Accelerator.TCG:
        raise UserInputError("the instruction clock runs under TCG only", hint="use the wall clock with KVM")
    if plugin is not None and machine.cpus != 1:
        raise UserInputError("instructions are counted on one CPU only", hint="use the wall clock, or one CPU")
    argv = [program, "-machine", f"{machine.kind}{options}", "-cpu", machine.cpu_model, "-smp", str(machine.cpus)]
    argv += ["-m", f"{machine.memory_bytes >> 10}K", "-accel", str(machine.accelerator)]
    argv += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    if sandbox:
        argv += ["-sandbox", _SANDBOX]
    if counting:
        argv += _CLOCK
    elif machine.accelerator is Accelerator.TCG:
        argv += _PACED
    for descriptor, number in ends.sets:
        argv += ["-add-fd", f"fd={descriptor},set={number}"]
    argv += _lines(ends)
    if machine.kernel is not None:
        argv += ["-kernel", ends.name(machine.kernel)]
        if machine.initrd is not None:
            argv += ["-initrd", ends.name(machine.initrd)]
        if machine.append:
            argv += ["-append", " ".join(machine.append)]
    if plugin is not None:
        argv += ["-plugin", plugin.option(ends.name)]
    return argv


def _lines(ends: Ends) -> list[str]:
    argv = ["-chardev", "stdio,id=serial,signal=off", "-serial", "chardev:serial"]
    if ends.probe is not None:
        argv += ["-add-fd", f"fd={ends.probe},set={ends.probe}"]
        # Appending: a pipe cannot be emptied, which QEMU tries otherwise.
        argv += ["-chardev", f"file,id=probe,path=/dev/fdset/{ends.probe},append=on", "-serial", "chardev:probe"]
    if ends.qmp is not None:
        argv += ["-chardev", f"socket,id=qmp,fd={ends.qmp}", "-mon", "chardev=qmp,mode=control"]
    return argv


def flavour(kind: MachineKind) -> str:
    """How the machine's virtio devices end in QEMU's names."""
    return "device" if kind is MachineKind.MICROVM else "pci"


def place(kind: MachineKind, number: int) -> str:
    """The option that gives disks, and what follows them, their order on a microvm."""
    return f",bus=virtio-mmio-bus.{_FIRST_BUS - number}" if kind is MachineKind.MICROVM else ""


def drive(kind: MachineKind, number: int, path: str, how: str, on_error: str = "") -> list[str]:
    """A virtio disk. `how`: its format and whether it is written."""
    return [
        *("-drive", f"if=none,id=disk{number},file={comma(path)},{how}"),
        *("-device", f"virtio-blk-{flavour(kind)},drive=disk{number}{place(kind, number)}{on_error}"),
    ]


def network(kind: MachineKind, rules: str, where: str = "") -> list[str]:
    """A virtio network device behind QEMU's user-mode stack."""
    return [
        *("-netdev", f"user,id=net,{rules}"),
        *("-device", f"virtio-net-{flavour(kind)},netdev=net,mac=52:54:00:12:34:56{where}"),
    ]


def comma(path: str) -> str:
    """A path as part of an option."""
    return path.replace(",", ",,")


def command(
    machine: Machine,
    ends: Ends = NO_ENDS,
    *,
    program: str = PROGRAM,
    sandbox: bool = True,
    plugin: Plugin | None = None,
) -> list[str]:
    """The argument list of a container's machine."""
    microvm = machine.kind is MachineKind.MICROVM
    options = f",acpi={'on' if machine.acpi else 'off'}" if microvm else ""
    argv = board(machine, options, ends, program=program, sandbox=sandbox, plugin=plugin)
    for number, disk in enumerate(machine.disks):
        # A full disk of the host is the guest's error; by default QEMU would halt the guest until somebody comes.
        on_error = "" if disk.read_only else ",werror=report"
        how = f"format=raw,read-only={'on' if disk.read_only else 'off'}"
        argv += drive(machine.kind, number, ends.name(disk.path), how, on_error)
    if not machine.network:
        return [*argv, "-nic", "none"]
    forwards = "".join(f",hostfwd={p.protocol}:{p.host_address}:{p.host_port}-:{p.guest_port}" for p in machine.ports)
    # A network that opens to the world, and not to this host's loopback, is opened by the guard (net_guard).
    closed = not (machine.outbound and machine.host_loopback)
    rules = f"ipv6=off,restrict={'on' if closed else 'off'}{forwards}"
    return [*argv, *network(machine.kind, rules, place(machine.kind, len(machine.disks)) or ",romfile=")]
