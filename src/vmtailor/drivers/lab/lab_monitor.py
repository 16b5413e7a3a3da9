# SPDX-License-Identifier: Apache-2.0
"""A monitor in the lab: the lab starts in QEMU, the monitor starts the machine in it under KVM. The machine's serial
line is the lab's second port; what the monitor says of itself comes on the lab's console."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base.cache.store import digest
from vmtailor.base.errors import GuestError, HostError, NotStarted, UserInputError
from vmtailor.base.files import temporary
from vmtailor.base.natives import Natives
from vmtailor.base.text import is_number, plain
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.guest.serial_line import SerialLine
from vmtailor.drivers.monitors import lab_folder, monitors
from vmtailor.drivers.monitors.lab_folder import DISK, INITRD, KERNEL, SMALL_PAGES, Lab
from vmtailor.drivers.monitors.monitor import (
    NOTHING_MORE,
    Counter,
    KvmState,
    KvmVerdict,
    Monitor,
    MonitorRow,
    Orders,
    StartPlace,
    Wants,
)
from vmtailor.drivers.monitors.running_machine import Lines, RunningMachine
from vmtailor.drivers.rootfs.rootfs import Extra, build
from vmtailor.model.architecture import Architecture, named, of_host
from vmtailor.model.boots.counters import CountingConfig
from vmtailor.model.boots.ending import End, Ending
from vmtailor.model.machine import HOST_CPU, LAB, Accelerator, Clock, Disk, DiskMode, Machine
from vmtailor.model.plan import RootFormat

#: Memory of the lab besides the machine's in it.
LAB_BYTES = 640 << 20
#: Host seconds that the lab may take until the monitor starts, on a busy host.
_START_S = 900.0
#: How much longer than in QEMU alone a machine may take in the lab: two levels of machines are emulated.
SLOWNESS = 8.0
#: Folder of the orders' disk, and the name there of a program that the user gave.
_FOLDER, _PROGRAM = "/mnt", "program"
#: Names there of the program that begins the monitor, and of the list of events to trace.
_BEGIN, _TRACE = "begin", "trace"
#: Begins the names there of files with a load's words, one a line; the client of loads.
_LOAD, _CLIENT = "load-", "load-client"
#: KVM's events: each exit, and what some exits are about.
_EVENTS = ("kvm_exit", "kvm_pio", "kvm_mmio", "kvm_msr", "kvm_cpuid")
#: Most disks of a machine: the lab's board has room for eight devices.
_MOST_DISKS = 5
_WORDS = (
    "root=/dev/vda", "rootfstype=ext4", "ro", "init=/sbin/init", "quiet", "panic=-1", "mitigations=off",
    "cryptomgr.notests",
)  # fmt: skip
#: The lab's clock where it follows the host's.
_PACED = ("-icount", "shift=0,sleep=on")
#: Begins the lab's own lines on its console.
_SAYS = "vmtailor-lab "
_MOST_LINE = 4000


@dataclass(frozen=True)
class LabConsole:
    """A lab's console, as far as it has come. `lost`: why it could not start the monitor; `said`: the monitor's own
    words; `status`: of the monitor, once it has ended; `lasted_ns`: from its exec to its end, on the lab's clock.
    `loads`: the lines of the client of loads, of each load that it has driven; `load`: those of the one under way."""

    starts: bool = False
    lost: str = ""
    said: tuple[str, ...] = ()
    status: int | None = None
    lasted_ns: int | None = None
    loads: tuple[tuple[str, ...], ...] = ()
    load: tuple[str, ...] = ()


def read_console(text: str) -> LabConsole:
    """Return what a lab's console says. Lines of others are left out."""
    found = LabConsole()
    for line in text.split("\n")[:-1]:  # what follows the last one is not whole yet
        if not line.startswith(_SAYS):
            continue
        word, _, more = line.removeprefix(_SAYS).rstrip("\r").partition(": ")
        more = plain(more[:_MOST_LINE])
        match word:
            case "starts":
                found = replace(found, starts=True)
            case "lost":
                found = replace(found, lost=found.lost or more or "no reason was said")
            case "said":
                found = replace(found, said=(*found.said[-199:], more))
            case "load":
                found = replace(found, load=(*found.load, more))
            case "load-end":
                found = replace(found, loads=(*found.loads, found.load), load=())
            case "clock":
                begun, _, ended = more.partition(" ")
                lasted = int(ended) - int(begun) if is_number(begun) and is_number(ended) else None
                found = replace(found, lasted_ns=lasted)
            case "ended":
                found = replace(found, status=int(more) if is_number(more) else None)
    return found


class LabMachine(RunningMachine):
    """A machine under way in the lab, from the start of its monitor."""

    def __init__(self, lab: RunningMachine, title: str, command: str, console: bytearray) -> None:
        assert lab.attendant is not None
        super().__init__(lab._process, Lines(lab.attendant), command, lab._errors)
        self.title = title
        self._lab, self._console = lab, console
        self._before_s = lab.cpu_s or 0.0

    @property
    def cpu_s(self) -> float | None:
        """Return the processor seconds that were used since the monitor started."""
        used = self._lab.cpu_s
        return None if used is None else used - self._before_s

    @property
    def lasted_ns(self) -> int | None:
        """Return how long the monitor lasted on the lab's clock, from its exec to its end."""
        return self.said.lasted_ns

    @property
    def said(self) -> LabConsole:
        """Return what the lab has said so far."""
        drain(self._lab.serial, self._console)
        return read_console(self._console.decode("utf-8", "replace"))

    def stderr(self) -> str:
        """Return the monitor's own words."""
        return "\n".join(self.said.said)

    def load(self, place: int, words: Sequence[str], most_s: float) -> bytes:
        """Wait for the lab to drive the load whose words its disk holds at this place."""
        deadline_s = self._lab.elapsed_s + most_s + _START_S
        while len(self.said.loads) <= place:
            if not self._lab.running or self._lab.left(deadline_s) <= 0:
                raise GuestError("the lab's client of loads did not come to its end", hint="give the load less to do")
            self._lab.serial.wait_readable(1.0)
        lines = self.said.loads[place]
        record = list(itertools.takewhile(bool, lines))  # a NUL has come as an end of a line
        return "\n".join([*record, ""]).encode() + b"\0" + "\0".join(lines[len(record) + 1 :]).encode()

    def _end(self, console: str | None) -> End:
        end = super()._end(console)
        said = self.said
        if said.lost or (said.status and not self.serial.heard):
            raise self.not_started(replace(end, stderr=said.lost or end.stderr))
        if end.returncode != 0:  # the lab's own end, or none yet
            return end
        return replace(end, returncode=said.status, ending=Ending.DIED if said.status else end.ending)


class LabMonitor(Monitor):
    """A monitor that is started in the lab. `program`: the user's own, in place of the lab's."""

    slowness = SLOWNESS
    confined = True

    def __init__(self, inner: Monitor, program: Path | None = None) -> None:
        clocks = (Clock.INSTRUCTIONS, Clock.WALL)
        gives = replace(
            inner.row.gives, clocks=clocks, accelerators=(Accelerator.TCG,), counting=True, second_port=False
        )
        super().__init__(MonitorRow(f"{LAB}{inner.name}", f"{inner.row.title} in the lab", "", gives))
        self._inner, self._program = inner, program

    def refusals(self, machine: Machine, wants: Wants = NOTHING_MORE) -> tuple[str, ...]:
        """Return what the monitor cannot give, and what the lab cannot."""
        more = []
        if not named(machine.architecture).emulator.lab_cpu:
            title = named(machine.architecture).title
            raise UserInputError(f"the lab is for processors whose KVM QEMU emulates, and not for {title}")
        if len(machine.disks) + (wants.exits is not None) > _MOST_DISKS:
            more.append(f"room for {len(machine.disks)} disks")
        if machine.outbound:
            more.append("way out to the world")
        wants = replace(wants, counter=None, exits=None)
        return tuple(dict.fromkeys((*self._inner.refusals(self._inside(machine), wants), *more)))

    def require(self, machine: Machine, wants: Wants = NOTHING_MORE) -> None:
        """Raise also HostError where there is no lab, and where the lab has no such monitor."""
        super().require(machine, wants)
        self._lab(machine.architecture)

    def _inside(self, machine: Machine) -> Machine:
        """Return the machine as the monitor starts it."""
        return replace(
            machine, accelerator=Accelerator.KVM, clock=Clock.WALL, cpu_model=HOST_CPU, ports=(),
            monitor=self._inner.name, extras=tuple(word for word in machine.extras if word != SMALL_PAGES),
        )  # fmt: skip

    def command(self, machine: Machine) -> list[str]:
        """Return the command that starts the machine in the lab."""
        return list(self._orders(machine).argv[1:])

    def _orders(self, machine: Machine) -> Orders:
        names = {path: f"{_FOLDER}/{name}" for name, path in machine.files.items()}
        names |= {disk.path: disk_name(number) for number, disk in enumerate(machine.disks)}
        place = StartPlace(_FOLDER, names, "tap0" if machine.network else "")
        orders = self._inner.orders(self._inside(machine), place)
        if self._program is not None:
            orders = replace(orders, argv=(f"{_FOLDER}/{_PROGRAM}", *orders.argv[1:]))
        orders = replace(orders, argv=(f"{_FOLDER}/{_BEGIN}", *orders.argv))
        _lines("argv", orders.argv)  # refused before the lab starts
        return orders

    @contextlib.contextmanager
    def run(self, machine: Machine, wants: Wants) -> Iterator[RunningMachine]:
        """Start the lab, and the machine in it; the block begins when the monitor does. Raises HostError where there is
        no lab, or it cannot start the monitor, with its words."""
        lab, folder = self._lab(machine.architecture)
        orders = self._orders(machine)
        with contextlib.ExitStack() as stack:
            scratch = stack.enter_context(temporary.held_folder())
            disk = scratch / "orders"
            build(None, disk, RootFormat.EXT4, entries(orders, machine, self._program, wants))
            outer = outer_machine(lab, folder, disk, machine, wants.exits)
            around = Wants(wants.counter, control=wants.control, attendant=True)
            running = stack.enter_context(monitors.of(outer).start(outer, around))
            console = bytearray()
            said = _until_started(running, console)
            if not said.starts:
                words = said.lost or console[-2000:].decode("utf-8", "replace").strip()
                raise NotStarted(
                    f"{self._inner.row.title} did not start in the lab",
                    hint=f"{lab_folder.make_command(lab.architecture)} builds it anew",
                    details=f"{plain(words)}\n{running.stderr()}".strip(),
                )  # fmt: skip
            yield LabMachine(running, self.row.title, " ".join(orders.argv[1:]), console)

    def _lab(self, architecture: str) -> tuple[Lab, Path]:
        lab, folder = lab_folder.load(architecture)
        if self._program is None and self._inner.name not in lab.monitors:
            raise HostError(
                f"the lab has no {self._inner.row.title}",
                hint=f"--program {self._inner.name}=PATH gives one; in the lab there are: {', '.join(lab.monitors)}",
            )
        return lab, folder

    def version(self, architecture: str) -> str:
        """Return the monitor's version, and the lab's kernel."""
        lab, _ = self._lab(architecture)
        own = lab.monitors.get(self._inner.name, "") if self._program is None else digest(self._program)[:12]
        return f"{own} in the lab, Linux {lab.kernel}"

    def identity(self, architecture: str, natives: Natives) -> tuple[str | Path, ...]:
        """Return the lab, and the program that the user gave."""
        lab, _ = self._lab(architecture)
        return (lab.digest, *((self._program,) if self._program is not None else ()))

    def require_counting(self, architecture: str) -> None:
        """Raise HostError where the lab's own monitor cannot count."""
        monitors.usual().require_counting(architecture)

    def counter(self, config: CountingConfig, natives: Natives, folder: Path) -> Counter:
        """Return what counts in the lab: the machine of the lab, and the guest of its hypervisor."""
        return monitors.usual().counter(config, natives, folder)

    def kvm(self) -> KvmVerdict:
        """Return that machines of this host's processor run under KVM, which a missing lab alone prevents."""
        try:
            self._lab(of_host().name)
        except HostError as error:
            return KvmVerdict(KvmState.ABSENT, error.message)
        return KvmVerdict(KvmState.WORKS)


def outer_machine(lab: Lab, folder: Path, orders: Path, machine: Machine, last: Path | None = None) -> Machine:
    """Return the lab's own machine for a machine in it, whose disks follow the lab's. `last`: a disk for what the lab
    itself writes."""
    # An instruction takes as long on the wall clock, where waits take the host's time. If the lab had to keep up with
    # that, a busy host would leave it nothing but timer interrupts.
    paced = () if machine.clock is Clock.INSTRUCTIONS else _PACED
    row = named(lab.architecture)
    if machine.architecture != lab.architecture:
        raise UserInputError(f"the lab is for {row.title}, and the machine for {named(machine.architecture).title}")
    return Machine(
        board=row.board_names[0], memory_bytes=LAB_BYTES + machine.memory_bytes, kernel=str(folder / KERNEL),
        initrd=str(folder / INITRD), words=(*_WORDS, f"console={row.kernel.console}", *row.kernel.words),
        disks=(
            Disk(str(folder / DISK), mode=DiskMode.READ_ONLY), Disk(str(orders)), *machine.disks,
            *([Disk(str(last), mode=DiskMode.WRITTEN)] if last is not None else []),
        ),
        network=machine.network, ports=machine.ports, cpu_model=row.emulator.lab_cpu, acpi=True,
        clock=machine.clock, architecture=row.name, extras=(*_options(row), *paced),
    )  # fmt: skip


def _options(row: Architecture) -> tuple[str, ...]:
    """Return the further words of QEMU's for the lab's board."""
    return ("-machine", ",".join(row.emulator.lab_options)) if row.emulator.lab_options else ()


def disk_name(number: int) -> str:
    """Return what the lab calls a disk, by its number among those that follow the lab's own and the orders."""
    return f"/dev/vd{chr(ord('c') + number)}"


def entries(orders: Orders, machine: Machine, program: Path | None, wants: Wants = NOTHING_MORE) -> list[Extra]:
    """Return what the disk with the orders holds: the monitor's words, the files that it reads, the kernel, the words
    of loads and their client. Exits are traced to the disk behind the machine's."""
    found = [_lines("argv", orders.argv)]
    found += [Extra(_BEGIN, data=guest_programs.of(machine.architecture).begin, mode=0o755)]
    if wants.exits is not None:
        lines = (disk_name(len(machine.disks)), *_EVENTS)
        found += [_lines(_TRACE, lines)]
    if wants.loads:
        found += [Extra(_CLIENT, data=guest_programs.of(machine.architecture).load_client.read_bytes(), mode=0o755)]
    found += [_lines(f"{_LOAD}{place}", load) for place, load in enumerate(wants.loads)]
    found += [Extra(name, data=data) for name, data in orders.files.items()]
    found += [Extra(name, data=Path(path)) for name, path in machine.files.items()]
    found += [Extra("network")] if machine.network else []
    found += [Extra(SMALL_PAGES)] if SMALL_PAGES in machine.extras else []
    found += [Extra(_PROGRAM, data=program, mode=0o755)] if program is not None else []
    return found


def _lines(name: str, words: Sequence[str]) -> Extra:
    """Return a file with a word a line. Raises UserInputError for a word that would be two."""
    if any("\n" in word for word in words):
        raise UserInputError("a word with a line feed cannot be given to a monitor or a client in the lab")
    return Extra(name, data="".join(f"{word}\n" for word in words).encode())


def drain(line: SerialLine, into: bytearray) -> None:
    """Take what a line has to read, without waiting; of more than a megabyte the end is kept."""
    with contextlib.suppress(BlockingIOError, OSError):
        while data := line.recv(65536):
            into += data
            del into[: -(1 << 20)]


def _until_started(running: RunningMachine, console: bytearray) -> LabConsole:
    """Read the lab's console until the monitor starts, or cannot."""
    while True:
        left, ended = running.left(_START_S), not running.running  # asked before its last words are read
        if running.serial.wait_readable(min(left, 1.0)):
            drain(running.serial, console)
        said = read_console(console.decode("utf-8", "replace"))
        if said.starts or said.lost or left <= 0 or ended:
            return said
