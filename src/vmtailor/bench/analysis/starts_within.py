# SPDX-License-Identifier: Apache-2.0
"""Starts within one machine, of engines and of monitors, each as one row: what the whole machine executed for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vmtailor.bench.analysis.boot_counts import TO_PROGRAM, WITHIN
from vmtailor.bench.analysis.cells import Cell
from vmtailor.bench.model.results import CLOCK, SuiteName

TITLE = "One more start within the machine, by all that was executed for it (M instructions)"
HEADER = ("runtime", "executed", "to its program", "host's kernel", "host's programs", "guest", "exits", "virtual ms")
_START = (SuiteName.STARTUP, "boot", 1, CLOCK)


@dataclass(frozen=True)
class StartWithin:
    """One start to its end, in instructions, by medians. `guest`, `exits`: of the machine that a monitor started;
    `program`: all that was executed until its program was; None for an engine. `seconds`: of virtual time."""

    runtime: str
    kernel: float
    user: float
    guest: float | None
    exits: float | None
    program: float | None
    seconds: float

    @property
    def executed(self) -> float:
        """Return all that was executed."""
        return self.kernel + self.user + (self.guest or 0.0)

    @property
    def row(self) -> tuple[str, ...]:
        """Return the cells of the table's row."""
        millions = (self.executed, self.program, self.kernel, self.user, self.guest)
        shown = ("" if value is None else f"{value / 1e6:,.1f}" for value in millions)
        exits = "" if self.exits is None else f"{self.exits:,.0f}"
        return self.runtime, *shown, exits, f"{1e3 * self.seconds:,.1f}"


def starts_within(cells: Iterable[Cell]) -> list[StartWithin]:
    """Return the starts that have all their figures, the cheapest first."""
    known: dict[str, dict[str, float]] = defaultdict(dict)
    for cell in cells:
        if cell.key.of_test == _START and "/" in cell.key.runtime and cell.summary:
            known[cell.key.runtime][cell.key.figure] = cell.summary.median
    found = filter(None, (_start(runtime, values) for runtime, values in known.items()))
    return sorted(found, key=lambda one: one.executed)


def _start(runtime: str, values: Mapping[str, float]) -> StartWithin | None:
    """Return one start by its figures; None where one is missing."""
    whole = {what: values.get(f"{what} {WITHIN.name}") for what in ("kernel", "user", "guest", "exits", "virtual time")}
    before = [values.get(f"{what} {TO_PROGRAM}") for what in ("kernel", "user", "guest")]
    kernel, user, seconds = whole["kernel"], whole["user"], whole["virtual time"]
    if kernel is None or user is None or seconds is None:
        return None
    known = [value for value in before if value is not None]
    return StartWithin(
        runtime=runtime, kernel=kernel, user=user, guest=whole["guest"], exits=whole["exits"],
        program=sum(known) if len(known) == len(before) else None, seconds=seconds,
    )  # fmt: skip
