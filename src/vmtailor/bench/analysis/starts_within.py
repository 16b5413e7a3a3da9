# SPDX-License-Identifier: Apache-2.0
"""Starts within one machine, of engines and of monitors, each as one row: what the whole machine executed for it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vmtailor.bench.analysis.boot_counts import TO_PROGRAM, WITHIN
from vmtailor.bench.analysis.cells import Cell
from vmtailor.bench.model.results import CLOCK, SuiteName

TITLE = "One more start in the machine, in millions of instructions"
HEADER = (
    "runtime", "total", "spread", "host kernel", "host programs", "guest", "to the program", "VM exits", "virtual ms",
)  # fmt: skip
#: Lines below the table.
NOTE = (
    "host: the machine of --inside, which is emulated. guest: the machine that a monitor starts in it. total: both, "
    "from the start command to its end. spread: how far the boots of a row differ. to the program: the part of the "
    "total before the container's program is executed, which engines do not report. virtual ms: instructions at a "
    "fixed rate, not the time of a processor."
)
_START = (SuiteName.STARTUP, "boot", 1, CLOCK)


@dataclass(frozen=True)
class StartWithin:
    """One start to its end, in instructions, by medians. `guest`, `exits`: of the machine that a monitor started;
    `program`: all that was executed until its program was; None for an engine. `seconds`: of virtual time. `spread`:
    the difference between the dearest and the cheapest boot, as a share of the total; None for a single boot."""

    runtime: str
    kernel: float
    user: float
    guest: float | None
    exits: float | None
    program: float | None
    seconds: float
    spread: float | None

    @property
    def executed(self) -> float:
        """Return all that was executed."""
        return self.kernel + self.user + (self.guest or 0.0)

    @property
    def row(self) -> tuple[str, ...]:
        """Return the cells of the table's row."""
        exits = "" if self.exits is None else f"{self.exits:,.0f}"
        millions = map(_millions, (self.kernel, self.user, self.guest, self.program))
        total = (_millions(self.executed), _percent(self.spread))
        return self.runtime, *total, *millions, exits, f"{1e3 * self.seconds:,.1f}"


def starts_within(cells: Iterable[Cell]) -> list[StartWithin]:
    """Return the starts that have all their figures, the cheapest first."""
    known: dict[str, dict[str, Cell]] = defaultdict(dict)
    for cell in cells:
        if cell.key.of_test == _START and "/" in cell.key.runtime and cell.summary:
            known[cell.key.runtime][cell.key.figure] = cell
    found = filter(None, (_start(runtime, figures) for runtime, figures in known.items()))
    return sorted(found, key=lambda one: one.executed)


def _millions(value: float | None) -> str:
    return "" if value is None else f"{value / 1e6:,.1f}"


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    return "0 %" if share == 0 else "< 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"


def _start(runtime: str, figures: Mapping[str, Cell]) -> StartWithin | None:
    """Return one start by its figures; None where one is missing."""
    values = {name: cell.summary.median for name, cell in figures.items() if cell.summary}
    whole = {what: values.get(f"{what} {WITHIN.name}") for what in ("kernel", "user", "guest", "exits", "virtual time")}
    before = [values.get(f"{what} {TO_PROGRAM}") for what in ("kernel", "user", "guest")]
    kernel, user, seconds = whole["kernel"], whole["user"], whole["virtual time"]
    if kernel is None or user is None or seconds is None:
        return None
    known = [value for value in before if value is not None]
    return StartWithin(
        runtime=runtime, kernel=kernel, user=user, guest=whole["guest"], exits=whole["exits"],
        program=sum(known) if len(known) == len(before) else None, seconds=seconds, spread=_spread(figures),
    )  # fmt: skip


def _spread(figures: Mapping[str, Cell]) -> float | None:
    """Return how far the totals of the boots differ, as a share of their median; None for a single boot."""
    parts = [
        figures[name].values for what in ("kernel", "user", "guest") if (name := f"{what} {WITHIN.name}") in figures
    ]
    totals = [sum(boot) for boot in zip(*parts, strict=False)]
    return (max(totals) - min(totals)) / statistics.median(totals) if len(totals) > 1 and min(totals) > 0 else None
