# SPDX-License-Identifier: Apache-2.0
"""Comparisons: boots side by side, and one image on several processors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import msgspec

from vmtailor.model.boots.timeline import PhaseSpan, Warn


class RowVerdict(StrEnum):
    """The verdict on an item. `moved`: as long as before, but elsewhere in the order, or no longer in the way. `below
    threshold`: whatever the difference is, it is too small to be of interest; where it can be told from none, the row's
    direction says which way. `same`: no difference at all. `in some boots`: a side has it in some of its boots only."""

    GONE = "gone"
    NEW = "new"
    FASTER = "faster"
    SLOWER = "slower"
    MOVED = "moved"
    BELOW = "below threshold"
    SAME = "same"
    PARTLY = "in some boots"
    UNDECIDED = "undecided"


class RowMode(msgspec.Struct, frozen=True):
    """One of two groups that the boots of a side fall into: its median, and how many boots."""

    median: float
    boots: int


class Row(msgspec.Struct, frozen=True):
    """One phase, item or figure. Medians, in `unit`; `low` and `high` bound the
    difference (95 %), None where a side is a single boot. `direction` says which way an undecided one leans. `boots`
    counts in how many boots of each side it was, `of` how many there are. `before_modes` and `after_modes` are given
    where the boots of a side fall into two groups: then its median is of neither."""

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
    of: tuple[int, int] = (1, 1)
    before_modes: tuple[RowMode, ...] = ()
    after_modes: tuple[RowMode, ...] = ()


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
    """A difference below either threshold, a share of the median before or an amount, is of no interest.

    History of the format: /1 first; /2: figures are named without a unit, which `unit` says; /3: thresholds, modes, how
    many boots there are in all; `below threshold` and `in some boots`."""

    SCHEMA: ClassVar[str] = "vmtailor/comparison/3"

    before: ComparedSide
    after: ComparedSide
    phases: tuple[Row, ...]
    items: tuple[Row, ...]
    config: tuple[ConfigChange, ...]
    warnings: tuple[Warn, ...]
    threshold_share: float = 0.05
    threshold_us: float = 1000.0


@dataclass(frozen=True)
class Platform:
    """One bundle: what it is called, its processor, machine and kernel."""

    name: str
    architecture: str
    machine: str
    kernel_version: str
    verified: bool


@dataclass(frozen=True)
class PlatformFigure:
    """A figure of each platform's tailored machine, in their order; None where it could not be taken. `unit`:
    instructions, bytes, or empty for a number of things."""

    name: str
    unit: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class PlatformSymbol:
    """A symbol that some of the kernels have and others have not. `has`: for each platform, its value or None. `why`:
    its reason where it is, for a symbol that somebody chose."""

    symbol: str
    has: tuple[str | None, ...]
    why: str


@dataclass(frozen=True)
class ProcessorsCompared:
    """Bundles of several processors. `shared`: symbols that all of their kernels have. `differing`: those that only
    some have."""

    SCHEMA: ClassVar[str] = "vmtailor/processors-compared/1"

    platforms: tuple[Platform, ...]
    figures: tuple[PlatformFigure, ...]
    shared: int
    differing: tuple[PlatformSymbol, ...]
