# SPDX-License-Identifier: Apache-2.0
"""The monitors on which a bundle's exercise was repeated, with the verdict of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from vmtailor.model.exercise import Proof
from vmtailor.model.machine import Clock


class MonitorPlace(StrEnum):
    """The places in which a monitor starts machines."""

    EMULATED = "emulated"  # on the host, without KVM
    KVM = "kvm"  # on the host, under KVM
    LAB = "lab"  # in the lab, under the lab's KVM


@dataclass(frozen=True)
class MonitorVerdict:
    """One verification on one monitor. `proof`: the worth of one that passed. `version`: of the monitor's program,
    empty for one that the user gave, which `program_sha256` names. `lab_kernel`: release of the lab's kernel, empty
    elsewhere. `failures`: faults, in sentences. `skipped`: programs of the exercise that were not run on the host."""

    monitor: str
    place: MonitorPlace
    clock: Clock
    proof: Proof
    version: str = ""
    program_sha256: str = ""
    lab_kernel: str = ""
    failures: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def key(self) -> tuple[int, str]:
        """Return its place among others, which it has for itself."""
        return list(MonitorPlace).index(self.place), self.monitor


# vmtailor/monitors/1: the first.
@dataclass(frozen=True)
class MonitorVerdicts:
    """The record of all verifications of one bundle. `record_sha256`: of the bundle's own record, which has the digest
    of each file and the machine; `kernel_sha256`, `root_sha256`: of the files that ran. For any other bundle the
    verdicts mean nothing. A place and a monitor have one verdict, the last."""

    SCHEMA: ClassVar[str] = "vmtailor/monitors/1"

    record_sha256: str
    kernel_sha256: str
    root_sha256: str
    verdicts: tuple[MonitorVerdict, ...]


def merged(before: Sequence[MonitorVerdict], now: Sequence[MonitorVerdict]) -> tuple[MonitorVerdict, ...]:
    """Return all verdicts in order, each of `now` in the place of an earlier one on the same monitor."""
    found = {one.key: one for one in (*before, *now)}
    return tuple(found[key] for key in sorted(found))
