# SPDX-License-Identifier: Apache-2.0
"""An order to a worker, and its answer. Both are small: files never pass the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.model.fit_part import FitPart

#: Longest answer, in bytes; longest end of a log in it, in characters.
MOST_BYTES, MOST_LOG = 10_000, 3000


class RunOutcome(StrEnum):
    """The ways in which a run of a task ends."""

    DONE = "done"
    FAILED = "failed"  # with an error that another run would repeat
    HOST = "host"  # with an error of that host: another one may do it
    DIED = "died"  # it was killed, or its worker was
    LATE = "late"  # it took longer than it may
    NEVER = "never"  # it did not begin, or was called off


class Job(StrEnum):
    """The kinds of work of a fleet."""

    FIT = "fit"
    VERIFY = "verify"


# vmtailor/fleet-order/1: first.
@dataclass(frozen=True)
class Order:
    """An order. `entry`: the image, and how it is fitted. `out`: absolute path of its bundle, which `seal` writes and
    `verify` reads; empty where the fit is left in the cache. `command`: as the bundle's record has it. `limit_s`: the
    longest that it may take. `boots`: of each side, where that is asked for."""

    SCHEMA: ClassVar[str] = "vmtailor/fleet-order/1"

    job: Job
    part: FitPart
    entry: FleetEntry
    out: str = ""
    command: str = ""
    limit_s: float | None = None
    boots: int | None = None


# vmtailor/fleet-answer/1: first.
@dataclass(frozen=True)
class TaskAnswer:
    """The end of a run. `keys`: part → content key, of later parts. `spare`: later parts that need not be done.
    `verified`: whether the container works in its machine, once that is known. `figures`: name → number, after `seal`.
    `fit_key`: the name of the fit in the cache, where it was left there. `says`, `hint`: the error, or the first
    failures. `log`: the end of its log. `seconds`: of the host's clock and of processor time."""

    SCHEMA: ClassVar[str] = "vmtailor/fleet-answer/1"

    outcome: RunOutcome
    keys: tuple[tuple[FitPart, str], ...] = ()
    spare: tuple[FitPart, ...] = ()
    verified: bool | None = None
    figures: tuple[tuple[str, int], ...] = ()
    says: str = ""
    hint: str = ""
    log: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    fit_key: str = ""
