# SPDX-License-Identifier: Apache-2.0
"""All of a run on one sheet: tests down, runtimes across, each cell against the baseline of its row. No cell is empty:
one that was not measured says why."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from vmtailor.bench.analysis.benchmarks import SILENT
from vmtailor.bench.analysis.cells import Cell, baseline
from vmtailor.bench.analysis.figure_parts import is_part
from vmtailor.bench.analysis.heat_map import RANKED
from vmtailor.bench.analysis.phrases import amount, title_of
from vmtailor.bench.model.job import VM
from vmtailor.bench.model.results import CLOCK, VIRTUAL, HostRun, SuiteName, TestKey
from vmtailor.model.change import Verdict

#: The words for a figure that a runtime lacks, because it has no such step.
NO_SUCH_STEP = "no such step"
#: Note on a cell whose trials did not alternate with native's in the same blocks.
APART = "not at the same time as native"


class Shade(StrEnum):
    """The standing of a cell that has no verdict against its baseline."""

    BASELINE = "baseline"  # it is the baseline itself
    FAILED = "failed"
    NONE = "none"  # there is no figure, for a reason that is said


@dataclass(frozen=True)
class OverviewCell:
    """`words`: the ratio to the baseline, the baseline's median, or why there is neither; `tip`: the cell in full."""

    words: str
    tip: str
    shade: Shade | Verdict


@dataclass(frozen=True)
class OverviewRow:
    """One figure of one test. `key`: leads to the test in full."""

    key: TestKey
    title: str
    figure: str
    better: str
    cells: tuple[OverviewCell, ...]


@dataclass(frozen=True)
class Overview:
    """One sheet. `baseline`: the runtime that ratios are to."""

    title: str
    baseline: str
    runtimes: tuple[str, ...]
    rows: tuple[OverviewRow, ...]


def overviews(run: HostRun, found: Sequence[Cell]) -> list[Overview]:
    """Return a sheet of the wall clock and one of the instruction clock, each only where it has cells."""
    shown = [
        cell
        for cell in found
        if not is_part(cell)
        and cell.key.variant != VIRTUAL
        and (cell.key.suite != SuiteName.ISOLATION or cell.key.figure == RANKED)
    ]
    silent = {
        (cell.key.test, cell.key.variant, cell.key.runtime)
        for cell in found
        if cell.key.suite == SuiteName.ISOLATION and cell.key.figure == SILENT and any(cell.values)
    }
    sheets = []
    for title, clock in (("Wall clock", False), ("Instruction clock", True)):
        cells = [cell for cell in shown if (cell.key.variant == CLOCK) is clock]
        if cells:
            sheets.append(_sheet(title, run, cells, silent, clock=clock))
    return sheets


def _sheet(
    title: str, run: HostRun, cells: Sequence[Cell], silent: Collection[tuple[str, str, str]], *, clock: bool
) -> Overview:
    """Return one sheet. `silent`: stress, variant and runtime of those in which some did not report."""
    met = {cell.key.runtime for cell in cells}
    lacking = {one.runtime: one.missing or one.problem for one in run.identities if one.missing or one.problem}
    wanted = (*(one.runtime for one in run.identities), *met)
    runtimes = tuple(
        name
        for name in dict.fromkeys(wanted)
        if name in met or (name in lacking and name.startswith(VM) is clock)
    )  # fmt: skip
    rows: dict[tuple[str, str, str, int, str], dict[str, Cell]] = {}
    for cell in cells:
        rows.setdefault(cell.key.row, {})[cell.key.runtime] = cell
    order = list(SuiteName)
    sheet = []
    for row, by_runtime in sorted(rows.items(), key=lambda item: order.index(SuiteName(item[0][0]))):
        suite, test, figure, count, variant = row
        first = next(iter(by_runtime.values()))
        said = tuple(
            _said(name, by_runtime.get(name), lacking.get(name, ""), least=(test, variant, name) in silent)
            for name in runtimes
        )
        better = "more is better" if first.larger_is_better else "less is better"
        title_ = title_of(suite, test, count, "" if clock else variant)
        sheet.append(
            OverviewRow(key=(suite, test, count, variant), title=title_, figure=figure, better=better, cells=said)
        )
    return Overview(title, baseline(cells[0].key), runtimes, tuple(sheet))


def _said(runtime: str, cell: Cell | None, lacking: str, *, least: bool) -> OverviewCell:
    """Return a cell of the sheet. `least`: its figure is a lower bound."""
    if cell is None:
        if lacking:
            return OverviewCell("missing", f"{runtime}: {lacking}", Shade.NONE)
        return OverviewCell("not measured", f"{runtime}: it was not among those that were measured", Shade.NONE)
    if cell.summary is None:
        if cell.failures:
            one = cell.failures[0]
            return OverviewCell("failed", f"{runtime}: {one.reason}", Shade.FAILED)
        return OverviewCell(NO_SUCH_STEP, f"{runtime} has no such step", Shade.NONE)
    mark = "≥ " if least else ""
    median = f"{mark}{amount(cell.summary.median, cell.unit)}"
    tip = tip_of(cell) + ("\nsome did not report: at least so much" if least else "")
    if cell.against is None:
        return OverviewCell(median, tip, Shade.BASELINE if runtime == baseline(cell.key) else Shade.NONE)
    doubt = "?" if cell.against.verdict is Verdict.UNDECIDED else ""
    return OverviewCell(f"{mark}{cell.against.times}{doubt}", tip, cell.against.verdict)


def tip_of(cell: Cell) -> str:
    """Return a cell in full: its median and interval, its ratio, and its doubts."""
    if cell.summary is None:
        return cell.failures[0].reason if cell.failures else NO_SUCH_STEP
    s, a = cell.summary, cell.against
    lines = [
        f"{cell.key.runtime}: {amount(s.median, cell.unit)}",
        f"95 %: {amount(s.low, cell.unit)} … {amount(s.high, cell.unit)}, {s.count} samples",
    ]
    if a is not None:
        lines.append(f"to {baseline(cell.key)}: {a.words}, {a.verdict}")
    if cell.spread_over_instances is not None:
        lines.append(f"from one instance to another: {amount(cell.spread_over_instances, cell.unit)}")
    if cell.floor is not None:
        lines.append(f"mean of the lowest 30: {amount(cell.floor, cell.unit)}")
    return "\n".join([*lines, *doubts_of(cell)])


def counted_words(cell: Cell) -> str:
    """Return why so few samples are enough: counts hardly scatter, and this is how far they do."""
    if len(cell.values) < 2:
        return "one counted boot"
    middle = statistics.median(cell.values)
    spread = 100 * (max(cell.values) - min(cell.values)) / abs(middle) if middle else 0.0
    return f"{len(cell.values)} counted boots, {'the same' if spread == 0 else f'within {spread:.2g} %'}"


def doubts_of(cell: Cell) -> list[str]:
    """Return the doubts about a cell, in words; for counts, how many boots there are, and how far they agree."""
    found = [counted_words(cell)] if cell.key.variant == CLOCK and cell.values else []
    doubts = (("unstable", cell.unstable), ("noisy host", cell.noisy), (APART, cell.apart))
    found += [word for word, there in doubts if there]
    if cell.summary is not None and cell.summary.two_modes:
        found.append("two modes")
    if cell.failures:
        found.append(f"{len(cell.failures)} failed: {cell.failures[0].reason}")
    return found
