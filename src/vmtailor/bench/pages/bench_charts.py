# SPDX-License-Identifier: Apache-2.0
"""Pictures of the benchmarks' page, to scale: one figure in every runtime."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.bench.analysis.cells import Cell, baseline
from vmtailor.bench.analysis.phrases import amount
from vmtailor.bench.pages.overview import NO_SUCH_STEP, doubts_of, tip_of

#: Positions of the smallest and the largest value, in percent of the picture's width.
_LEFT, _RIGHT = 2.0, 98.0


@dataclass(frozen=True)
class Bar:
    """One cell in a picture: places in percent. A logarithmic picture has no zero, so a bar is its interval and
    samples."""

    runtime: str
    at: float
    low: float
    high: float
    dots: tuple[float, ...]
    text: str
    tip: str


@dataclass(frozen=True)
class Group:
    """The cells of one figure. `native`: the place of the baseline's median."""

    figure: str
    better: str
    scale: str
    bars: tuple[Bar, ...]
    native: float | None
    rows: tuple[tuple[str, ...], ...]


def group(cells: Sequence[Cell]) -> Group | None:
    """Return the picture and the table of one figure; None where no cell has a value."""
    values = [value for cell in cells for value in cell.values]
    if not values:
        return None
    logarithmic = min(values) > 0 and max(values) / min(values) > 20
    place = Scale(min(values) if logarithmic else min(0.0, *values), max(values), logarithmic=logarithmic)
    bars, rows, native = [], [], None
    for cell in cells:
        name = cell.key.runtime
        if cell.summary is None:
            why = f"failed: {cell.failures[0].reason}" if cell.failures else NO_SUCH_STEP
            rows.append((name, "–", "", "", "0", why))
            continue
        s, a = cell.summary, cell.against
        median = amount(s.median, cell.unit)
        interval = f"{amount(s.low, cell.unit)} … {amount(s.high, cell.unit)}"
        bars.append(
            Bar(
                runtime=name,
                at=place(s.median),
                low=place(s.low),
                high=place(s.high),
                dots=tuple(place(value) for value in cell.values),
                text=median,
                tip=tip_of(cell),
            )
        )
        if name == baseline(cell.key):
            native = place(s.median)
        ratio = "" if a is None else a.words
        doubts = doubts_of(cell)
        verdict = "" if a is None else str(a.verdict)
        rows.append((name, median, interval, ratio, str(s.count), ", ".join([verdict, *doubts] if verdict else doubts)))
    return Group(
        figure=cells[0].key.figure,
        better="more is better" if cells[0].larger_is_better else "less is better",
        scale="logarithmic" if logarithmic else "from zero",
        bars=tuple(bars),
        native=native,
        rows=tuple(rows),
    )


class Scale:
    """Values → percent of a picture's width."""

    def __init__(self, least: float, most: float, *, logarithmic: bool, left: float = _LEFT) -> None:
        self._left = left
        self._log = logarithmic
        self._least = self._of(least)
        self._span = (self._of(most) - self._least) or 1.0

    def _of(self, value: float) -> float:
        return math.log10(value) if self._log else value

    def __call__(self, value: float) -> float:
        return self._left + (_RIGHT - self._left) * (self._of(value) - self._least) / self._span
