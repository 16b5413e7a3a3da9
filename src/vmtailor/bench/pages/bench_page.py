# SPDX-License-Identifier: Apache-2.0
"""Results of benchmarks as one page that opens offline."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.base import pages
from vmtailor.bench.analysis import starts_within
from vmtailor.bench.analysis.benchmarks import SUITE_WORDS, test_words
from vmtailor.bench.analysis.cells import Cell, cells_of, compared_with
from vmtailor.bench.analysis.figure_parts import is_part, parts_of
from vmtailor.bench.analysis.heat_map import HeatMap, heat_maps, tip
from vmtailor.bench.analysis.phrases import ISOLATION, amount, isolation_row, records_of, title_of
from vmtailor.bench.analysis.unixbench_index import index_rows, index_tables, index_title
from vmtailor.bench.model.results import BenchResults, HostRun, SuiteName, TestKey, is_counted
from vmtailor.bench.pages.bench_charts import Group, group
from vmtailor.bench.pages.curve_charts import Curves, curves, distributions
from vmtailor.bench.pages.overview import Overview, overviews
from vmtailor.bench.pages.published_tables import LayoutTable, layout_tables
from vmtailor.bench.pages.ratio_bars import Ratios, ratios

#: Fewer samples than these have no 95 % interval of their median: the page shows their range instead.
FEW = 6


@dataclass(frozen=True)
class PageTable:
    """A table whose columns are runtimes (a figure by its parts, each with its amount and share; UnixBench indices) or
    figures (starts within a machine)."""

    title: str
    runtimes: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Test:
    """One test: its sentence, its groups, its failures (runtime, how often, reason, evidence), and the command of each
    runtime. `baseline`: the runtime that its ratios are to; empty where it has none."""

    id: str
    title: str
    words: str
    baseline: str
    groups: tuple[Group, ...]
    parts: tuple[PageTable, ...]
    failed: tuple[tuple[str, int, str, str], ...]
    commands: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class SuitePart:
    """One suite: its sentence, its tests, and its figures over the number of instances."""

    id: str
    name: str
    words: str
    tests: tuple[Test, ...]
    curves: tuple[Curves, ...]
    distributions: tuple[Curves, ...] = ()
    ratios: tuple[Ratios, ...] = ()


@dataclass(frozen=True)
class Section:
    """One host's run. `links`: a test's key → its place on the page; `few`: some cells have too few samples for a 95 %
    interval; `noise`: the host's other work, in words; `layout`: all results as published tables have them; `starts`:
    starts within a machine, by all that was executed for them."""

    run: HostRun
    isolation: tuple[tuple[str, ...], ...]
    suites: tuple[SuitePart, ...]
    overviews: tuple[Overview, ...]
    links: dict[TestKey, str]
    indices: tuple[PageTable, ...] = ()
    heat: tuple[HeatMap, ...] = ()
    noise: str = ""
    few: bool = False
    layout: tuple[LayoutTable, ...] = ()
    starts: PageTable | None = None


def bench_page(results: BenchResults) -> str:
    """Return the page. The element `#data` holds the results themselves."""
    sections = [_section(number, run) for number, run in enumerate(results.runs)]
    return pages.render(
        "bench.html", data={"bench": results}, styles=["bench.css"],
        values={
            "sections": sections, "columns": [name.capitalize() for name in ISOLATION], "heat_tip": tip,
            "starts_note": starts_within.NOTE,
        },
    )  # fmt: skip


def _section(number: int, run: HostRun) -> Section:
    order = {one.runtime: place for place, one in enumerate(run.identities)}
    suites = {str(name): place for place, name in enumerate(SuiteName)}
    found = sorted(cells_of(run), key=lambda cell: order.get(cell.key.runtime, len(order)))
    keys = dict.fromkeys(cell.key.of_test for cell in cells_of(run))  # in the order in which they were done
    by_test = {key: [cell for cell in found if cell.key.of_test == key] for key in keys}
    links = {key: f"t{number}-{place}" for place, key in enumerate(by_test)}
    drawn, spread = curves(found), distributions(found)
    compared = [*ratios(found), *ratios(found, clock=True)]
    parts = tuple(
        SuitePart(
            id=f"s{number}-{suite}",
            name=suite,
            words=SUITE_WORDS.get(suite, ""),
            tests=tuple(_test(links[key], key, cells) for key, cells in by_test.items() if key[0] == suite),
            curves=tuple(one for one in drawn if one.suite == suite),
            distributions=tuple(one for one in spread if one.suite == suite),
            ratios=tuple(one for one in compared if one.suite == suite),
        )
        for suite in sorted({key[0] for key in by_test}, key=lambda name: suites.get(name, len(suites)))
    )
    indices = tuple(
        PageTable(index_title(one, dict(run.options)), one.columns, tuple(index_rows(one)))
        for one in index_tables(found, list(order))
    )
    records = records_of(run)
    few = any(c.summary is not None and c.summary.count < FEW and not is_counted(c.key.variant) for c in found)
    return Section(
        run=run,
        isolation=tuple(isolation_row(one, records[one.runtime]) for one in run.identities),
        suites=parts,
        overviews=tuple(overviews(run, found)),
        links=links,
        indices=indices,
        heat=tuple(heat_maps(run)),
        noise=noise_words(run),
        few=few,
        layout=tuple(layout_tables(run)),
        starts=_starts(found),
    )


def _starts(found: Sequence[Cell]) -> PageTable | None:
    rows = tuple(one.row for one in starts_within.starts_within(found))
    return PageTable(starts_within.TITLE, starts_within.HEADER[1:], rows) if rows else None


def noise_words(run: HostRun) -> str:
    """Return the host's other work over all timed trials, as medians in a sentence. Empty where it was not recorded."""
    found = [trial.noise for trial in run.trials if trial.noise is not None and not is_counted(trial.variant)]
    if not found:
        return ""
    others, steal = (
        100 * statistics.median(values) for values in zip(*((n.others, n.steal) for n in found), strict=True)
    )
    clocks = [
        mhz
        for noise in found
        for mhz in (noise.clock_mhz, noise.clock_low_mhz, noise.clock_high_mhz)
        if mhz is not None
    ]
    clock = f"; clock {min(clocks):,.0f} … {max(clocks):,.0f} MHz while tests ran" if clocks else ""
    return f"Meanwhile others took {others:.0f} % of the processors, and {steal:.0f} % was stolen (medians){clock}."


def _test(identity: str, key: TestKey, cells: Sequence[Cell]) -> Test:
    figures = dict.fromkeys(cell.key.figure for cell in cells if not is_part(cell))
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
    tables = tuple(
        PageTable(f"{one.figure}, by subsystem", one.runtimes, _part_rows(one.rows, one.unit))
        for one in parts_of(cells)
    )
    suite, test, _, variant = key
    return Test(
        id=identity,
        title=title_of(*key),
        words=test_words(suite, test, variant),
        baseline=compared_with(cells),
        groups=tuple(one for one in groups if one),
        parts=tables,
        failed=tuple(failed),
        commands=tuple(commands),
    )


def _part_rows(rows: Sequence[tuple[str, tuple[float, ...]]], unit: str) -> tuple[tuple[str, ...], ...]:
    whole = rows[0][1]
    return tuple(
        (
            name,
            *(
                f"{amount(value, unit)} ({100 * value / all_:.1f} %)" if all_ else amount(value, unit)
                for value, all_ in zip(values, whole, strict=True)
            ),
        )
        for name, values in rows
    )
