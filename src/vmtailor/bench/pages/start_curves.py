# SPDX-License-Identifier: Apache-2.0
"""The distribution of starts: of each figure of a start, the share of samples that took at most so long, a line a
runtime. A median hides two modes and a tail; this does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.bench.analysis.cells import Cell
from vmtailor.bench.analysis.phrases import amount, title_of
from vmtailor.bench.model.results import CLOCK, SuiteName
from vmtailor.bench.pages.bench_charts import Scale

#: Fewer samples than these have no distribution to show.
LEAST = 3


@dataclass(frozen=True)
class StartSteps:
    """One runtime's samples: `points` of its line in a box of 100 by 100, `dots` with their words."""

    runtime: str
    number: int
    points: str
    dots: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class StartDistribution:
    """One figure of one test. `ticks`: places and words along the lower edge."""

    suite: str
    title: str
    scale: str
    ticks: tuple[tuple[float, str], ...]
    lines: tuple[StartSteps, ...]


def distributions(cells: Sequence[Cell]) -> list[StartDistribution]:
    """Return those of a run's starts, on the wall clock."""
    figures: dict[tuple[str, str, str, int, str], list[Cell]] = {}
    for cell in cells:
        if cell.key.suite == SuiteName.STARTUP and cell.key.variant != CLOCK and len(cell.values) >= LEAST:
            figures.setdefault(cell.key.row, []).append(cell)
    return [_of(row, here) for row, here in figures.items()]


def _of(row: tuple[str, str, str, int, str], cells: Sequence[Cell]) -> StartDistribution:
    suite, test, figure, count, variant = row
    values = [value for cell in cells for value in cell.values]
    least, most = min(values), max(values)
    logarithmic = least > 0 and most / least > 20
    place = Scale(least if logarithmic else 0.0, most, logarithmic=logarithmic)
    lines = []
    for number, cell in enumerate(cells):
        ordered = sorted(cell.values)
        dots, points, before = [], [], 100.0
        for rank, value in enumerate(ordered, 1):
            x, y = place(value), 100 - 100 * rank / len(ordered)
            points += [f"{x:.2f},{before:.2f}", f"{x:.2f},{y:.2f}"]
            dots.append((x, y, f"{cell.key.runtime}: {rank} of {len(ordered)} within {amount(value, cell.unit)}"))
            before = y
        lines.append(StartSteps(cell.key.runtime, number, " ".join(points), tuple(dots)))
    ends = (least, math.sqrt(least * most), most) if logarithmic else (0.0, most / 2, most)
    ticks = tuple((place(value), amount(value, cells[0].unit)) for value in ends)
    title = f"{title_of(suite, test, count, variant)}: {figure}"
    return StartDistribution(
        suite=suite, title=title, scale="logarithmic" if logarithmic else "from zero", ticks=ticks, lines=tuple(lines)
    )
