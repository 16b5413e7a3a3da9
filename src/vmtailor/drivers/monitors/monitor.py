# SPDX-License-Identifier: Apache-2.0
"""The protocol of a monitor: a program that starts machines. Each has a folder of its own, and a row of data."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.base.natives import Natives
from vmtailor.drivers.monitors.running_machine import RunningMachine, not_started
from vmtailor.drivers.monitors.supervised_start import SupervisedStart
from vmtailor.model.architecture import Bus, named
from vmtailor.model.boots.counters import Counters, CountingConfig
from vmtailor.model.boots.ending import End
from vmtailor.model.checks import Check
from vmtailor.model.guest_mounts import Share
from vmtailor.model.kernel_needs import KernelNeed
from vmtailor.model.machine import HOST_CPU, MOST_CPU, Accelerator, Clock, DiskFormat, DiskMode, Machine, TalkLine

KVM_DEVICE = Path("/dev/kvm")


class KvmState(StrEnum):
    WORKS = "works"
    ABSENT = "absent"  # no device
    FORBIDDEN = "forbidden"  # the device cannot be opened
    HANGS = "hangs"  # the guest did not come to its end in time
    FAILS = "fails"  # the guest or its monitor ended wrongly


@dataclass(frozen=True)
class KvmTrial:
    """A small guest that tries KVM. `arguments`: of the monitor, for the file `guest` in the folder where it is
    started; `says`: the line that it prints where KVM works."""

    arguments: tuple[str, ...]
    guest: Path
    says: str


@dataclass(frozen=True)
class KvmVerdict:
    """`reason` is a sentence for a person, empty when it works; `said`: by guest and monitor; `seconds` it took."""

    state: KvmState
    reason: str = ""
    said: str = ""
    seconds: float = 0.0

    @property
    def works(self) -> bool:
        """Return whether machines run under KVM."""
        return self.state is KvmState.WORKS


@dataclass(frozen=True)
class Gives:
    """The things that machines of a monitor can have. `architectures`: by name; empty for all that are known.
    `most_cpus`: 0 where the monitor sets no limit.

    `loader`: a disk's own loader can start, so there is firmware; `firmware`: another one can be chosen. `acpi`: with
    tables of firmware. `models`: CPU models besides this host's own and all there is. `outbound`: a network that leads
    to the world. `protocols`: of ports that can be published. `second_port`: a second serial port. `virtio_line`: a
    port of a virtio console, on which our init talks. `extras`: further words of the monitor's own. `counting`:
    instructions can be counted. `shares`: folders of the host."""

    buses: tuple[Bus, ...]
    accelerators: tuple[Accelerator, ...]
    clocks: tuple[Clock, ...]
    disk_formats: tuple[DiskFormat, ...]
    disk_modes: tuple[DiskMode, ...]
    architectures: tuple[str, ...] = ()
    most_cpus: int = 0
    loader: bool = False
    firmware: bool = False
    initrd: bool = False
    acpi: bool = False
    models: bool = False
    network: bool = False
    outbound: bool = False
    protocols: tuple[str, ...] = ()
    entropy: bool = False
    second_port: bool = False
    virtio_line: bool = False
    extras: bool = False
    counting: bool = False
    shares: bool = False


@dataclass(frozen=True)
class MonitorRow:
    """One row of data/monitors. `title` is for people; `driver`: MODULE:CLASS of the Monitor. `tool`: rows as
    data/tools.toml has them, of what it needs besides those. `console`: what kernels call its serial line, where
    that is not the processor's usual one. `need`: what kernels need for it beyond the usual board's."""

    name: str
    title: str
    driver: str
    gives: Gives
    tool: tuple[dict[str, Any], ...] = ()
    console: str = ""
    need: tuple[KernelNeed, ...] = ()


class Counter(Protocol):
    """A counter of instructions in one boot."""

    def counted(self) -> tuple[bytes, Counters | None]:
        """Return the file that was left once the machine has ended, and what it says; nothing where there is none."""


@dataclass(frozen=True)
class Wants:
    """The wishes of a machine's starter, which the guest does not see. `counter`: counts its instructions. `control`:
    the machine can be asked while it runs. `probe`: a second serial port for what the guest says; `attendant`: one for
    a conversation, in its place. `exits`: a file of zeros, long enough, that takes what KVM's trace tells of exits.
    `shares`: of the host's files. `loads`: the words of each load that is driven from the machine's host."""

    counter: Counter | None = None
    exits: Path | None = None
    control: bool = False
    probe: bool = False
    attendant: bool = False
    shares: tuple[Share, ...] = ()
    loads: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class StartPlace:
    """The place in which a monitor runs, as the monitor sees it. `folder`: holds the files of its orders; `names`: the
    path of a kernel or disk here → its name there; `tap`: the TAP device that is the machine's network."""

    folder: str
    names: Mapping[str, str] = field(default_factory=dict)
    tap: str = ""

    def name(self, path: str) -> str:
        """Return the name of a file there."""
        return self.names.get(path, path)


@dataclass(frozen=True)
class Orders:
    """The command that starts a machine in a place, its serial line on standard input and output, and the files that
    it reads: name in the place's folder → content."""

    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)


#: A starter that wants nothing more than the machine.
NOTHING_MORE = Wants()


class Monitor(ABC):
    """A program that starts machines. What none but QEMU has says so here; a monitor overrides what it has."""

    #: How many times as long as in QEMU on this host a machine may take.
    slowness = 1.0
    #: Rights and files of this host are taken away from the program before it starts a machine.
    confined = False

    def __init__(self, row: MonitorRow) -> None:
        self.row = row

    @property
    def name(self) -> str:
        """Return its name, as machines have it."""
        return self.row.name

    # --- what it can give

    def refusals(self, machine: Machine, wants: Wants = NOTHING_MORE) -> tuple[str, ...]:
        """Return what this monitor cannot give a machine, each as a few words; nothing is started for it."""
        return tuple(_lacking(self.row.gives, machine, wants))

    def require(self, machine: Machine, wants: Wants = NOTHING_MORE) -> None:
        """Raise UserInputError with all that this monitor cannot give a machine."""
        if refused := self.refusals(machine, wants):
            raise UserInputError(
                f"{self.row.title} cannot start this machine: it has no {', no '.join(refused)}",
                hint="choose another monitor, or leave the option out",
            )

    def require_cpu(self, architecture: str, board: str, model: str) -> None:
        """Raise UserInputError for a CPU model that cannot be had in an emulated machine."""
        if not self.row.gives.models and model not in (HOST_CPU, MOST_CPU):
            raise UserInputError(f"{self.row.title} has no CPU '{model[:64]}'", hint="leave --cpu-model out")

    # --- what it makes of a machine

    @abstractmethod
    def command(self, machine: Machine) -> list[str]:
        """Return the command that starts a machine, for people and records. Raises UserInputError for what cannot be
        had together."""

    def orders(self, machine: Machine, place: StartPlace) -> Orders:
        """Return the command and the files by which a machine starts in another place, under KVM. Raises UserInputError
        for what this monitor cannot give."""
        raise UserInputError(f"{self.row.title} is started on this host only")

    @abstractmethod
    def run(self, machine: Machine, wants: Wants) -> AbstractContextManager[RunningMachine]:
        """Start a machine that is not refused; all of it is gone when the block is left. Raises UserInputError when a
        file is not there, HostError when the monitor does not start."""

    @contextlib.contextmanager
    def start(self, machine: Machine, wants: Wants = NOTHING_MORE) -> Iterator[RunningMachine]:
        """Start a machine, as `run` does, or raise UserInputError with what this monitor cannot give."""
        self.require(machine, wants)
        with self.run(machine, wants) as running:
            yield running

    def supervised(self, machine: Machine, shares: tuple[Share, ...] = ()) -> SupervisedStart:
        """Return the start of a machine by a supervisor, which makes the disk `RUN_VOLUME`. `shares`: of the host's
        files. Raises UserInputError for what this monitor cannot give."""
        raise UserInputError(f"{self.row.title} does not run a container by itself", hint="vmtailor boot starts it")

    def not_started(self, end: End) -> HostError:
        """Return the error of a monitor that ended before it had started its machine."""
        return not_started(self.row.title, end)

    # --- what it is

    @abstractmethod
    def version(self, architecture: str) -> str:
        """Return the version of the program, as conditions of figures have it. Raises HostError when there is none."""

    @abstractmethod
    def identity(self, architecture: str, natives: Natives) -> tuple[str | Path, ...]:
        """Return all of the monitor that figures depend on: texts, and files by their content."""

    def checks(self) -> tuple[Check, ...]:
        """Return what `doctor` says of it on this host, besides its programs."""
        return ()

    # --- accelerators

    @abstractmethod
    def kvm(self) -> KvmVerdict:
        """Return whether its machines run under KVM on this host, tried with a small guest and a deadline."""

    def kvm_trial(self, architecture: str) -> KvmTrial | None:
        """Return a trial for scripts that start this monitor elsewhere; None where no guest is made for a processor."""
        return None

    def best_accelerator(self, architecture: str, store: Store | None = None) -> Accelerator:
        """Return KVM where a guest of this host's own architecture really runs under it, or else emulation.

        That KVM works is remembered until the host restarts. That it does not is asked each time: a user joins a
        group, a busy host is late."""
        if not named(architecture).is_host or not KVM_DEVICE.exists():
            return Accelerator.TCG
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        known, state = f"{self.name}-{boot}", ""
        # If the cache cannot be used, this is asked each time.
        with contextlib.suppress(OSError, HostError):
            state = ((store or Store()).root / "kvm" / known).read_text()
        if state != KvmState.WORKS:
            state = self.kvm().state.value
            if state == KvmState.WORKS:
                with contextlib.suppress(OSError, HostError):
                    write_atomic((store or Store()).folder("kvm") / known, state.encode(), private=True)
        return Accelerator.KVM if state == KvmState.WORKS else Accelerator.TCG

    # --- counting

    def require_counting(self, architecture: str) -> None:
        """Raise HostError where this monitor, as it is installed, cannot count instructions."""
        raise self._cannot_count()

    def counts(self, architecture: str) -> bool:
        """Return whether this monitor, as it is installed, can count instructions."""
        if not self.row.gives.counting:
            return False
        try:
            self.require_counting(architecture)
        except HostError:
            return False
        return True

    def counter(self, config: CountingConfig, natives: Natives, folder: Path) -> Counter:
        """Return what counts in one boot, its files in a folder. Raises HostError where nothing can be counted."""
        raise self._cannot_count()

    def _cannot_count(self) -> HostError:
        return HostError(f"{self.row.title} cannot count instructions", hint="use the wall clock, or QEMU")


def _lacking(gives: Gives, machine: Machine, wants: Wants) -> Iterator[str]:
    hardware = machine.hardware
    if gives.architectures and machine.architecture not in gives.architectures:
        yield f"machines for {named(machine.architecture).title}"
    if hardware.bus not in gives.buses:
        yield f"{machine.board}, whose devices are on {hardware.bus}"
    if machine.accelerator not in gives.accelerators:
        yield f"accelerator {machine.accelerator}"
    if machine.clock not in gives.clocks:
        yield f"clock of {machine.clock}"
    if 0 < gives.most_cpus < machine.cpus:
        yield f"{machine.cpus} CPUs"
    if not gives.models and machine.cpu_model not in (HOST_CPU, MOST_CPU):
        yield f"CPU '{machine.cpu_model[:64]}'"
    for disk in machine.disks:
        if disk.format not in gives.disk_formats:
            yield f"disk in {disk.format}"
        if disk.mode not in gives.disk_modes:
            yield f"{disk.mode} disk"
    for port in machine.ports:
        if port.protocol not in gives.protocols:
            yield f"published {port.protocol} port"
    asked = {
        "firmware that starts a disk's own loader": (machine.kernel is None, gives.loader),
        "choice of firmware": (machine.firmware is not None, gives.firmware),
        "initial RAM disk": (machine.initrd is not None, gives.initrd),
        "ACPI": (machine.acpi, gives.acpi),
        "network": (machine.network, gives.network),
        "way out to the world": (machine.outbound, gives.outbound),
        "source of entropy": (machine.entropy, gives.entropy),
        "words of its own": (bool(machine.extras), gives.extras),
        "second serial port": (wants.probe or wants.attendant, gives.second_port and hardware.second_port),
        "virtio line": (machine.line is TalkLine.VIRTIO, gives.virtio_line),
        "second serial port beside a virtio line": (
            (wants.probe or wants.attendant) and machine.line is TalkLine.VIRTIO,
            False,
        ),
        "counter of instructions": (wants.counter is not None, gives.counting),
        "folders of the host": (bool(wants.shares), gives.shares),
        "trace of exits": (wants.exits is not None, False),
    }
    yield from (what for what, (wanted, given) in asked.items() if wanted and not given)
