# SPDX-License-Identifier: Apache-2.0
"""Curves of the benchmarks' page, to scale: figures over the number of instances, and the distribution of starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtailor.bench.analysis.cells import Cell
from vmtailor.bench.analysis.figure_parts import is_part
from vmtailor.bench.analysis.phrases import amount, instances, title_of
from vmtailor.bench.model.results import CLOCK, SuiteName
from vmtailor.bench.pages.bench_charts import Scale
from vmtailor.bench.pages.overview import tip_of

#: Fewer samples than these have no distribution to show.
LEAST = 3


@dataclass(frozen=True)
class Curve:
    """One runtime's line, as points of a polygon in a box of 100 by 100. `dots`: each with its words; `failed`: places
    without a value, with the reason."""

    runtime: str
    number: int
    points: str
    dots: tuple[tuple[float, float, str], ...]
    failed: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Curves:
    """One figure of one test. `scale`: its kind, or the largest value; `marks`: places and words along the lower
    edge."""

    suite: str
    title: str
    scale: str
    marks: tuple[tuple[float, str], ...]
    lines: tuple[Curve, ...]


def curves(cells: Sequence[Cell]) -> list[Curves]:
    """Return figures over the number of instances, where there are at least two numbers. What failed is a point, too,
    at the lower edge, with its reason."""
    found = []
    known: dict[tuple[str, str, str, str], dict[str, dict[int, Cell]]] = {}
    for cell in cells:
        if (cell.summary is not None or cell.failures) and not is_part(cell):
            key = (cell.key.suite, cell.key.test, cell.key.figure, cell.key.variant)
            known.setdefault(key, {}).setdefault(cell.key.runtime, {})[cell.key.count] = cell
    for (suite, test, figure, variant), runtimes in known.items():
        counts = sorted({count for by_count in runtimes.values() for count in by_count})
        medians = [c.summary.median for by in runtimes.values() for c in by.values() if c.summary is not None]
        if len(counts) < 2 or not medians:
            continue
        top, unit = max(medians), next(iter(next(iter(runtimes.values())).values())).unit
        across = {count: 100 * place / (len(counts) - 1) for place, count in enumerate(counts)}
        found.append(
            Curves(
                suite=suite,
                title=f"{title_of(suite, test, 1, variant)}: {figure}",
                scale=amount(top, unit),
                marks=tuple((across[count], str(count)) for count in counts),
                lines=tuple(_curve(name, n, by, across, top) for n, (name, by) in enumerate(runtimes.items())),
            )
        )
    return found


def _curve(name: str, number: int, by_count: Mapping[int, Cell], across: Mapping[int, float], top: float) -> Curve:
    dots = tuple(
        (
            across[count],
            100 - 100 * max(0.0, cell.summary.median) / top if top > 0 else 100.0,
            f"{count} instances\n{tip_of(cell)}",
        )
        for count, cell in sorted(by_count.items())
        if cell.summary is not None
    )
    failed = tuple(
        (across[count], f"{name}, {instances(count)}: {cell.failures[0].reason}")
        for count, cell in sorted(by_count.items())
        if cell.summary is None and cell.failures
    )
    return Curve(
        runtime=name, number=number, points=" ".join(f"{x:.2f},{y:.2f}" for x, y, _ in dots), dots=dots, failed=failed
    )


def distributions(cells: Sequence[Cell]) -> list[Curves]:
    """Return the distribution of each figure of a start: the share of samples that took at most so long, on the wall
    clock. A median hides two modes and a tail; this does not."""
    figures: dict[tuple[str, str, str, int, str], list[Cell]] = {}
    for cell in cells:
        if cell.key.suite == SuiteName.STARTUP and cell.key.variant != CLOCK and len(cell.values) >= LEAST:
            figures.setdefault(cell.key.row, []).append(cell)
    return [_distribution(row, here) for row, here in figures.items()]


def _distribution(row: tuple[str, str, str, int, str], cells: Sequence[Cell]) -> Curves:
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
        lines.append(Curve(cell.key.runtime, number, " ".join(points), tuple(dots)))
    ends = (least, math.sqrt(least * most), most) if logarithmic else (0.0, most / 2, most)
    return Curves(
        suite=suite,
        title=f"{title_of(suite, test, count, variant)}: {figure}",
        scale="logarithmic" if logarithmic else "from zero",
        marks=tuple((place(value), amount(value, cells[0].unit)) for value in ends),
        lines=tuple(lines),
    )
