# SPDX-License-Identifier: Apache-2.0
"""A machine with an init of its own: its console, second serial port and monitor in one loop, all with host times."""

from __future__ import annotations

import contextlib
import functools
import re
import selectors
from collections.abc import Iterator
from dataclasses import dataclass, field

from vmtailor.base.errors import GuestError
from vmtailor.drivers.guest.console import Console
from vmtailor.drivers.guest.serial_line import SerialLine
from vmtailor.drivers.qemu import qemu
from vmtailor.drivers.qemu.handover import Wanted
from vmtailor.drivers.qemu.plugin import Plugin
from vmtailor.drivers.qemu.qemu import RunningMachine
from vmtailor.drivers.qemu.qemu_command import NO_ENDS, PROGRAM, Ends, board, drive, flavour, network
from vmtailor.drivers.qemu.qmp import Qmp
from vmtailor.drivers.rootfs import qcow2
from vmtailor.model.machine import Accelerator, MachineKind
from vmtailor.model.vm import DiskFormat, Vm

#: A guest's second serial port is cut off here.
MAX_PROBE = 256 << 20
_MICROVM = ("acpi=on", "pic=on", "pit=on", "rtc=on")
_USERNET = re.compile(r"TCP\[([A-Z_0-9]+)\]\s+-?\d+\s+(\S+)\s+(\d+)\s+(\S+)\s+(\d+)")


def command(
    vm: Vm, ends: Ends = NO_ENDS, *, program: str = PROGRAM, sandbox: bool = True, plugin: Plugin | None = None
) -> list[str]:
    """QEMU's argument list. Pure."""
    microvm = vm.kind is MachineKind.MICROVM
    # Without a screen the firmware, and a loader that uses it, print on the serial line.
    screen = ("graphics=off",) if vm.kernel is None and not microvm else ()
    options = "".join(f",{one}" for one in (*(_MICROVM if microvm else ()), *screen, *vm.machine_options))
    argv = board(vm, options, ends, program=program, sandbox=sandbox, plugin=plugin)
    if vm.network:
        # Port 0: the kernel chooses a free one, and QMP tells which. Nothing but the loopback address is bound.
        forwards = "".join(f",hostfwd=tcp:127.0.0.1:0-:{port}" for port in vm.forwards)
        argv += network(vm.kind, f"restrict=on{forwards}")
    if vm.entropy:
        device = f"virtio-rng-{flavour(vm.kind)},rng=rng"
        argv += ["-object", "rng-random,id=rng,filename=/dev/urandom", "-device", device]
    for number, disk in enumerate(vm.disks):
        argv += drive(vm.kind, number, ends.name(disk.path), f"format={disk.format},snapshot=on")
    return [*argv, *vm.options]


@dataclass
class RunningVm:
    """A machine under way. Times are seconds since QEMU was started."""

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
def start(vm: Vm, *, plugin: Plugin | None = None) -> Iterator[RunningVm]:
    """Start a machine; it is gone when the block is left. Raises HostError or GuestError, with QEMU's words, when it
    does not start."""
    build = functools.partial(command, vm, plugin=plugin)
    for disk in vm.disks:
        if disk.format is DiskFormat.QCOW2:
            qcow2.require_alone(disk.path)
    wanted = Wanted(
        named=qemu.named(vm),
        disks={disk.path: False for disk in vm.disks},
        plugin=plugin,
        overlays=bool(vm.disks),
        kvm=vm.accelerator is Accelerator.KVM,
    )
    with qemu.launch(build, wanted, qmp=True, probe=vm.probe) as machine:
        assert machine.qmp is not None
        with contextlib.closing(RunningVm(machine, machine.qmp)) as running:
            if vm.forwards:
                try:
                    running.learn_forwards()
                except GuestError as error:
                    raise GuestError(error.message, details=f"{machine.stderr()}\n{machine.command}") from error
            yield running
