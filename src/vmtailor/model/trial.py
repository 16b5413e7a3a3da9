# SPDX-License-Identifier: Apache-2.0
"""A trial: one set of changes that was applied and run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vmtailor.model.change import Change


class Purpose(StrEnum):
    """What a trial was for."""

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
