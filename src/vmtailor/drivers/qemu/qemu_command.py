# SPDX-License-Identifier: Apache-2.0
"""QEMU's argument list as a function of a machine, and of what its kernel file tells under KVM."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.monitors import processor_table
from vmtailor.drivers.qemu import descriptor_sets
from vmtailor.drivers.qemu.plugin import Plugin
from vmtailor.model.architecture import Board, Bus, named
from vmtailor.model.machine import Accelerator, Clock, Devices, DiskMode, Machine, TalkLine

#: The guest's clock at reset on the instruction clock: the same in every run.
RTC_BASE = "2026-01-01T00:00:00"
_CLOCK = ("-rtc", f"base={RTC_BASE},clock=vm", "-seed", "1")
#: The wall clock under TCG. Without it the time stamp counter is the host's, and a guest on a busy host cannot check
#: it against an emulated timer: it hangs, or sets its clock wrong. Its clocks still follow the host's time, waits
#: included. Several CPUs take turns then.
_PACED = ("-icount", "shift=auto")
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
#: Suffix of virtio devices in QEMU's names.
_VIRTIO = {Bus.MMIO: "device", Bus.PCI: "pci"}
_MODES = {
    DiskMode.READ_ONLY: "read-only=on",
    DiskMode.OVERLAID: "snapshot=on",
    DiskMode.WRITTEN: "read-only=off",
}


@dataclass(frozen=True)
class Ends:
    """The things that QEMU inherits, besides the serial line on its standard input and output. `qmp`: a connected
    socket. `probe`: a descriptor for the output of a second serial port. `console`: one for that of the board's own, in
    its place: then standard input and output are the second one, for a conversation with an attendant, or the machine's
    virtio line. `names`: what it calls a file, where that is not its path (drivers/qemu/handover.py); `sets`:
    descriptors, each with the descriptor set that it is in. `tap`: a TAP device that is the guest's network, in place
    of QEMU's own stack; `opened_tap`: the descriptor of one. `shares`: connections to file servers,
    each with the tag by which the guest mounts what it serves. `folders`: the same of folders that QEMU serves, by
    their names there."""

    qmp: int | None = None
    probe: int | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    sets: tuple[tuple[int, int], ...] = ()
    console: int | None = None
    tap: str = ""
    opened_tap: int | None = None
    shares: tuple[tuple[int, str], ...] = ()
    folders: tuple[tuple[str, str], ...] = ()

    def name(self, path: str) -> str:
        """Return what QEMU calls the file at a path."""
        return self.names.get(path, path)


NO_ENDS = Ends()


def command(
    machine: Machine,
    ends: Ends = NO_ENDS,
    *,
    program: str | None = None,
    sandbox: bool = True,
    plugin: Plugin | None = None,
) -> list[str]:
    """Return QEMU's argument list for a machine; by default with its architecture's program by name. Raises
    UserInputError for what cannot be had together, and for a machine that the architecture does not have."""
    argv = _board(machine, ends, program or named(machine.architecture).emulator.program, sandbox, plugin)
    disks, network = _disks(machine, ends), _network(machine, ends)
    # The order decides which address each device gets.
    bare = machine.devices is Devices.BARE
    devices = [*disks, *network, *_entropy(machine)] if bare else [*network, *_entropy(machine), *disks]
    devices += _talk(machine)
    firmware = ["-bios", machine.firmware] if machine.firmware else []
    return [*argv, *devices, *_shares(machine, ends), *machine.extras, *firmware]


def _board(machine: Machine, ends: Ends, program: str, sandbox: bool, plugin: Plugin | None) -> list[str]:
    """Return a machine without its devices."""
    counting = machine.clock is Clock.INSTRUCTIONS
    if counting and machine.accelerator is not Accelerator.TCG:
        raise UserInputError("the instruction clock runs under TCG only", hint="use the wall clock with KVM")
    if plugin is not None and machine.cpus != 1:
        raise UserInputError("instructions are counted on one CPU only", hint="use the wall clock, or one CPU")
    shared = ",memory-backend=ram" if ends.shares else ""
    argv = [program, "-machine", _type(machine) + shared, "-cpu", machine.cpu_model, "-smp", str(machine.cpus)]
    memory = f"{max(machine.memory_bytes >> 10, machine.hardware.installed_mib << 10)}K"
    argv += ["-m", memory]
    if ends.shares:  # servers read and write the guest's memory
        argv += ["-object", f"memory-backend-memfd,id=ram,size={memory},share=on"]
    argv += ["-accel", str(machine.accelerator)]
    argv += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    if sandbox:
        argv += ["-sandbox", _SANDBOX]
    if counting:
        argv += ["-icount", f"shift={named(machine.architecture).emulator.pace + machine.pace},sleep=off", *_CLOCK]
    elif machine.accelerator is Accelerator.TCG:
        argv += _PACED
    for descriptor, number in ends.sets:
        argv += descriptor_sets.add(descriptor, number)
    argv += _lines(machine, ends)
    if machine.kernel is not None:
        argv += ["-kernel", ends.name(machine.kernel)]
        if machine.initrd is not None:
            argv += ["-initrd", ends.name(machine.initrd)]
        if words := (*_words(machine, ends), *_memory_words(machine)):
            argv += ["-append", " ".join(words)]
    if plugin is not None:
        argv += ["-plugin", plugin.option(ends.name)]
    return argv


def _words(machine: Machine, ends: Ends) -> tuple[str, ...]:
    """Return the kernel's command line, with the board's serial line by the name that it has beside a second one."""
    beside, alone = machine.hardware.port_console, f"console={named(machine.architecture).kernel.console}"
    if not beside or machine.line is TalkLine.VIRTIO or (ends.probe is None and ends.console is None):
        return machine.words
    told = (word.partition(",") for word in machine.words)
    return tuple((f"console={beside}" if word == alone else word) + comma + rest for word, comma, rest in told)


def _memory_words(machine: Machine) -> tuple[str, ...]:
    """Return the words that tell a kernel to use less memory than the machine must have."""
    known = machine.hardware
    less = machine.memory_bytes >> 10 < known.installed_mib << 10
    return (known.memory_word.format(kib=machine.memory_bytes >> 10),) if less else ()


def _lines(machine: Machine, ends: Ends) -> list[str]:
    # Pipes, and no socket: drivers/guest/serial_line.py says why.
    known = machine.hardware
    if machine.line is TalkLine.VIRTIO and ends.console is not None:
        argv = [*_to(ends.console, "serial"), "-serial", "chardev:serial", "-chardev", "stdio,id=line,signal=off"]
    elif ends.console is not None:
        argv = [*_to(ends.console, "serial"), "-serial", "chardev:serial"]
        argv += ["-chardev", "stdio,id=attendant,signal=off", *_second_port("attendant", known)]
    else:
        # A virtio console among the machine's own words may share the line (data/hardware.toml).
        shared = ",mux=on" if any(word.endswith(",chardev=serial") for word in machine.extras) else ""
        argv = ["-chardev", f"stdio,id=serial,signal=off{shared}", "-serial", "chardev:serial"]
        argv += ["-chardev", "null,id=line"] if machine.line is TalkLine.VIRTIO else []
    if ends.probe is not None:
        argv += [*_to(ends.probe, "probe"), *_second_port("probe", known)]
    if ends.qmp is not None:
        argv += ["-chardev", f"socket,id=qmp,fd={ends.qmp}", "-mon", "chardev=qmp,mode=control"]
    return argv


def _talk(machine: Machine) -> list[str]:
    """Return the port on which init talks, where that is not the serial line: the first that is no console. Without
    our ends nobody is at it."""
    if machine.line is not TalkLine.VIRTIO:
        return []
    place = _transport(machine.hardware, _line_number(machine))
    device = f"virtio-serial-{_VIRTIO[machine.hardware.bus]},max_ports=2{place}"
    return ["-device", device, "-device", "virtserialport,chardev=line,nr=1"]


def _to(descriptor: int, name: str) -> tuple[str, ...]:
    """Return a chardev of this name that writes to a descriptor."""
    path = descriptor_sets.path(descriptor)
    # Appending: a pipe cannot be emptied, which QEMU tries otherwise.
    return (*descriptor_sets.add(descriptor, descriptor), "-chardev", f"file,id={name},path={path},append=on")


def _second_port(name: str, known: Board) -> tuple[str, str]:
    """Return a second serial port, behind which a chardev of this name is."""
    if known.port_device:
        return "-device", f"{known.port_device},chardev={name}"
    return "-serial", f"chardev:{name}"


def _type(machine: Machine) -> str:
    """Return the machine type with its options."""
    known = machine.hardware
    if machine.devices is Devices.USUAL:
        options = known.usual
    else:
        options = known.with_acpi if machine.acpi else (*known.without_acpi, *_by_table(machine))
    loader = known.own_loader if machine.kernel is None else ()
    return ",".join((known.name, *known.options, *options, *loader))


def _by_table(machine: Machine) -> tuple[str, ...]:
    """Return the options of a machine under KVM whose kernel reads its table of processors. Under emulation a machine
    keeps what it was fitted with: counts depend on it."""
    options, kernel = machine.hardware.by_table, machine.kernel
    if not options or kernel is None or machine.accelerator is not Accelerator.KVM:
        return ()
    return options if processor_table.is_read_by(Path(kernel)) else ()


def _transport(known: Board, number: int) -> str:
    """Return the option that gives disks, and what follows them, their order where devices are not on PCI."""
    return f",bus=virtio-mmio-bus.{known.first_slot + number * known.slot_step}" if known.bus is Bus.MMIO else ""


def _disks(machine: Machine, ends: Ends) -> list[str]:
    argv = []
    for number, disk in enumerate(machine.disks):
        # A full disk of the host is the guest's error; by default QEMU would halt the guest until somebody comes.
        on_error = ",werror=report" if disk.mode is DiskMode.WRITTEN else ""
        how = f"file={_comma(ends.name(disk.path))},format={disk.format},{_MODES[disk.mode]}"
        argv += ["-drive", f"if=none,id=disk{number},{how}"]
        where = _transport(machine.hardware, number)
        argv += ["-device", f"virtio-blk-{_VIRTIO[machine.hardware.bus]},drive=disk{number}{where}{on_error}"]
    return argv


def _network(machine: Machine, ends: Ends) -> list[str]:
    """Return a virtio network device behind QEMU's user-mode stack, or before a TAP device."""
    bare = machine.devices is Devices.BARE
    if not machine.network:
        return ["-nic", "none"] if bare else []
    # Those of IPv6 are opened by the guard, which knows how (net_guard).
    opened = (port for port in machine.ports if not port.six)
    forwards = "".join(f",hostfwd={p.protocol}:{p.host_address}:{p.host_port}-:{p.guest_port}" for p in opened)
    # A network that opens to the world, and not to this host's loopback, is opened by the guard (net_guard).
    closed = not (machine.outbound and machine.host_loopback)
    six = f"ipv6-net={ipaddress.IPv6Interface(machine.network6).network}," if machine.network6 else "ipv6=off,"
    rules = f"{six if bare else ''}restrict={'on' if closed else 'off'}{forwards}"
    options = "".join(f",{one}" for one in machine.hardware.network)
    place = _transport(machine.hardware, len(machine.disks)) if bare or machine.hardware.all_placed else ""
    where = place + (options if bare else "")
    device = ends.tap or machine.tap
    behind = f"tap,id=net,ifname={_comma(device)},script=no,downscript=no" if device else f"user,id=net,{rules}"
    if ends.opened_tap is not None:
        behind = f"tap,id=net,fd={ends.opened_tap}"
    return [
        *("-netdev", behind),
        *("-device", f"virtio-net-{_VIRTIO[machine.hardware.bus]},netdev=net,mac={machine.mac}{where}"),
    ]


def _entropy(machine: Machine) -> list[str]:
    if not machine.entropy:
        return []
    place = _transport(machine.hardware, len(machine.disks) + 1) if machine.hardware.all_placed else ""
    device = f"virtio-rng-{_VIRTIO[machine.hardware.bus]},rng=rng{place}"
    return ["-object", "rng-random,id=rng,filename=/dev/urandom", "-device", device]


def _shares(machine: Machine, ends: Ends) -> list[str]:
    """Return a device for each share, in the places that others leave (pipeline/run_mounts.py, `require_room`)."""
    # Transports on a board without PCI are of the old kind otherwise, which such servers do not speak.
    argv = ["-global", "virtio-mmio.force-legacy=false"] if ends.shares and machine.hardware.bus is Bus.MMIO else []
    taken = {len(machine.disks) + 1} if machine.entropy else set()
    taken |= {len(machine.disks)} if machine.network else set()
    taken |= {_line_number(machine)} if machine.line is TalkLine.VIRTIO else set()
    free = (number for number in itertools.count(len(machine.disks)) if number not in taken)
    for descriptor, tag in ends.shares:
        argv += ["-chardev", f"socket,id={tag},fd={descriptor}"]
        device = f"vhost-user-fs-{_VIRTIO[machine.hardware.bus]},chardev={tag},tag={tag}"
        argv += ["-device", device + _transport(machine.hardware, next(free))]
    for path, tag in ends.folders:
        # Mounts below have inode numbers of their own. Whether it is written is up to how QEMU sees it.
        argv += ["-fsdev", f"local,id={tag},path={_comma(path)},security_model=passthrough,multidevs=remap"]
        device = f"virtio-9p-{_VIRTIO[machine.hardware.bus]},fsdev={tag},mount_tag={tag}"
        argv += ["-device", device + _transport(machine.hardware, next(free))]
    return argv


def _line_number(machine: Machine) -> int:
    """Return the number of the device on which init talks, among those that have places: behind a network device and a
    source of entropy, unless so many disks come before that no place is left there."""
    known, number = machine.hardware, len(machine.disks) + 2
    return min(number, known.first_slot) if known.bus is Bus.MMIO and known.slot_step < 0 else number


def _comma(path: str) -> str:
    """Return a path as part of an option."""
    return path.replace(",", ",,")
