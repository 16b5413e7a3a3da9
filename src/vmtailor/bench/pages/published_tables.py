# SPDX-License-Identifier: Apache-2.0
"""Results of the published protocols as a page of documentation: Markdown in the published layout, tests down and
runtimes across, with the conditions. It leaves out quick runs. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from vmtailor.bench.analysis import data_n, published_blocks
from vmtailor.bench.analysis.cells import NOISY, Cell, cells_of
from vmtailor.bench.analysis.figure_parts import is_part
from vmtailor.bench.analysis.heat_map import Degraded, HeatMap, heat_maps
from vmtailor.bench.analysis.phrases import amount, title_of
from vmtailor.bench.analysis.unixbench_index import (
    CHECK_HEADER,
    CHECK_TITLE,
    check_rows,
    checked,
    index_rows,
    index_tables,
    index_title,
    tables_over_n,
)
from vmtailor.bench.model.results import CLOCK, VIRTUAL, BenchResults, HostRun, SuiteName
from vmtailor.model.machine import Accelerator

_NONE = "–"


def published_page(found: BenchResults, files: Sequence[str]) -> str:
    """Return the page; empty where every run was of the quick form. `files`: names of the results, for the command that
    writes it again."""
    runs = [run for run in found.runs if not run.quick and run.trials]
    if not runs:
        return ""
    command = " ".join(["vmtailor bench report", *files, "--published"])
    parts = ["# Published protocols, as measured", f"Written by `{command.replace('`', '')}` from raw samples."]
    for run in runs:
        parts += _of_run(run)
    return "\n\n".join(parts) + "\n"


def data_n_page(found: BenchResults, files: Sequence[str]) -> str:
    """Return the page of instances at once within a machine, in virtual time, beside the published work; empty where
    there are none. It includes quick runs, and says so."""
    command = " ".join(["vmtailor bench report", *files, "--data-n"])
    parts = []
    for run in found.runs:
        sheets = data_n.sheets(cells_of(run))
        if sheets:
            parts += [f"Written by `{command.replace('`', '')}`.", _machine(run)]
        for one in sheets:
            parts += [
                f"**{_cell(title)}**\n\n{_table(columns, rows)}"
                for title, columns, rows in data_n.tables(one, quick=run.quick)
            ]
    return "\n\n".join(parts) + "\n" if parts else ""


def _machine(run: HostRun) -> str:
    """Return the conditions of what was measured within a machine: nothing of the host sways it."""
    versions = [(one.runtime, one.version) for one in run.identities if one.version and not one.problem]
    trials = [trial for trial in run.trials if trial.variant == VIRTUAL]
    failed = sum(trial.failure is not None for trial in trials)
    counts = ("trials", f"{len(trials)}, of which {failed} failed")
    return _table(("condition", ""), [("image", run.image_digest), counts, *_options(run), *versions])


@dataclass(frozen=True)
class LayoutTable:
    """One table in the published layout: tests or figures down; runtimes or numbers of instances across. `note`: stands
    behind its title."""

    suite: str
    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def layout_tables(run: HostRun) -> Iterable[LayoutTable]:
    """Return all tables of a run, suite by suite."""
    cells = [cell for cell in cells_of(run) if not is_part(cell)]
    names = [one.runtime for one in run.identities if any(cell.key.runtime == one.runtime for cell in cells)]
    for suite in SuiteName:
        mine = [cell for cell in cells if cell.key.suite == suite]
        if suite == SuiteName.ISOLATION:
            yield from (_heat(one) for one in heat_maps(run))
        elif suite == SuiteName.UNIXBENCH:
            tables = index_tables(cells, names)
            for table in [*(one for one in tables if one.count == 1), *tables_over_n(tables)]:
                header = ("test", *table.columns)
                title = index_title(table, dict(run.options))
                note = _samples(one.count for _, by in table.rows for _, one in by)
                yield LayoutTable(suite=suite, title=title, note=note, header=header, rows=tuple(index_rows(table)))
            for one in published_blocks.beside(tables_over_n(tables)):
                yield LayoutTable(suite=suite, title=one.title, note="", header=one.header, rows=one.rows)
            if both := check_rows(checked(cells)):
                yield LayoutTable(suite=suite, title=CHECK_TITLE, note="", header=CHECK_HEADER, rows=tuple(both))
            yield from _medians(suite, [cell for cell in mine if cell.key.variant == CLOCK], names)
        else:
            yield from _medians(suite, mine, names)


def _of_run(run: HostRun) -> Iterable[str]:
    yield f"## {_cell(run.host.id)}"
    yield _conditions(run)
    for suite, tables in groupby(layout_tables(run), key=lambda table: table.suite):
        yield f"### {suite}"
        for one in tables:
            yield f"**{_cell(one.title)}**{one.note}\n\n{_table(one.header, one.rows)}"
    if run.left_out:
        yield "**Not measured**"
        yield "\n".join(f"- {_cell(text)}" for text in run.left_out)


def _conditions(run: HostRun) -> str:
    """Return everything that another host would have to be told to see the same."""
    host, noise = run.host, [trial.noise for trial in run.trials if trial.noise is not None]
    days = [datetime.fromtimestamp(trial.started_unix_s, UTC).date() for trial in run.trials]
    others = statistics.median(one.others + one.steal for one in noise) if noise else None
    rows = [
        ("memory", amount(float(host.memory_bytes), "B")),
        ("cgroups", host.cgroup),
        ("virtual machines", str(Accelerator.KVM if host.kvm else Accelerator.TCG).upper()),
        ("image", run.image_digest),
        ("trials", f"{len(run.trials)}, of which {sum(trial.failure is not None for trial in run.trials)} failed"),
        ("measured", str(min(days)) if min(days) == max(days) else f"{min(days)} … {max(days)}"),
        ("seed", str(run.seed)),
        *_options(run),
    ]
    if others is not None:
        busy = ": the host was not quiet" if others >= NOISY else ""
        rows.append(("others took, of all processor time, by the median trial", f"{100 * others:.1f} %{busy}"))
    versions = [(one.runtime, one.version) for one in run.identities if one.version]
    return _table(("condition", ""), [*rows, *versions])


def _options(run: HostRun) -> list[tuple[str, str]]:
    """Return the options without how often: of the commands that a file has been written by, it would be the last
    one's. Each table has its own number."""
    return [(name, text) for name, text in run.options if name != "repeat"]


def _samples(counts: Iterable[int]) -> str:
    found = sorted(set(counts))
    samples = f"{found[0]} … {found[-1]}" if len(found) > 1 else str(found[0]) if found else "no"
    return f" ({samples} samples a cell)"


def _medians(suite: str, cells: Sequence[Cell], names: Sequence[str]) -> Iterable[LayoutTable]:
    """Return one table a test: its figures down, runtimes across, medians with their 95 % interval."""
    for test in dict.fromkeys(cell.key.of_test for cell in cells):
        of_test = [cell for cell in cells if cell.key.of_test == test]
        across = [name for name in names if any(cell.key.runtime == name for cell in of_test)]
        rows = []
        for figure in dict.fromkeys(cell.key.figure for cell in of_test):
            by = {cell.key.runtime: cell for cell in of_test if cell.key.figure == figure}
            rows.append((figure, *(_median(by.get(name)) for name in across)))
        _, name, count, variant = test
        note = _samples(cell.summary.count for cell in of_test if cell.summary is not None)
        yield LayoutTable(
            suite=suite, title=title_of(suite, name, count, variant), note=note, header=("", *across), rows=tuple(rows)
        )


def _median(cell: Cell | None) -> str:
    if cell is None:
        return _NONE
    if cell.summary is None:
        return f"failed: {cell.failures[0].reason}" if cell.failures else _NONE
    s = cell.summary
    unit = cell.unit if cell.unit in ("s", "B") else ""  # these choose their own prefix
    failed = f"; {len(cell.failures)} failed" if cell.failures else ""
    return f"{amount(s.median, cell.unit)} ({amount(s.low, unit)} … {amount(s.high, unit)}{failed})"


def _heat(found: HeatMap) -> LayoutTable:
    rows = tuple((stress, *(_lost(one) for one in cells)) for stress, cells in found.rows)
    title = f"(t2 − t1) / t1 of the instances that behave, {found.variant}"
    return LayoutTable(suite=SuiteName.ISOLATION, title=title, note="", header=("stress", *found.runtimes), rows=rows)


def _lost(one: Degraded | None) -> str:
    if one is None:
        return _NONE
    if one.failed and not one.samples:
        return f"failed: {one.failed}"
    between = f" ({one.low:+.0f} … {one.high:+.0f})" if one.low is not None and one.high is not None else ""
    return f"{one.words}{between}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, [" --- " if not at else " ---: " for at in range(len(header))], *rows]
    return "\n".join(f"| {' | '.join(_cell(text).strip() for text in line)} |" for line in lines)


def _cell(text: str) -> str:
    """Return a text as a cell of a table. Instances and engines are strangers: neither columns, nor markup, nor lines
    come of it."""
    plain_ = " ".join(text.split())
    return "".join(f"\\{c}" if c in "|`*_<>[]\\" else c for c in plain_)
