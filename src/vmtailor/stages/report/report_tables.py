# SPDX-License-Identifier: Apache-2.0
"""The record of a fit as tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vmtailor.analysis.changes.plan_summary import MEANING, counts
from vmtailor.base import figures, output
from vmtailor.base.terminal import Group, RenderableType, Table, TerminalConsole, Text, box
from vmtailor.base.text import plural
from vmtailor.base.verb_end import show_end
from vmtailor.drivers.monitors import monitor_proof
from vmtailor.model.fit_run import PATCHED, FitRun
from vmtailor.model.monitor_verdicts import MonitorVerdict
from vmtailor.stages.report import fit_end, ledger_waterfall, margin_prices, pictures, tuned_changes
from vmtailor.stages.report.document import fit_document, repairs
from vmtailor.stages.report.figure_rows import FigureGroup, MeasuredSides, groups
from vmtailor.stages.report.ledger_waterfall import Waterfall

#: Folders and symbols that are named on a terminal.
MOST_FOLDERS, MOST_SYMBOLS = 8, 2
#: Features that the kernel lacks, in lines.
MOST_LACKS = 8


def show(
    run: FitRun,
    console: TerminalConsole | None = None,
    *,
    json: bool = False,
    verbose: bool = False,
    later: Sequence[MonitorVerdict] = (),
) -> None:
    """Print the result of a fit: the verdict, four figures, doubts, and what to do with the bundle; with `verbose`
    every table before them; with `json` the document of `fit --json` and nothing else. Without a console: on standard
    output. `later`: the verdicts since the fit.

    Names that come from the image or the guest are printed as text."""
    if json:
        output.document(fit_document(run, later))
        return
    console = console or TerminalConsole()
    if verbose:
        console.print(Group(*_details(run, later)))
    show_end(fit_end.of_fit(run, [] if verbose else doubts(run), verbose=verbose), console)


def show_figures(pair: MeasuredSides, folder: str, console: TerminalConsole | None = None, *, verbose: bool) -> None:
    """Print four figures of both sides; with `verbose` all of them before. Without a console: on standard output.
    `folder`: the bundle or work folder that they are of."""
    console = console or TerminalConsole()
    if verbose:
        console.print(Group(*_both_sides(pair)))
    show_end(fit_end.of_measure(pair, folder, verbose=verbose), console)


def _details(run: FitRun, later: Sequence[MonitorVerdict]) -> list[RenderableType]:
    parts: list[RenderableType] = _both_sides(run)
    if (found := ledger_waterfall.of(run)) is not None:
        parts.append(_waterfall(found))
    parts.append(_causes(run))
    if run.prices:
        parts.append(_prices(run))
    if run.trials:
        parts.append(_trials(run))
    if run.tuned is not None:
        parts.append(_tuned(run))
    if later:
        parts.append(_monitors(monitor_proof.verdicts_of(run, later)))
    lines = doubts(run)
    return [*parts, *lines, Text()] if lines else parts


def _margin(run: FitRun) -> list[Text]:
    """Return the margin's price, and where the kernel came from: a line each."""
    lines: list[Text] = []
    if line := margin_prices.price_line(run):
        lines.append(Text.assemble(("margin  ", "bold"), line))
    if run.found_kernel is not None and (line := margin_prices.kernel_line(run.found_kernel)):
        lines.append(Text.assemble(("kernel  ", "bold"), line))
    return lines


def _both_sides(run: MeasuredSides) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for group in groups(run):
        if any(value is not None for row in group.rows for value in row.exact):
            parts.append(_figures(group))
    if run.baseline.loops or run.tailored.loops:
        parts.append(_loops(run))
    if run.baseline.memory or run.tailored.memory:
        parts.append(_memory(run))
    return parts


def _table(*columns: str, numbers: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for heading in columns:
        justify: Literal["left", "right"] = "right" if heading in numbers else "left"
        table.add_column(heading, justify=justify, no_wrap=heading in numbers)
    return table


def _titled(title: str, table: Table, *captions: str) -> Group:
    return Group(Text(title, "bold"), table, *(Text(caption, "dim") for caption in captions if caption), Text())


def _figures(group: FigureGroup) -> Group:
    table = _table("", "baseline", "tailored", "ratio", numbers=("baseline", "tailored", "ratio"))
    for row in group.rows:
        style = "bold" if row.strong else ""
        ratio = Text(row.ratio, "green" if row.ratio.startswith("÷") else "")
        table.add_row(Text(row.title, style), Text(row.baseline), Text(row.tailored, style), ratio)
    missing: dict[str, list[str]] = {}
    for row in group.rows:
        if row.why:
            missing.setdefault(row.why, []).append(row.title)
    lines = [group.conditions, *(f"{', '.join(titles)}: {why}" for why, titles in missing.items())]
    return _titled(group.title, table, *lines)


def _loops(run: MeasuredSides) -> Group:
    sides = (run.baseline, run.tailored)
    table = _table("", "baseline", "tailored", numbers=("baseline", "tailored"))
    for name in dict.fromkeys(loop.name for side in sides for loop in side.loops):
        cells = [next((x.instructions for x in side.loops if x.name == name), None) for side in sides]
        table.add_row(Text(name), *(figures.millions(cell) for cell in cells))
    return _titled("Loops that only emulation causes: in gross figures, not in net ones", table)


def _memory(run: MeasuredSides) -> Group:
    table = _table("", "baseline", "tailored", numbers=("baseline", "tailored"))
    for row in pictures.memory_rows(run.baseline, run.tailored):
        table.add_row(Text(row.name), *(figures.memory_bytes(value) for value in row.bytes))
    return _titled(
        "Where the memory of the smallest machine goes", table, "after the load; the report says what each part is"
    )


def _waterfall(found: Waterfall) -> Group:
    heads = ("measured", "expected", "remainder")
    table = _table("", *heads, "expected of", numbers=heads)
    for row in ledger_waterfall.shortened(found.rows, MOST_FOLDERS):
        some, more = ledger_waterfall.named(row, MOST_SYMBOLS)
        names = ", ".join(name for name, _ in some) + (f" and {more} more" if more else "")
        cells = (ledger_waterfall.signed(value) for value in (row.measured, row.expected, row.remainder))
        table.add_row(Text(row.name), *cells, Text(names, "dim"))
    cells = (ledger_waterfall.signed(value) for value in (found.measured, found.expected, found.remainder))
    table.add_row(Text("in all", "bold"), *cells, Text())
    parts = "; ".join(
        f"{part.name} {ledger_waterfall.signed(part.after - part.before)}"
        + (f" ({', '.join(name for name, _ in part.functions[:MOST_SYMBOLS])})" if part.functions else "")
        for part in found.parts
    )
    return _titled("Instructions to init, net, by folder of the source tree", table, f"the remainder: {parts}")


def _causes(run: FitRun) -> Group:
    table = _table("cause", "symbols", "meaning", numbers=("symbols",))
    found = counts(run.plan.symbols)
    for cause, number in found.items():
        table.add_row(cause.value, str(number), Text(MEANING[cause], "dim"))
    table.add_row("in all", str(sum(found.values())), Text(f"{run.plan.total_y} with those that have no prompt", "dim"))
    return _titled("Symbols with a prompt, by cause", table)


def _prices(run: FitRun) -> Group:
    heads = ("symbols", "in all", "calls", "kernel", "to init", "memory")
    table = _table("margin", *heads, numbers=heads)
    without: dict[str, list[str]] = {}
    for row in margin_prices.price_rows(run):
        style = "bold" if row.chosen else ""
        name = f"{row.name} (chosen)" if row.chosen else row.name
        table.add_row(Text(name, style), *(Text(cell, style) for cell in row.figures))
        if row.note:
            without.setdefault(row.note, []).append(row.name)
    meaning = "symbols with a prompt, and in all; system calls of the table; kernel file; instructions to init, net"
    notes = "".join(f"; {', '.join(names)}: {note}" for note, names in without.items())
    return _titled("What each margin costs", table, f"{meaning}; least memory{notes}")


def _trials(run: FitRun) -> Group:
    table = _table("", "purpose", "changed", "build", "verify", "result", numbers=("", "build", "verify"))
    for trial in run.trials:
        changed = " ".join(f"{'-' if change.takes_away else '+'}{change.id}" for change in trial.changes)
        failures = "; ".join(trial.failures) or "failed"
        table.add_row(
            str(trial.number),
            Text(trial.purpose),
            Text(changed),
            figures.seconds(trial.build_seconds),
            figures.seconds(trial.verify_seconds),
            Text("passed", "green") if trial.passed else Text(failures, "red"),
        )
    return _titled(f"Trials ({plural(repairs(run), 'repair')})", table)


def _tuned(run: FitRun) -> Group:
    table = _table("change", "expected", "measured", "", "what it sets", numbers=("expected", "measured"))
    for row in tuned_changes.rows(run):
        outcome = Text(row.outcome, "green" if row.kept else "")
        table.add_row(Text(row.id), row.expected, row.measured, outcome, Text(row.settings))
    return _titled("Beside the kernel", table, tuned_changes.MEANING)


def _monitors(verdicts: Sequence[MonitorVerdict]) -> Group:
    table = _table("monitor", "version", "clock", "result")
    for row in monitor_proof.rows(verdicts):
        table.add_row(
            Text(row.monitor), Text(row.version), row.clock, Text(row.result, "green" if row.passed else "red")
        )
    return _titled("The same exercise on other monitors", table, monitor_proof.line(verdicts))


def doubts(run: FitRun) -> list[Text]:
    """Return a line for each doubt, the gravest first: failures, what is unexplained, warnings, what is absent or
    lacks, and what was never touched. A fit that is not verified has its failures alone."""

    def line(word: str, text: str, style: str = "bold yellow") -> Text:
        return Text.assemble((f"{word}  ", style), text)

    failed = run.trials[-1].failures if run.trials and not run.verified else ()
    lines = [line("failed", failure, "bold red") for failure in failed]
    if failed:  # calls that newly fail are among them
        return lines
    for call in run.degraded:
        failing = f"{call.name}({call.arguments}) answers {call.error}"
        lines.append(line("failing", f"{failing}, {plural(call.count, 'time')}", "bold red"))
    unsafe = [warning for warning in run.warnings if warning.code == PATCHED]
    lines += [line("unsafe", warning.text, "bold red") for warning in unsafe]
    lines += [line("unexplained", f"{name} is in the kernel, and no reason is on record") for name in run.unexplained]
    others = (warning for warning in run.warnings if warning not in unsafe)
    lines += [line("warning", f"{warning.text} [{warning.code}]") for warning in others]
    lines += _margin(run)
    for one in run.absent:
        what = f"{one.call.name}({one.call.arguments}) answers {one.call.error}: {one.reason}"
        lines.append(line("absent", f"{what} [{one.id}]", "bold"))
    near = margin_prices.near(run.lacks)
    lines += [line("lacks", margin_prices.lack_line(lack)) for lack in near[:MOST_LACKS]]
    if left := len(run.lacks) - len(near[:MOST_LACKS]):
        least = f"{plural(left, 'further symbol')} that files of the image could ask for: the report lists them"
        lines.append(line("lacks", least, "bold"))
    total, opened = run.untouched.files_total, run.untouched.files_opened
    if total > opened:
        share = figures.percent(total - opened, total)
        lines.append(
            line("untouched", f"the exercise never opened {total - opened} of {total} files ({share})", "bold")
        )
    for port in run.untouched.ports_never_answered:
        lines.append(line("untouched", f"port {port} is exposed and never answered", "bold"))
    return lines
