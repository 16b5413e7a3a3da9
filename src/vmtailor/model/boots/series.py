# SPDX-License-Identifier: Apache-2.0
"""Boots in a series: variants of a machine in turn, and changes tried on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.records import Older
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.workload import ReadySignal
from vmtailor.model.change import Change
from vmtailor.model.machine import Clock, Machine, with_machine

#: The record of a series, in its folder.
RECORD = "boots.json"


class Under(StrEnum):
    """The parts of a run that changes are tried under."""

    BOOT = "boot"  # from the start to ready
    LOAD = "load"  # the requests of the exercise
    BOTH = "both"  # better under one, and not worse under the other


class JudgedBy(StrEnum):
    """The figures that trials are judged by."""

    READY = "ready"  # the time of the ready signal, on the clock of the series
    INSTRUCTIONS = "instructions"  # executed from kernel entry to init: exact, and of the kernel's part only
    CPU = "cpu"  # processor time that QEMU used up to then: a busy host sways it less, but it does not see waits
    REQUEST_KERNEL = "request-kernel"  # instructions of the kernel for a request of the exercise's load: exact
    REQUEST = "request"  # those of the kernel and of the container's programs
    P50 = "p50"  # latencies of the load at a rate, in virtual time: half of all answers took no longer
    P90 = "p90"
    P99 = "p99"
    P999 = "p99.9"

    @property
    def of_load(self) -> bool:
        """Return whether the figure is of the load."""
        return self in (JudgedBy.REQUEST_KERNEL, JudgedBy.REQUEST) or self.percentile is not None

    @property
    def percentile(self) -> float | None:
        """Return the share of answers that took no longer than the figure; None for a figure that is no latency."""
        return float(self[1:]) / 100 if self[0] == "p" else None


def judging(under: Under | None, by: JudgedBy | None) -> tuple[JudgedBy, ...]:
    """Return the figures that changes are judged by, from the user's choices (None: not given). Raises UserInputError
    for a figure of the boot under load, and the reverse."""
    if under is None:
        under = Under.LOAD if by is not None and by.of_load else Under.BOOT
    if under is Under.BOTH:
        if by is None or not by.of_load:
            return (by or JudgedBy.READY, JudgedBy.REQUEST_KERNEL)
        return (JudgedBy.READY, by)
    found = by or (JudgedBy.REQUEST_KERNEL if under is Under.LOAD else JudgedBy.READY)
    if found.of_load is not (under is Under.LOAD):
        fitting = ", ".join(one for one in JudgedBy if one.of_load is not found.of_load)
        raise UserInputError(f"--judge {found} does not go with --under {under}", hint=f"--judge {fitting}, or both")
    return (found,)


@dataclass(frozen=True)
class Variant:
    """A machine as it was booted: `base`, a control (base with a word that means nothing), or with changes of the
    catalogue applied (`changes` are their ids)."""

    name: str
    machine: Machine
    command: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SeriesBoot:
    """One boot of a series. `folder`, relative to the record's, has what it said."""

    variant: str
    number: int
    folder: str
    boot: Boot


def _renewed(old: dict[str, Any]) -> dict[str, Any]:
    variants = old.get("variants")
    if not isinstance(variants, list):
        return old
    return {**old, "variants": [with_machine(one) if isinstance(one, dict) else one for one in variants]}


# vmtailor/boots/1: a variant's machine (`vm`) and its boots were records of their own.
# vmtailor/boots/2: variants have the one `machine`, and each entry of `boots` the one `boot`.
#     Their machines were vmtailor/machine/2.
# vmtailor/boots/3: without `also`.
@dataclass(frozen=True)
class BootSeries:
    """All boots of one call, with every raw sample. `also`: a second figure that the trials were judged by."""

    SCHEMA: ClassVar[str] = "vmtailor/boots/4"
    OLDER: ClassVar[Older] = {"vmtailor/boots/2": _renewed, "vmtailor/boots/3": dict}

    version: str
    subject: str
    ready: ReadySignal
    timeout_s: float
    variants: tuple[Variant, ...]
    boots: tuple[SeriesBoot, ...]
    conditions: tuple[tuple[str, str], ...] = field(default=())
    trials: tuple[Change, ...] = ()
    judged_by: JudgedBy = JudgedBy.READY
    also: JudgedBy | None = None
    interaction: float | None = None  # what the changes together save beyond the sum of each alone

    @property
    def clock(self) -> Clock:
        return self.variants[0].machine.clock

    def entries(self, variant: str) -> tuple[SeriesBoot, ...]:
        """Return the boots of one variant, in order, each with its number and folder."""
        return tuple(one for one in self.boots if one.variant == variant)

    def of(self, variant: str) -> tuple[Boot, ...]:
        """Return the boots of one variant, in order."""
        return tuple(one.boot for one in self.entries(variant))

    @property
    def controls(self) -> tuple[Boot, ...]:
        """Return the boots of the first machine with words that mean nothing."""
        alike = [one for one in self.variants[1:] if not one.changes and self._is_first_but_for_words(one)]
        return tuple(boot for one in alike for boot in self.of(one.name))

    def _is_first_but_for_words(self, one: Variant) -> bool:
        return replace(one.machine, words=self.variants[0].machine.words) == self.variants[0].machine
