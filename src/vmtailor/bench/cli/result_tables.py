# SPDX-License-Identifier: Apache-2.0
"""Results of benchmarks as tables on a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from vmtailor.base.terminal import Table, TerminalConsole, Text, for_table
from vmtailor.bench.analysis import data_n, starts_within
from vmtailor.bench.analysis.cells import Against, Cell, cells_of, compared_with
from vmtailor.bench.analysis.figure_parts import is_part
from vmtailor.bench.analysis.heat_map import SHADES, Degraded, HeatMap, heat_maps
from vmtailor.bench.analysis.host_runs import Compared, Pair, image_of
from vmtailor.bench.analysis.phrases import ISOLATION, amount, isolation_row, records_of, title_of
from vmtailor.bench.analysis.scenarios import ScenarioAdvice
from vmtailor.bench.analysis.unixbench_index import (
    CHECK_HEADER,
    CHECK_TITLE,
    check_rows,
    checked,
    index_rows,
    index_tables,
    index_title,
)
from vmtailor.bench.analysis.weighted_ranks import Advice, Hold
from vmtailor.bench.model.results import BenchResults, HostRun
from vmtailor.bench.pages.overview import NO_SUCH_STEP, doubts_of
from vmtailor.model.change import Verdict

_COLOURS = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.SAME: "dim", Verdict.UNDECIDED: "dim"}


def show(found: BenchResults) -> None:
    """Show all runs, one after the other."""
    for run in found.runs:
        _show_run(run)


def _show_run(run: HostRun) -> None:
    console = for_table()
    quick = "  QUICK: durations at a tenth, not to be set beside published tables" if run.quick else ""
    console.print(Text.assemble((run.host.id, "bold"), f", cgroup {run.host.cgroup}", (quick, "yellow")))
    console.print(isolation_table(run))
    order = {one.runtime: number for number, one in enumerate(run.identities)}
    for test, group in groupby(cells_of(run), key=lambda cell: cell.key.of_test):
        rows = [cell for cell in group if not is_part(cell)]  # there are too many of these: the page has them
        console.print(cell_table(title_of(*test), rows, order))
    if starts := starts_within.starts_within(cells_of(run)):
        console.print(_table(starts_within.TITLE, starts_within.HEADER, (one.row for one in starts)))
        console.print(starts_within.NOTE, style="dim")
    for map_ in heat_maps(run):
        console.print(heat_table(map_))
    for table in index_tables(cells_of(run), list(order)):
        head = ("test", *table.columns)
        console.print(_table(index_title(table, dict(run.options)), head, index_rows(table, scores=False)))
    if both := check_rows(checked(cells_of(run))):
        console.print(_table(CHECK_TITLE, CHECK_HEADER, both, left=("test", "runtime", ""), dim=True))
    for sheet in data_n.sheets(cells_of(run)):
        for one in data_n.tables(sheet, quick=run.quick):
            console.print(_table(*one))
    for text in run.left_out:
        console.print(Text.assemble(("left out: ", "yellow"), text))
    TerminalConsole().print(
        "Intervals are 95 %; ratios are of medians of the same run. same: a difference of 5 % or more is ruled out; "
        "undecided: the samples do not tell.",
        style="dim",
    )


def _table(
    title: str | None,
    head: Sequence[str],
    rows: Iterable[Iterable[str | Text]],
    *,
    left: Collection[str] | None = None,
    dim: bool = False,
    fold: bool = False,
) -> Table:
    """Return a table. `left`: the columns that are not numbers; None: the first. `fold`: long cells take several lines.
    Cells are untrusted text, never markup."""
    style = "dim" if dim else None
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style=style)
    for name in head:
        words = name in left if left is not None else name == head[0]
        table.add_column(name, justify="left" if words else "right", overflow="fold" if fold else "ellipsis")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def isolation_table(run: HostRun) -> Table:
    """Return a table of how each runtime isolates and limits, as its instance saw it."""
    # Cgroups and digests are too long for a terminal: the page has them.
    shown = [place for place, name in enumerate(ISOLATION) if name not in ("cgroup", "program")]
    records = records_of(run)
    told = [isolation_row(one, records[one.runtime]) for one in run.identities]
    head, rows = [ISOLATION[place] for place in shown], [[row[place] for place in shown] for row in told]
    return _table("Isolation, seen from inside", head, rows, left=ISOLATION, fold=True)


def cell_table(title: str, cells: Sequence[Cell], order: Mapping[str, int]) -> Table:
    """Return a table of one test's figures, row by row. `order`: of the runtimes."""
    other = compared_with(cells)
    to = f"to {other}" if other else ""
    rows: list[tuple[str | Text, ...]] = []
    before = ""
    for cell in sorted(cells, key=lambda cell: (cell.key.figure, order.get(cell.key.runtime, len(order)))):
        rows.append(("" if cell.key.figure == before else cell.key.figure, cell.key.runtime, *_cells(cell)))
        before = cell.key.figure
    head = ("figure", "runtime", "median", "95 %", to, "95 %", "n", "")
    return _table(title, head, rows, left=("figure", "runtime", ""), dim=True)


def heat_table(found: HeatMap) -> Table:
    """Return a table of the loss of well-behaved instances: stresses down, runtimes across."""
    title = f"Isolation {found.variant}: (t2 − t1) / t1 of well-behaved instances, by what one of five does"
    rows = [
        (stress, *("–" if one is None else Text(one.words, style=_heat(one)) for one in cells))
        for stress, cells in found.rows
    ]
    return _table(title, ("stress", *found.runtimes), rows)


def _heat(one: Degraded) -> str:
    return "green" if one.shade == 0 else "red" if one.shade >= SHADES // 2 else "yellow"


def _cells(cell: Cell) -> tuple[str | Text, ...]:
    doubts = doubts_of(cell)
    doubt = Text(", ".join(doubts), style="yellow")
    if cell.summary is None:
        return "–", "", "", "", "0", doubt
    s, a = cell.summary, cell.against
    interval = Text(f"{amount(s.low, cell.unit)} … {amount(s.high, cell.unit)}", style="dim")
    ratio, between, verdict = _against(a)
    note = Text.assemble(verdict, " " if doubts and ratio else "", doubt)
    return amount(s.median, cell.unit), interval, ratio, Text(between, style="dim"), str(s.count), note


def _against(one: Against | None) -> tuple[str, str, Text]:
    """Return a ratio with its interval and its verdict; nothing where there is none."""
    if one is None:
        return "", "", Text("")
    return one.times, one.between, Text(str(one.verdict), style=_COLOURS[one.verdict])


def show_compared(pair: Pair, found: Sequence[Compared]) -> None:
    """Show two runs, cell by cell."""
    console = for_table()
    before, after = pair.before, pair.after
    for side, run in (("before", before), ("after ", after)):
        image = f", {image_of(run)}" if pair.other_image else ""
        console.print(Text.assemble((f"{side} ", "dim"), (run.host.id, "bold"), image))
    rows: list[tuple[str | Text, ...]] = []
    for one in found:
        key, change = one.key, one.change
        cell = one.before or one.after
        if cell is not None and is_part(cell) and (change is None or change.verdict is Verdict.SAME):
            continue  # a subsystem in which nothing moved: there are many, and the JSON has them
        ratio, between, verdict = _against(change)
        if pair.other_image:
            verdict = Text.assemble(verdict, (" other image", "yellow"))
        rows.append((
            title_of(*key.of_test), key.figure, key.runtime,
            _median(one.before), _median(one.after), ratio, between, verdict,
        ))  # fmt: skip
    head = ("test", "figure", "runtime", "before", "after", "ratio", "95 %", "")
    console.print(_table(None, head, rows, left=("test", "figure", "runtime", ""), dim=True))
    if before.host.id != after.host.id:
        console.print("Two hosts: a ratio tells of both machines, not of the runtime alone.", style="yellow")
    if pair.other_image:
        kinds = tuple(dict.fromkeys((before.host.architecture, after.host.architecture)))
        words = f", for {' and '.join(kinds)}" if len(kinds) > 1 else ""
        console.print(Text(f"Two images{words}: that they hold the same is not checked.", style="yellow"))


def _median(cell: Cell | None) -> Text:
    if cell is None:
        return Text("not measured", style="dim")
    if cell.summary is None:
        return Text("failed", style="red") if cell.failures else Text(NO_SUCH_STEP, style="dim")
    return Text(amount(cell.summary.median, cell.unit))


def show_scenarios(run: HostRun, found: Sequence[ScenarioAdvice]) -> None:
    """Show what a run's figures say of each use of containers, in sentences."""
    console = for_table()
    quick = "  QUICK: durations at a tenth" if run.quick else ""
    console.print(Text.assemble((run.host.id, "bold"), (quick, "yellow")))
    for one in found:
        console.print(Text.assemble((one.scenario.name, "bold"), f": {one.scenario.about}"))
        for sentence in one.sentences:
            console.print(Text(f"  {sentence}"))


def _held(one: Hold, best: str, weight: float) -> str:
    """Return how far a weight can be moved."""
    parts = [f"from {one.least:.3g} (below: {one.below})"] if one.least is not None else []
    parts += [f"up to {one.most:.3g} (above: {one.above})"] if one.most is not None else []
    return f"{one.suite}, weighing {weight:g}: {best} is first {' '.join(parts) or 'whatever it weighs'}"


def show_advice(run: HostRun, advice: Advice, weights: Mapping[str, float]) -> None:
    """Show a ranking with its doubts."""
    console = for_table()
    told = ", ".join(f"{suite} {weight:g}" for suite, weight in weights.items())
    console.print(Text.assemble((run.host.id, "bold"), f": weights {told}; {advice.rows} figures"))
    if not advice.ranked:
        console.print("cannot tell: fewer than two runtimes have values for the same figures", style="yellow")
    else:
        suites = [name for name, _ in advice.ranked[0].suites]
        rows = [
            (one.runtime, f"{one.score:.2f}", *(f"{score:.2f}" for _, score in one.suites), f"{100 * one.first:.0f} %")
            for one in advice.ranked
        ]
        console.print(_table(None, ("runtime", "score", *suites, "first in"), rows, dim=True))
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
