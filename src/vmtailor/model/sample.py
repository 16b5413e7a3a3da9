# SPDX-License-Identifier: Apache-2.0
"""Samples and verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Sample:
    """One number. `what` is measured in `unit` (instructions, ns, bytes, accesses, s) under `conditions`."""

    what: str
    value: float
    unit: str
    conditions: tuple[tuple[str, str], ...] = ()
