# SPDX-License-Identifier: Apache-2.0
"""Two boots, or two sets of repeated boots, side by side."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec

from vmtailor.model.boots.timeline import PhaseSpan, Warn


class RowVerdict(StrEnum):
    """What became of an item. `moved`: as long as before, but elsewhere in the order, or no longer in the way."""

    GONE = "gone"
    NEW = "new"
    FASTER = "faster"
    SLOWER = "slower"
    MOVED = "moved"
    SAME = "same"
    UNDECIDED = "undecided"


class Row(msgspec.Struct, frozen=True):
    """One phase, item or figure. Medians, in `unit`; `low` and `high` bound the
    difference (95 %), None where a side is a single boot. `direction` says which way an undecided one leans. `boots`
    counts in how many boots of each side it was."""

    kind: str
    name: str
    occurrence: int
    before: float | None
    after: float | None
    change: float | None
    low: float | None
    high: float | None
    p: float | None
    verdict: str
    direction: str = ""
    moved: bool = False
    boots: tuple[int, int] = (1, 1)
    before_path: str = ""
    after_path: str = ""
    unit: str = "µs"


class ConfigChange(msgspec.Struct, frozen=True):
    """A symbol that differs; None: not set."""

    symbol: str
    before: str | None
    after: str | None


class ComparedSide(msgspec.Struct, frozen=True):
    """One side: its name, how many boots, its kernel, and the phases of its first boot."""

    name: str
    boots: int
    version: str | None
    command_line: str | None
    phases: tuple[PhaseSpan, ...] = ()


class Comparison(msgspec.Struct, frozen=True):
    """History of the format: /1 first; /2: figures are named without a unit, which `unit` says."""

    SCHEMA: ClassVar[str] = "vmtailor/comparison/2"

    before: ComparedSide
    after: ComparedSide
    phases: tuple[Row, ...]
    items: tuple[Row, ...]
    config: tuple[ConfigChange, ...]
    warnings: tuple[Warn, ...]
