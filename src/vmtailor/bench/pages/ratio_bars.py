# SPDX-License-Identifier: Apache-2.0
"""A suite against native in one picture: a group of bars for each figure, a bar for each runtime, each from 1 to its
ratio, with its interval. The scale is logarithmic: half and twice as much are equally long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.bench.analysis.cells import Cell, baseline
from vmtailor.bench.analysis.figure_parts import is_part
from vmtailor.bench.analysis.heat_map import RANKED
from vmtailor.bench.analysis.phrases import title_of
from vmtailor.bench.model.results import CLOCK, SuiteName
from vmtailor.bench.pages.bench_charts import Scale
from vmtailor.bench.pages.overview import tip_of

#: The least ratio that the picture reaches on either side of 1.
LEAST = 1.25
#: The part of the picture's width for names and ratios, in percent.
_WORDS = 32.0


@dataclass(frozen=True)
class RatioBar:
    """One ratio. `begin`, `end`: of the bar, `low`, `high`: of its interval, in percent of the picture's width."""

    runtime: str
    number: int
    begin: float
    end: float
    low: float | None
    high: float | None
    text: str
    tip: str


@dataclass(frozen=True)
class RatioGroup:
    """One figure of one test. `failed`: runtimes without a bar, and why."""

    title: str
    better: str
    bars: tuple[RatioBar, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True)
class Ratios:
    """One picture. `one`: the place of a ratio of 1; `ticks`: places and words."""

    suite: str
    baseline: str
    one: float
    ticks: tuple[tuple[float, str], ...]
    groups: tuple[RatioGroup, ...]


def ratios(cells: Sequence[Cell], *, clock: bool = False) -> list[Ratios]:
    """Return a picture for each suite that has ratios. `clock`: of counts instead of times."""
    found = []
    for suite in SuiteName:
        mine = [
            cell
            for cell in cells
            if cell.key.suite == suite
            and (cell.key.variant == CLOCK) is clock
            and not is_part(cell)
            and (suite != SuiteName.ISOLATION or cell.key.figure == RANKED)
        ]
        if any(_ratio(cell) for cell in mine):
            found.append(_picture(suite, mine))
    return found


def _ratio(cell: Cell) -> float:
    return cell.against.ratio if cell.against is not None and cell.against.ratio > 0 else 0.0


def _picture(suite: str, cells: Sequence[Cell]) -> Ratios:
    told = [cell for cell in cells if _ratio(cell)]
    ends = [_ratio(cell) for cell in told]
    ends += [end for cell in told if cell.against for end in (cell.against.low, cell.against.high) if end]
    least, most = min(1 / LEAST, *ends), max(LEAST, *ends)
    place = Scale(least, most, logarithmic=True, left=_WORDS)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(cell.key.runtime for cell in cells))}
    rows: dict[tuple[str, str, str, int, str], list[Cell]] = {}
    for cell in cells:
        rows.setdefault(cell.key.row, []).append(cell)
    groups = []
    for (_, test, figure, count, variant), here in rows.items():
        failed = tuple(f"{c.key.runtime}: {c.failures[0].reason}" for c in here if c.failures and c.summary is None)
        bars = tuple(_bar(cell, numbers[cell.key.runtime], place) for cell in here if _ratio(cell))
        if bars or failed:
            better = "more is better" if here[0].larger_is_better else "less is better"
            groups.append(RatioGroup(f"{title_of(suite, test, count, variant)}: {figure}", better, bars, failed))
    marks = sorted({least, 1.0, most})
    ticks = tuple((place(value), _times(value)) for value in marks)
    return Ratios(suite=suite, baseline=baseline(told[0].key), one=place(1.0), ticks=ticks, groups=tuple(groups))


def _times(value: float) -> str:
    return "1" if value == 1 else f"{value:,.0f}×" if value >= 10 else f"{value:.2g}×"


def _bar(cell: Cell, number: int, place: Scale) -> RatioBar:
    assert cell.against is not None
    one, at = place(1.0), place(_ratio(cell))
    a = cell.against
    low, high = (None, None) if not a.low or not a.high else (place(a.low), place(a.high))
    return RatioBar(
        runtime=cell.key.runtime,
        number=number,
        begin=min(one, at),
        end=max(one, at),
        low=low,
        high=high,
        text=f"{a.times} {a.verdict}",
        tip=tip_of(cell),
    )
