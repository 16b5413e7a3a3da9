# SPDX-License-Identifier: Apache-2.0
"""Results of benchmarks as one page that opens offline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from vmtailor.analysis.bench.cells import Cell, cells_of
from vmtailor.analysis.bench.isolation import heat_maps, tip
from vmtailor.analysis.bench.unixbench import index_tables
from vmtailor.analysis.bench.unixbench_words import index_rows, index_title
from vmtailor.analysis.bench.wording import amount, isolation_row, title_of
from vmtailor.base import pages
from vmtailor.model.bench.results import BenchResults, HostRun

#: Where the smallest and the largest value stand, in percent of the picture's width.
_LEFT, _RIGHT = 2.0, 98.0


@dataclass(frozen=True)
class Bar:
    """One cell in a picture: places in percent; `log` pictures have no zero, so a bar is its interval and samples."""

    runtime: str
    at: float
    low: float
    high: float
    dots: tuple[float, ...]
    text: str
    tip: str


@dataclass(frozen=True)
class Group:
    """The cells of one figure, and where native's median stands."""

    figure: str
    better: str
    scale: str
    bars: tuple[Bar, ...]
    native: float | None
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Curve:
    """One runtime over the number of instances, as points of a polygon in a box of 100 by 100."""

    runtime: str
    number: int
    points: str
    last: tuple[float, float]


@dataclass(frozen=True)
class Curves:
    """A figure over N. `top`: its largest value in words."""

    title: str
    counts: tuple[tuple[float, int], ...]
    top: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Test:
    """One test: its groups, what failed (cell, reason, evidence), and the command of each runtime."""

    id: str
    title: str
    groups: tuple[Group, ...]
    failed: tuple[tuple[str, int, str, str], ...]
    commands: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class IndexPart:
    """One table of UnixBench indices."""

    title: str
    runtimes: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class HeatPart:
    """One heat map: a row a stress, a cell (words, tip, shade) a runtime."""

    variant: str
    runtimes: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str, int], ...]], ...]


@dataclass(frozen=True)
class Section:
    """One host's run."""

    run: HostRun
    isolation: tuple[tuple[str, ...], ...]
    tests: tuple[Test, ...]
    curves: tuple[Curves, ...]
    indices: tuple[IndexPart, ...] = ()
    heat: tuple[HeatPart, ...] = ()


def bench_page(results: BenchResults) -> str:
    """The page. The results themselves are in it, in the element `#data`."""
    sections = [_section(number, run) for number, run in enumerate(results.runs)]
    return pages.render(
        "bench.html", data={"bench": results}, styles=["bench.css"], values={"sections": sections, "results": results}
    )


def _section(number: int, run: HostRun) -> Section:
    order = {one.runtime: place for place, one in enumerate(run.identities)}
    found = sorted(cells_of(run), key=lambda cell: order.get(cell.key.runtime, len(order)))
    by_test = sorted(found, key=lambda cell: (cell.key.suite, cell.key.test, cell.key.count, cell.key.variant))
    tests = [
        _test(f"t{number}-{place}", key, list(cells))
        for place, (key, cells) in enumerate(groupby(by_test, key=_test_key))
    ]
    facts = dict(run.options)
    indices = [
        IndexPart(index_title(t, facts), t.runtimes, tuple(index_rows(t))) for t in index_tables(found, list(order))
    ]
    rows = tuple(isolation_row(one) for one in run.identities)
    return Section(run, rows, tuple(tests), tuple(curves(found)), tuple(indices), tuple(_heat(run)))


def _heat(run: HostRun) -> list[HeatPart]:
    return [
        HeatPart(
            one.variant,
            one.runtimes,
            tuple(
                (
                    stress,
                    tuple(
                        ("–", "not measured", 0) if cell is None else (cell.words, tip(stress, name, cell), cell.shade)
                        for name, cell in zip(one.runtimes, cells, strict=True)
                    ),
                )
                for stress, cells in one.rows
            ),
        )
        for one in heat_maps(run)
    ]


def _test_key(cell: Cell) -> tuple[str, str, int, str]:
    return cell.key.suite, cell.key.test, cell.key.count, cell.key.variant


def _test(identity: str, key: tuple[str, str, int, str], cells: Sequence[Cell]) -> Test:
    figures = dict.fromkeys(cell.key.figure for cell in cells)
    groups = [group([cell for cell in cells if cell.key.figure == name]) for name in figures]
    first = {cell.key.runtime: cell for cell in reversed(cells)}
    failed = [
        (name, len(cell.failures), cell.failures[0].reason, cell.failures[0].evidence)
        for name, cell in first.items()
        if cell.failures
    ]
    commands = [
        (f"{identity}-{place}", name, cell.command) for place, (name, cell) in enumerate(first.items()) if cell.command
    ]
    return Test(identity, title_of(*key), tuple(one for one in groups if one), tuple(failed), tuple(commands))


def group(cells: Sequence[Cell]) -> Group | None:
    """The picture and the table of one figure; None where nobody has any value."""
    values = [value for cell in cells for value in cell.values]
    if not values:
        return None
    logarithmic = min(values) > 0 and max(values) / min(values) > 20
    place = _Scale(min(values) if logarithmic else min(0.0, *values), max(values), logarithmic=logarithmic)
    bars, rows, native = [], [], None
    for cell in cells:
        name = cell.key.runtime
        if cell.summary is None:
            rows.append((name, "–", "", "", "0", "failed" if cell.failures else "no value"))
            continue
        s, a = cell.summary, cell.against
        median = amount(s.median, cell.unit)
        interval = f"{amount(s.low, cell.unit)} … {amount(s.high, cell.unit)}"
        bars.append(
            Bar(
                name,
                place(s.median),
                place(s.low),
                place(s.high),
                tuple(place(value) for value in cell.values),
                median,
                f"{name}: {median}\n95 %: {interval}\n{s.count} samples",
            )
        )
        if name == "native":
            native = place(s.median)
        ratio = "" if a is None else f"{a.ratio:.2f}×"
        if a is not None and a.low is not None and a.high is not None:
            ratio += f" ({a.low:.2f} … {a.high:.2f})"
        doubts = [word for word, there in (("unstable", cell.unstable), ("noisy host", cell.noisy)) if there]
        doubts += ["two modes"] if s.two_modes else []
        verdict = "" if a is None else str(a.verdict)
        rows.append((name, median, interval, ratio, str(s.count), ", ".join([verdict, *doubts] if verdict else doubts)))
    return Group(
        cells[0].key.figure,
        "more is better" if cells[0].larger_is_better else "less is better",
        "logarithmic" if logarithmic else "from zero",
        tuple(bars),
        native,
        tuple(rows),
    )


class _Scale:
    """Values → percent of a picture's width."""

    def __init__(self, least: float, most: float, *, logarithmic: bool) -> None:
        self._log = logarithmic
        self._least = self._of(least)
        self._span = (self._of(most) - self._least) or 1.0

    def _of(self, value: float) -> float:
        return math.log10(value) if self._log else value

    def __call__(self, value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (self._of(value) - self._least) / self._span


def curves(cells: Sequence[Cell]) -> list[Curves]:
    """Figures over the number of instances, where there are at least two numbers."""
    found = []
    known: dict[tuple[str, str, str, str], dict[str, dict[int, Cell]]] = {}
    for cell in cells:
        if cell.summary is not None:
            key = (cell.key.suite, cell.key.test, cell.key.figure, cell.key.variant)
            known.setdefault(key, {}).setdefault(cell.key.runtime, {})[cell.key.count] = cell
    for (suite, test, figure, variant), runtimes in known.items():
        counts = sorted({count for by_count in runtimes.values() for count in by_count})
        if len(counts) < 2:
            continue
        medians = [c.summary.median for by in runtimes.values() for c in by.values() if c.summary is not None]
        top, unit = max(medians), next(iter(next(iter(runtimes.values())).values())).unit
        across = {count: 100 * place / (len(counts) - 1) for place, count in enumerate(counts)}
        lines = []
        for number, (name, by_count) in enumerate(runtimes.items()):
            points = [
                (across[count], 100 - 100 * max(0.0, cell.summary.median) / top if top > 0 else 100.0)
                for count, cell in sorted(by_count.items())
                if cell.summary is not None
            ]
            lines.append(Curve(name, number, " ".join(f"{x:.2f},{y:.2f}" for x, y in points), points[-1]))
        title = f"{title_of(suite, test, 1, variant)}: {figure}"
        found.append(Curves(title, tuple((across[count], count) for count in counts), amount(top, unit), tuple(lines)))
    return found
