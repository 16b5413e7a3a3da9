# SPDX-License-Identifier: Apache-2.0
"""A trial: one set of changes that was applied and run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from vmtailor.base.files.records import Older
from vmtailor.model.change import Change
from vmtailor.model.syscalls import Absence, FailedCall


class Purpose(StrEnum):
    """The purposes of a trial."""

    FIRST = "first build"
    REPAIR = "repair"
    UNNEEDED = "unneeded?"
    ALONE = "alone"
    TOGETHER = "together"


@dataclass(frozen=True)
class Trial:
    """`changes` are those that the trial before it did not have (`back`: no longer has), with the effects measured and
    a verdict each. `failures` is empty where it passed. `build_seconds` is what applying them took, `verify_seconds`
    what running took."""

    number: int
    purpose: Purpose
    changes: tuple[Change, ...]
    passed: bool
    failures: tuple[str, ...]
    build_seconds: float
    verify_seconds: float


# vmtailor/verification/1: without `skipped`.
# vmtailor/verification/2: `skipped`: a bundle's own host commands are not run unasked.
# vmtailor/verification/3: `absent`.
# vmtailor/verification/4: `varying`.
# vmtailor/verification/5: `races`.
@dataclass(frozen=True)
class Verification:
    """The verdict of a verification. `failures`: faults, in sentences. `degraded`: calls that newly fail. `needs`:
    symbols that init itself asked for. `evidence`: the last words of the guest that failed. `skipped`: programs of the
    exercise that were not run on the host, so the verdict does not cover them. `absent`: things that are harmlessly
    missing (data/harmless). `varying`: lines of the output that two runs on the baseline print otherwise, so that they
    are not compared; `*` stands for what varies. `races`: messages that other timing did not repeat."""

    SCHEMA: ClassVar[str] = "vmtailor/verification/5"
    OLDER: ClassVar[Older] = {"vmtailor/verification/3": dict, "vmtailor/verification/4": dict}

    failures: tuple[str, ...]
    degraded: tuple[FailedCall, ...] = ()
    needs: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    evidence: str = ""
    skipped: tuple[str, ...] = ()
    absent: tuple[Absence, ...] = ()
    varying: tuple[str, ...] = ()
    races: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.failures
