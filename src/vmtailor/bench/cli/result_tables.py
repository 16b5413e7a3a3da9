# SPDX-License-Identifier: Apache-2.0
"""Results of benchmarks as tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from vmtailor.base.terminal import Table, TerminalConsole, Text, for_table
from vmtailor.bench.analysis import data_n
from vmtailor.bench.analysis.cells import Cell, baseline, cells_of
from vmtailor.bench.analysis.data_n import DataN
from vmtailor.bench.analysis.figure_parts import is_part
from vmtailor.bench.analysis.heat_map import SHADES, Degraded, HeatMap, heat_maps
from vmtailor.bench.analysis.host_runs import Compared, Pair
from vmtailor.bench.analysis.phrases import ISOLATION, amount, isolation_row, records_of, title_of
from vmtailor.bench.analysis.unixbench_index import (
    CHECK_HEADER,
    CHECK_TITLE,
    IndexTable,
    check_rows,
    checked,
    index_rows,
    index_tables,
    index_title,
)
from vmtailor.bench.analysis.weighted_ranks import Advice, Hold
from vmtailor.bench.model.results import CLOCK, BenchResults, HostRun
from vmtailor.bench.pages.overview import APART, NO_SUCH_STEP, counted_words
from vmtailor.model.change import Verdict

_COLOURS = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.SAME: "dim", Verdict.UNDECIDED: "dim"}


def show(found: BenchResults) -> None:
    """All runs, one after the other."""
    for run in found.runs:
        _show_run(run)


def _show_run(run: HostRun) -> None:
    console = for_table()
    quick = "  QUICK: durations at a tenth, not to be set beside published tables" if run.quick else ""
    console.print(Text.assemble((run.host.id, "bold"), f", cgroup {run.host.cgroup}", (quick, "yellow")))
    console.print(isolation_table(run))
    order = {one.runtime: number for number, one in enumerate(run.identities)}
    for (suite, test, _, count, variant), group in groupby(cells_of(run), key=_row):
        rows = [cell for cell in group if not is_part(cell)]  # of which there are many: they stand on the page
        console.print(cell_table(title_of(suite, test, count, variant), rows, order))
    for map_ in heat_maps(run):
        console.print(heat_table(map_))
    for table in index_tables(cells_of(run), list(order)):
        console.print(index_table(table, dict(run.options)))
    if both := check_rows(checked(cells_of(run))):
        console.print(check_table(both))
    for sheet in data_n.sheets(cells_of(run)):
        for one in data_n_tables(sheet, quick=run.quick):
            console.print(one)
    for text in run.left_out:
        console.print(Text.assemble(("left out: ", "yellow"), text))
    TerminalConsole().print(
        "Intervals are 95 %; ratios are of medians of the same run. same: a difference of 5 % or more is ruled out; "
        "undecided: the samples do not tell.",
        style="dim",
    )


def _row(cell: Cell) -> tuple[str, str, str, int, str]:
    suite, test, _, count, variant = cell.key.row
    return suite, test, "", count, variant


def isolation_table(run: HostRun) -> Table:
    """How each runtime isolates and controls, as its instance saw it."""
    table = Table(title="Isolation, seen from inside", title_justify="left", title_style="bold", box=None)
    # Cgroups and digests are long: they stand on the page.
    shown = [place for place, name in enumerate(ISOLATION) if name not in ("cgroup", "program")]
    for place in shown:
        table.add_column(ISOLATION[place], overflow="fold")
    records = records_of(run)
    for one in run.identities:
        row = isolation_row(one, records[one.runtime])
        table.add_row(*(Text(row[place]) for place in shown))
    return table


def cell_table(title: str, rows: Sequence[Cell], order: Mapping[str, int]) -> Table:
    """Figures of one test, row by row. `order`: of the runtimes."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim")
    to = f"to {baseline(rows[0].key)}" if rows and baseline(rows[0].key) else ""
    for name in ("figure", "runtime", "median", "95 %", to, "95 %", "n", ""):
        table.add_column(name, justify="left" if name in ("figure", "runtime", "") else "right")
    before = ""
    for cell in sorted(rows, key=lambda cell: (cell.key.figure, order.get(cell.key.runtime, len(order)))):
        figure = "" if cell.key.figure == before else cell.key.figure
        before = cell.key.figure
        table.add_row(Text(figure), Text(cell.key.runtime), *_cells(cell))
    return table


def heat_table(found: HeatMap) -> Table:
    """What well-behaved instances lost: stresses down, runtimes across."""
    title = f"Isolation {found.variant}: (t2 − t1) / t1 of well-behaved instances, by what one of five does"
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    table.add_column("stress")
    for name in found.runtimes:
        table.add_column(name, justify="right")
    for stress, cells in found.rows:
        table.add_row(stress, *(Text("–") if one is None else Text(one.words, style=_heat(one)) for one in cells))
    return table


def _heat(one: Degraded) -> str:
    return "green" if one.shade == 0 else "red" if one.shade >= SHADES // 2 else "yellow"


def index_table(found: IndexTable, facts: Mapping[str, str]) -> Table:
    """The UnixBench index as published tables have it: tests down, runtimes across."""
    table = Table(title=index_title(found, facts), title_justify="left", title_style="bold", box=None)
    table.add_column("test")
    for name in found.columns:
        table.add_column(name, justify="right")
    for row in index_rows(found, scores=False):
        table.add_row(*(Text(cell) for cell in row))
    return table


def check_table(rows: Sequence[Sequence[str]]) -> Table:
    """Our set of UnixBench beside the published one."""
    table = Table(title=CHECK_TITLE, title_justify="left", title_style="bold", box=None, header_style="dim")
    for name in CHECK_HEADER:
        table.add_column(name, justify="left" if name in ("test", "runtime", "") else "right")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def data_n_tables(found: DataN, *, quick: bool) -> list[Table]:
    """Instances at once within a machine, beside the published work: scores, what they cost, and the shapes."""
    head = data_n.header(found)
    title = data_n.caption(found, quick=quick)
    return [
        _plain_table(title, head, data_n.score_rows(found)),
        _plain_table(data_n.INSTRUCTIONS, head, data_n.instruction_rows(found)),
        _plain_table(data_n.SHAPES, data_n.SHAPES_HEAD, data_n.shapes(found)),
    ]


def _plain_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _cells(cell: Cell) -> tuple[Text, ...]:
    marks = [
        word
        for word, there in (
            ("unstable", cell.unstable),
            ("noisy host", cell.noisy),
            (APART, cell.apart),
            ("two modes", cell.summary is not None and cell.summary.two_modes),
            (f"{len(cell.failures)} failed: {cell.failures[0].reason if cell.failures else ''}", bool(cell.failures)),
        )
        if there
    ]
    if cell.key.variant == CLOCK and cell.values:
        marks.insert(0, counted_words(cell))
    doubt = Text(", ".join(marks), style="yellow")
    if cell.summary is None:
        return Text("–"), Text(""), Text(""), Text(""), Text("0"), doubt
    s, a = cell.summary, cell.against
    interval = f"{amount(s.low, cell.unit)} … {amount(s.high, cell.unit)}"
    ratio, between, verdict = "", "", Text("")
    if a is not None:
        ratio = f"{a.ratio:.2f}×"
        between = f"{a.low:.2f} … {a.high:.2f}" if a.low is not None and a.high is not None else ""
        verdict = Text(str(a.verdict), style=_COLOURS[a.verdict])
    note = Text.assemble(verdict, " " if marks and ratio else "", doubt)
    return (
        Text(amount(s.median, cell.unit)),
        Text(interval, style="dim"),
        Text(ratio),
        Text(between, style="dim"),
        Text(str(s.count)),
        note,
    )


def show_compared(pair: Pair, found: Sequence[Compared]) -> None:
    """Two runs, cell by cell."""
    console = for_table()
    before, after = pair.before, pair.after
    console.print(Text.assemble(("before ", "dim"), (before.host.id, "bold")))
    console.print(Text.assemble(("after  ", "dim"), (after.host.id, "bold")))
    table = Table(box=None, header_style="dim")
    for name in ("test", "figure", "runtime", "before", "after", "ratio", "95 %", ""):
        table.add_column(name, justify="left" if name in ("test", "figure", "runtime", "") else "right")
    for one in found:
        key, change = one.key, one.change
        cell = one.before or one.after
        if cell is not None and is_part(cell) and (change is None or change.verdict is Verdict.SAME):
            continue  # a subsystem in which nothing moved: there are many, and the JSON has them
        ratio, between, verdict = "", "", Text("")
        if change is not None:
            ratio = f"{change.ratio:.2f}×"
            if change.low is not None and change.high is not None:
                between = f"{change.low:.2f} … {change.high:.2f}"
            verdict = Text(str(change.verdict), style=_COLOURS[change.verdict])
        if pair.other_image:
            verdict = Text.assemble(verdict, (" other image", "yellow"))
        table.add_row(
            Text(title_of(*key.of_test)), Text(key.figure), Text(key.runtime),
            _median(one.before), _median(one.after), ratio, between, verdict,
        )  # fmt: skip
    console.print(table)
    if before.host.id != after.host.id:
        console.print("Two hosts: a ratio tells of both machines, not of the runtime alone.", style="yellow")
    if pair.other_image:
        kinds = f"{before.host.architecture} and {after.host.architecture}"
        console.print(Text(f"Two images, for {kinds}: that they hold the same is not checked.", style="yellow"))


def _median(cell: Cell | None) -> Text:
    if cell is None:
        return Text("not measured", style="dim")
    if cell.summary is None:
        return Text("failed", style="red") if cell.failures else Text(NO_SUCH_STEP, style="dim")
    return Text(amount(cell.summary.median, cell.unit))


def _held(one: Hold, best: str, weight: float) -> str:
    """How far a weight can be moved."""
    parts = [f"from {one.least:.3g} (below: {one.below})"] if one.least is not None else []
    parts += [f"up to {one.most:.3g} (above: {one.above})"] if one.most is not None else []
    return f"{one.suite}, weighing {weight:g}: {best} is first {' '.join(parts) or 'whatever it weighs'}"


def show_advice(run: HostRun, advice: Advice, weights: Mapping[str, float]) -> None:
    """A ranking with its doubts."""
    console = for_table()
    told = ", ".join(f"{suite} {weight:g}" for suite, weight in weights.items())
    console.print(Text.assemble((run.host.id, "bold"), f": weights {told}; {advice.rows} figures"))
    if not advice.ranked:
        console.print("cannot tell: fewer than two runtimes have values for the same figures", style="yellow")
    else:
        suites = [name for name, _ in advice.ranked[0].suites]
        table = Table(box=None, header_style="dim")
        for name in ("runtime", "score", *suites, "first in"):
            table.add_column(name, justify="left" if name == "runtime" else "right")
        for one in advice.ranked:
            parts = [f"{score:.2f}" for _, score in one.suites]
            table.add_row(Text(one.runtime), f"{one.score:.2f}", *parts, f"{100 * one.first:.0f} %")
        console.print(table)
        best = advice.ranked[0].runtime
        if advice.decided:
            console.print(Text.assemble((f"{best} is first", "green"), ", whichever of the samples are drawn"))
        else:
            often = f"{best} is so in {100 * advice.ranked[0].first:.0f} % of draws"
            why = (
                f", and no figure tells it from {', '.join(advice.untold)}: take more samples" if advice.untold else ""
            )
            console.print(Text(f"cannot tell who is first: {often}{why}"))
        for hold in advice.holds:
            console.print(Text(_held(hold, best, weights[hold.suite]), style="dim"))
    for text in advice.left_out:
        console.print(Text.assemble(("left out: ", "yellow"), text))
    console.print("Scores: 1 is the middle of the field, 2 twice as good.", style="dim")
