# SPDX-License-Identifier: Apache-2.0
"""One start of a machine, with its milestones on one clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from vmtailor.base.files.portable import FileWords
from vmtailor.model.boots.exits import MonitorCost
from vmtailor.model.boots.load_result import LoadResult
from vmtailor.model.machine import Clock


class Phase(StrEnum):
    """The stretches of a boot, in their order. Each begins at the mark of the same name."""

    FIRMWARE = "firmware"  # reset → kernel entered (decompression included, where there is one)
    KERNEL = "kernel"  # kernel entered → first instruction of our PID 1 on the real root
    INIT = "init"  # PID 1 → entry point executed
    START_UP = "start-up"  # entry point executed → ready
    SETTLE = "settle"  # ready → the guest is at rest, and its load begins
    LOAD = "load"
    STOP = "stop"


class Outcome(StrEnum):
    """The ways in which a boot ends."""

    READY = "ready"  # it got ready, and all that was asked of it is right
    PANIC = "panic"  # the kernel gave up
    STOPPED = "stopped"  # the machine ended by itself before it was ready
    TIMEOUT = "timeout"  # never ready within the time given
    WRONG = "wrong"  # ready, but something else that was asked for is not right


@dataclass(frozen=True)
class Milestone:
    """A moment of a boot. `executed`: instructions since reset. `virtual_ns`: on the guest's own clock; on the
    instruction clock, that is executed plus waited, exact. `wall_s`: host time since QEMU was started. `source`: the
    line or signal that told."""

    name: str
    executed: int | None = None
    virtual_ns: int | None = None
    wall_s: float | None = None
    source: str = ""

    def seconds(self, clock: Clock) -> float | None:
        """Return host seconds since the monitor was started, or virtual time on the instruction clock."""
        if clock is Clock.WALL:
            return self.wall_s
        return None if self.virtual_ns is None else self.virtual_ns / 1e9


@dataclass(frozen=True)
class PhaseCounts:
    """Exact counts of one phase. `client_*` is what the exercise's own client cost, kept apart. `guest`: what the guest
    of a hypervisor within the machine executed, `entries`: how often it was entered; None where not counted apart."""

    phase: Phase
    kernel: int
    user: int
    client_kernel: int = 0
    client_user: int = 0
    port_accesses: int | None = None
    mmio_accesses: int | None = None
    guest: int | None = None
    entries: int | None = None


@dataclass(frozen=True)
class FunctionCost:
    """Instructions executed in one function itself (not in what it called), by phase. `port_accesses`: its accesses to
    ports, a repeated string instruction as one."""

    function: str
    phase: Phase
    instructions: int
    port_accesses: int = 0


@dataclass(frozen=True)
class ContainerRun:
    """The container's run. `answers_right` is the exercise's word (None: nothing was asked); `requests`: answers that
    were judged. `loads`: the results of steps that are loads, in the order in which they ended."""

    exit_code: int | None = None
    answers_right: bool | None = None
    requests: int = 0
    stdout: str = ""
    stderr: str = ""
    loads: tuple[LoadResult, ...] = ()


# vmtailor/boot/1: of a container only; what a system with its own init gave was another record.
# vmtailor/boot/2: one record for both, with `outcome`; what the container did is in `container`. Results of loads came
# later.
@dataclass(frozen=True)
class Boot:
    """The record of one boot; a field that does not apply is empty or None. `seconds`: of host time. `failures`: what
    is wrong, in sentences. `container`: where our init started one. `cpu_s`: processor time that QEMU used on the host
    up to ready, which a busy host sways less. `instructions`: executed from kernel entry to init, where they were
    counted. `failed_units`: those that systemd calls failed after an exercise. `monitor`: the cost of the
    monitor in the lab, where milestones are since its exec."""

    SCHEMA: ClassVar[str] = "vmtailor/boot/2"

    outcome: Outcome
    milestones: tuple[Milestone, ...]
    seconds: float
    command: FileWords = ""
    failures: tuple[str, ...] = ()
    phases: tuple[PhaseCounts, ...] = ()
    functions: tuple[FunctionCost, ...] = ()
    instructions: int | None = None
    cpu_s: float | None = None
    container: ContainerRun | None = None
    console: str = ""
    kernel_warnings: tuple[str, ...] = ()
    failed_units: tuple[str, ...] = ()
    monitor: MonitorCost | None = None

    @property
    def problem(self) -> str:
        """Return what went wrong, for a person."""
        return "; ".join(self.failures)

    def milestone(self, name: str) -> Milestone | None:
        return next((m for m in self.milestones if m.name == name), None)

    def at(self, name: str, clock: Clock = Clock.WALL) -> float | None:
        """Return seconds at a milestone: host time since QEMU was started, or virtual time on the instruction clock."""
        found = self.milestone(name)
        return None if found is None else found.seconds(clock)
