# SPDX-License-Identifier: Apache-2.0
"""Starts within one machine, of engines and of monitors, each as one row: what the whole machine executed for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from vmtailor.bench.analysis.boot_counts import WITHIN
from vmtailor.bench.analysis.cells import Cell
from vmtailor.bench.model.results import CLOCK, SuiteName

TITLE = "One more start within the machine, by all that was executed for it (M instructions)"
HEADER = ("runtime", "executed", "host's kernel", "host's programs", "guest", "exits", "virtual ms")
_START = (SuiteName.STARTUP, "boot", 1, CLOCK)


@dataclass(frozen=True)
class StartWithin:
    """One start, in instructions, by medians. `guest`, `exits`: of the machine that a monitor started; None where
    nothing is a machine. `seconds`: of virtual time."""

    runtime: str
    kernel: float
    user: float
    guest: float | None
    exits: float | None
    seconds: float

    @property
    def executed(self) -> float:
        """Return all that was executed."""
        return self.kernel + self.user + (self.guest or 0.0)

    @property
    def row(self) -> tuple[str, ...]:
        """Return the cells of the table's row."""
        millions = (self.executed, self.kernel, self.user, self.guest)
        shown = ("" if value is None else f"{value / 1e6:,.1f}" for value in millions)
        exits = "" if self.exits is None else f"{self.exits:,.0f}"
        return self.runtime, *shown, exits, f"{1e3 * self.seconds:,.1f}"


def starts_within(cells: Iterable[Cell]) -> list[StartWithin]:
    """Return the starts that have all their figures, the cheapest first."""
    known: dict[str, dict[str, float]] = defaultdict(dict)
    for cell in cells:
        what, _, where = cell.key.figure.partition(" to ")
        if cell.key.of_test == _START and f"to {where}" == WITHIN.name and "/" in cell.key.runtime and cell.summary:
            known[cell.key.runtime][what] = cell.summary.median
    found = [
        StartWithin(
            runtime=runtime, kernel=values["kernel"], user=values["user"], guest=values.get("guest"),
            exits=values.get("exits"), seconds=values["virtual time"],
        )
        for runtime, values in known.items()
        if {"kernel", "user", "virtual time"} <= values.keys()
    ]  # fmt: skip
    return sorted(found, key=lambda one: one.executed)
