# SPDX-License-Identifier: Apache-2.0
"""Saved series of `boot` and runs of `fit` as sides of a comparison: milestones on the wall clock, exact instruction
counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vmtailor.analysis.compare.saved_boots import files_of
from vmtailor.analysis.timeline.analyze import analyze
from vmtailor.base.files import plain_files, records
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.series import RECORD as SERIES
from vmtailor.model.boots.series import BootSeries
from vmtailor.model.boots.timeline import Timeline
from vmtailor.model.bundle import RUN
from vmtailor.model.fit import FitRun
from vmtailor.model.machine import Clock

#: kind, name, unit → the samples.
Samples = dict[tuple[str, str, str], list[float]]


@dataclass
class Saved:
    """What a record holds for a comparison. `clocks`: of the machine, by which its times were told; "" where none
    are."""

    timelines: list[Timeline] = field(default_factory=list)
    samples: Samples = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    version: str = ""
    left_out: list[str] = field(default_factory=list)
    clocks: str = ""


def find(path: Path) -> Path | None:
    """The record at a path: the file itself, or the one in the folder."""
    if path.is_dir():
        return next((path / name for name in (SERIES, RUN) if plain_files.has(path, name)), None)
    return path if path.name in (SERIES, RUN) else None


def load(record: Path) -> Saved:
    """Read a record. Raises UserInputError when it is damaged or of another version."""
    if record.name == SERIES:
        return _series(records.load(BootSeries, record), record.parent)
    return _run(records.load(FitRun, record))


def _series(series: BootSeries, folder: Path) -> Saved:
    """The boots of the machine as it was given; boots that never got ready have no place in a comparison of times."""
    machine = series.variants[0].machine
    counted = machine.clock is Clock.INSTRUCTIONS
    saved = Saved(clocks=f"{machine.clock} clock, {machine.accelerator}")
    for one in series.entries("base") or series.boots:
        if one.boot.outcome is not Outcome.READY:
            continue
        for mark in one.boot.milestones:
            # On the instruction clock, the host's time is that of counting.
            if counted and mark.virtual_ns is not None:
                saved.samples.setdefault(("milestone", f"{mark.name}, virtual", "µs"), []).append(mark.virtual_ns / 1e3)
            if not counted and mark.wall_s is not None:
                saved.samples.setdefault(("milestone", mark.name, "µs"), []).append(mark.wall_s * 1e6)
            if mark.executed is not None:
                saved.samples.setdefault(("milestone", mark.name, "instructions"), []).append(float(mark.executed))
        if files := files_of(folder, one.folder):
            saved.timelines.append(analyze(files))
    return saved


def _run(run: FitRun) -> Saved:
    config = {symbol.id: symbol.value for symbol in run.plan.symbols}
    saved = Saved(config=config, version=run.plan.kernel_version)
    for name, value in _figures(run):
        unit = (
            "bytes"
            if "bytes" in name
            else ("µs" if name.endswith("_us") else "instructions" if "instructions" in name else "")
        )
        saved.samples["figure", name, unit] = [value]
    for name, instructions in run.tailored.initcalls:
        saved.samples.setdefault(("initcall", name, "instructions"), []).append(float(instructions))
    return saved


def _figures(run: FitRun) -> Iterator[tuple[str, float]]:
    for entry in dataclasses.fields(run.tailored):
        value = getattr(run.tailored, entry.name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and entry.name != "boots":
            yield entry.name, float(value)
