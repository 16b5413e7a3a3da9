# SPDX-License-Identifier: Apache-2.0
"""A machine watched over time: its figures, those of its containers, and those that its host has, on one clock."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from vmtailor.base.files import toml_files
from vmtailor.model.machine import Clock

#: Name of the record in its folder.
RECORD = "watch.json"
#: Samples of a record, series of it, and values of all of them, that are kept at the most.
MOST_SAMPLES, MOST_SERIES, MOST_VALUES = 3600, 8192, 4_000_000
#: Milliseconds between two samples, where nobody says otherwise; at the least and at the most.
EVERY_MS, LEAST_MS, MOST_MS = 1000, 10, 3_600_000


class WatchedKind(StrEnum):
    """The kinds of things that have figures."""

    MACHINE = "machine"
    PROCESSOR = "processor"
    DISK = "disk"
    INTERFACE = "interface"
    CONTAINER = "container"
    HOST = "host"  # the machine's process, as its host sees it
    HOST_DISK = "host-disk"  # a disk, as the monitor counts


class FigureUnit(StrEnum):
    """The units of figures, all of them whole numbers."""

    COUNT = ""
    BYTES = "bytes"
    MICROSECONDS = "microseconds"
    THOUSANDTHS = "thousandths"


@dataclass(frozen=True)
class WatchFigure:
    """One figure (data/watched). `word`: begins its line in the sampler's text; `grows`: it counts up from the start of
    what it belongs to. `metric`, `label`: its names in OpenMetrics text, a label as NAME=VALUE."""

    word: str
    of: WatchedKind
    name: str
    metric: str
    help: str
    unit: FigureUnit = FigureUnit.COUNT
    grows: bool = False
    label: str = ""


@dataclass(frozen=True)
class _Rows:
    figures: tuple[WatchFigure, ...] = toml_files.table("figure", WatchFigure)


@functools.cache
def figures() -> dict[str, tuple[WatchFigure, ...]]:
    """Return the figures by the word of their line, in the order of the line."""
    found: dict[str, tuple[WatchFigure, ...]] = {}
    for row in toml_files.load(_Rows, "watched").figures:
        found[row.word] = (*found.get(row.word, ()), row)
    return found


@functools.cache
def figure(of: WatchedKind, name: str) -> WatchFigure:
    """Return the figure of a kind by its name. Raises KeyError."""
    return {(row.of, row.name): row for rows in figures().values() for row in rows}[of, name]


@dataclass(frozen=True)
class WatchSeries:
    """One figure over time: a value for each sample of the record, None where it was not told. `name`: of the disk, the
    interface, the processor or the container; empty for the machine and its host."""

    of: WatchedKind
    name: str
    figure: str
    values: tuple[int | None, ...]


@dataclass(frozen=True)
class WatchedContainer:
    """A container that was seen. `id`: the first twelve digits of its identifier; `engine`: as its control group names
    it; `command`: the name of its first process."""

    id: str
    engine: str
    command: str


@dataclass(frozen=True)
class WatchMark:
    """A moment of what the machine was asked to do: a milestone, or the begin of a step, in words."""

    name: str
    at_ns: int
    title: str = ""


@dataclass(frozen=True)
class MachineWatch:
    """The figures of a watched machine. `clock`: instructions, where a machine's time is exact and no host's, or wall.
    `times_ns`: of each sample on the machine's own clock, from its kernel's start; `real_ns`: since 1970, as the
    machine says. `thinned`: one of so many samples was kept. `notes`: what could not be told, in sentences."""

    SCHEMA: ClassVar[str] = "vmtailor/watch/1"

    version: str
    subject: str
    clock: Clock
    every_ms: int
    times_ns: tuple[int, ...]
    real_ns: tuple[int, ...]
    series: tuple[WatchSeries, ...]
    containers: tuple[WatchedContainer, ...] = ()
    marks: tuple[WatchMark, ...] = ()
    thinned: int = 1
    notes: tuple[str, ...] = ()

    def of(self, kind: WatchedKind) -> tuple[WatchSeries, ...]:
        """Return the series of one kind."""
        return tuple(one for one in self.series if one.of is kind)

    def find(self, kind: WatchedKind, figure: str, name: str = "") -> WatchSeries | None:
        """Return one series, or None."""
        return next((s for s in self.series if (s.of, s.figure, s.name) == (kind, figure, name)), None)
