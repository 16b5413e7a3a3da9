# SPDX-License-Identifier: Apache-2.0
"""Boots in a series: variants of a machine in turn, and changes tried on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from vmtailor.model.machine import Clock, Machine
from vmtailor.model.sample import Verdict
from vmtailor.model.workload import ReadySignal


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
    machine: Machine
    command: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrialResult:
    """One change (or all that helped, together) tried. Figures are of what the series is judged by: seconds, or
    instructions. `saving` is negative where it got slower, `low` and `high` are its 95 % interval. `wall_saving_s` and
    `cpu_saving_s`: of host time and of QEMU's processor time up to ready.

    `predicted` was read, before it was tried, from what `predicted_from` names. `problem`: why it could not be tried,
    or what no longer worked."""

    id: str
    advice: str
    does: str
    predicted: float | None
    predicted_from: str
    saving: float | None
    low: float | None
    high: float | None
    wall_saving_s: float | None
    cpu_saving_s: float | None
    verdict: Verdict
    problem: str = ""


# vmtailor/boots/1: a variant's machine was a record of another kind, `vm`.
# vmtailor/boots/2: variants have the one `machine`.
@dataclass(frozen=True)
class BootSeries:
    """All boots of one call, with every raw sample."""

    SCHEMA: ClassVar[str] = "vmtailor/boots/2"

    version: str
    subject: str
    ready: ReadySignal
    timeout_s: float
    variants: tuple[Variant, ...]
    boots: tuple[VmBoot, ...]
    conditions: tuple[tuple[str, str], ...] = field(default=())
    trials: tuple[TrialResult, ...] = ()
    judged_by: JudgedBy = JudgedBy.READY
    interaction: float | None = None  # what the changes together save beyond the sum of each alone

    @property
    def clock(self) -> Clock:
        return self.variants[0].machine.clock

    def of(self, variant: str) -> tuple[VmBoot, ...]:
        return tuple(b for b in self.boots if b.variant == variant)
