# SPDX-License-Identifier: Apache-2.0
"""Boots in a series: variants of a machine in turn, and changes tried on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from vmtailor.base.files.records import Older
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.workload import ReadySignal
from vmtailor.model.change import Change
from vmtailor.model.machine import Clock, Machine, with_machine

#: The record of a series, in its folder.
RECORD = "boots.json"


class JudgedBy(StrEnum):
    """The figures that trials are judged by."""

    READY = "ready"  # the time of the ready signal, on the clock of the series
    INSTRUCTIONS = "instructions"  # executed from kernel entry to init: exact, and of the kernel's part only
    CPU = "cpu"  # processor time that QEMU used up to then: a busy host sways it less, but it does not see waits


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
@dataclass(frozen=True)
class BootSeries:
    """All boots of one call, with every raw sample."""

    SCHEMA: ClassVar[str] = "vmtailor/boots/3"
    OLDER: ClassVar[Older] = {"vmtailor/boots/2": _renewed}

    version: str
    subject: str
    ready: ReadySignal
    timeout_s: float
    variants: tuple[Variant, ...]
    boots: tuple[SeriesBoot, ...]
    conditions: tuple[tuple[str, str], ...] = field(default=())
    trials: tuple[Change, ...] = ()
    judged_by: JudgedBy = JudgedBy.READY
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
        """Return the boots with words that mean nothing."""
        return tuple(boot for one in self.variants[1:] if not one.changes for boot in self.of(one.name))
