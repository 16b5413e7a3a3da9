# SPDX-License-Identifier: Apache-2.0
"""A machine with an init of its own, as `boot` starts it, and what its boots gave."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from vmtailor.model.change import Change
from vmtailor.model.machine import Accelerator, Clock, MachineKind


class DiskFormat(StrEnum):
    RAW = "raw"
    QCOW2 = "qcow2"


@dataclass(frozen=True)
class VmDisk:
    """A disk image. It is never written: QEMU keeps what the guest writes in a temporary overlay."""

    path: str
    format: DiskFormat = DiskFormat.RAW


@dataclass(frozen=True)
class Vm:
    """Everything QEMU is told. Without a `kernel` the disk's own loader starts. `forwards` are guest TCP ports that
    get a free
    loopback port on the host. `options` are further QEMU arguments; `probe` adds a second serial port for the
    collector."""

    SCHEMA: ClassVar[str] = "vmtailor/vm/1"

    kind: MachineKind = MachineKind.Q35
    memory_bytes: int = 2 << 30
    cpus: int = 1
    kernel: str | None = None
    initrd: str | None = None
    append: tuple[str, ...] = ()
    disks: tuple[VmDisk, ...] = ()
    network: bool = True
    forwards: tuple[int, ...] = ()
    entropy: bool = True
    machine_options: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    cpu_model: str = "max"
    accelerator: Accelerator = Accelerator.TCG
    clock: Clock = Clock.WALL
    probe: bool = False
    collector: bool = False


class ReadyBy(StrEnum):
    """How the host learns that the guest is ready."""

    LOG = "log"  # a line of the console matches
    LOGIN = "login"  # a login prompt
    SYSTEMD = "systemd"  # systemd's "Startup finished"
    TCP = "tcp"  # a port accepts
    SSH = "ssh"  # an SSH banner
    HTTP = "http"  # a good answer
    EVENT = "event"  # a QEMU event
    EXERCISE = "exercise"  # what a bundle's own exercise says; not to be chosen


@dataclass(frozen=True)
class ReadySignal:
    """One ready signal. `pattern` for log; `port` for tcp, ssh, http; `path` for http; `event` for event."""

    by: ReadyBy
    pattern: str = ""
    port: int = 0
    path: str = "/"
    event: str = ""

    def __str__(self) -> str:
        tail = {ReadyBy.LOG: self.pattern, ReadyBy.TCP: str(self.port), ReadyBy.SSH: str(self.port), ReadyBy.EVENT:
        self.event,
                ReadyBy.HTTP: f"{self.port}{self.path}"}.get(self.by, "")  # fmt: skip
        return f"{self.by}:{tail}" if tail else str(self.by)


class JudgedBy(StrEnum):
    """What trials are judged by."""

    READY = "ready"  # the time of the ready signal, on the clock of the series
    INSTRUCTIONS = "instructions"  # executed from kernel entry to init: exact, and of the kernel's part only
    CPU = "cpu"  # processor time that QEMU used up to then: a busy host sways it less, but it does not see waits


class Outcome(StrEnum):
    """How a boot ended."""

    READY = "ready"
    PANIC = "panic"  # the kernel gave up
    STOPPED = "stopped"  # the machine ended by itself before it was ready
    TIMEOUT = "timeout"  # never ready within the time given
    WRONG = "wrong"  # ready, but the exercise failed


@dataclass(frozen=True)
class VmMilestone:
    """A moment of a boot. `wall_s`: host time since QEMU was started. `guest_s`: the guest's own clock, where its
    line had a
    stamp; on the instruction clock that is virtual time, exact. `executed`: instructions, where they were counted.
    `source` is the line or signal."""

    name: str
    wall_s: float | None = None
    guest_s: float | None = None
    executed: int | None = None
    source: str = ""


@dataclass(frozen=True)
class VmBoot:
    """One boot. Files are relative to the record's folder; `problem` says what went wrong, for a person."""

    number: int
    variant: str
    outcome: Outcome
    milestones: tuple[VmMilestone, ...]
    seconds: float
    folder: str
    problem: str = ""
    cpu_s: float | None = None  # processor time that QEMU used on the host up to ready: less swayed by a busy host
    instructions: int | None = None  # executed from kernel entry to init, where they were counted
    kernel_warnings: tuple[str, ...] = ()

    def milestone(self, name: str) -> VmMilestone | None:
        return next((m for m in self.milestones if m.name == name), None)

    def at(self, name: str, clock: Clock = Clock.WALL) -> float | None:
        """Seconds at a milestone: host time since QEMU was started, or virtual time on the instruction clock."""
        found = self.milestone(name)
        if found is None:
            return None
        return found.wall_s if clock is Clock.WALL else found.guest_s


@dataclass(frozen=True)
class Variant:
    """A machine as it was booted: `base`, or with changes of the catalogue applied (`changes` are their ids)."""

    name: str
    vm: Vm
    command: str
    changes: tuple[str, ...] = ()


# vmtailor/boots/1: trials as records of their own kind, with savings.
# vmtailor/boots/2: `trials` are changes, with effects.
@dataclass(frozen=True)
class BootSeries:
    """All boots of one call, with every raw sample. `trials`: the changes that were tried, each with a verdict."""

    SCHEMA: ClassVar[str] = "vmtailor/boots/2"

    version: str
    subject: str
    ready: ReadySignal
    timeout_s: float
    variants: tuple[Variant, ...]
    boots: tuple[VmBoot, ...]
    conditions: tuple[tuple[str, str], ...] = field(default=())
    trials: tuple[Change, ...] = ()
    judged_by: JudgedBy = JudgedBy.READY
    interaction: float | None = None  # what the changes together save beyond the sum of each alone

    @property
    def clock(self) -> Clock:
        return self.variants[0].vm.clock

    def of(self, variant: str) -> tuple[VmBoot, ...]:
        return tuple(b for b in self.boots if b.variant == variant)
