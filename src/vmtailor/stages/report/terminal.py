# SPDX-License-Identifier: Apache-2.0
"""The record of a fit as tables on the terminal."""

from __future__ import annotations

import shlex

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from vmtailor.analysis.causes import MEANING, counts
from vmtailor.base import figures
from vmtailor.model.fit import FitRun, Side
from vmtailor.stages.report.document import repairs
from vmtailor.stages.report.figures import Group as FigureGroup
from vmtailor.stages.report.figures import groups
from vmtailor.stages.report.page import PAGE


def show(run: FitRun, console: Console) -> None:
    """Print the result of a fit: the verdict, the tables, the warnings, and what to do with the bundle.

    Names that come from the image or the guest are printed as text: neither markup nor control characters work."""
    console.print(*_parts(run), sep="\n")


def _parts(run: FitRun) -> list[RenderableType]:
    parts: list[RenderableType] = [_verdict(run), Text()]
    for group in groups(run):
        if any(value is not None for row in group.rows for value in row.exact):
            parts += [_figures(group), Text()]
    parts += [_loops(run), _causes(run), Text()]
    if run.trials:
        parts += [_trials(run), Text()]
    return [*parts, *_doubts(run), _next(run)]


def _verdict(run: FitRun) -> Text:
    text = Text()
    if run.verified and not run.degraded:
        text.append("✓ verified  ", "bold green")
        text.append(f"{_plain(run.reference)} works in its own machine as it did on the baseline")
    elif run.verified:
        text.append("! verified, degraded  ", "bold yellow")
        text.append(f"right answers, but {len(run.degraded)} calls fail that worked on the baseline")
    else:
        text.append("✗ not verified  ", "bold red")
        text.append(f"{_plain(run.reference)} does not work yet in the machine that was built")
    for call in run.degraded:
        text.append(
            f"\n  {_plain(call.name)}({_plain(call.arguments)}) answers {_plain(call.error)}, {call.count} times", "red"
        )
    return text


def _table(title: str, caption: str = "") -> Table:
    return Table(
        title=Text(title, "bold"),
        title_justify="left",
        caption=Text(caption, "dim") if caption else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        header_style="dim",
        show_edge=False,
    )


def _figures(group: FigureGroup) -> Table:
    table = _table(group.title, group.conditions)
    for heading, justify in (("", "left"), ("baseline", "right"), ("tailored", "right"), ("ratio", "right")):
        table.add_column(heading, justify=justify, no_wrap=heading != "")  # type: ignore[arg-type]
    for row in group.rows:
        style = "bold" if row.strong else ""
        table.add_row(
            Text(row.title, style),
            row.baseline,
            Text(row.tailored, style),
            Text(row.ratio, "green" if "÷" in row.ratio else ""),
        )
    return table


def _loops(run: FitRun) -> RenderableType:
    sides: tuple[Side, ...] = (run.baseline, run.tailored)
    if not any(side.loops for side in sides):
        return Text()
    table = _table("Loops that only emulation causes, counted apart")
    table.add_column("")
    table.add_column("baseline", justify="right", no_wrap=True)
    table.add_column("tailored", justify="right", no_wrap=True)
    names = dict.fromkeys(loop.name for side in sides for loop in side.loops)
    for name in names:
        cells = [next((x.instructions for x in side.loops if x.name == name), None) for side in sides]
        table.add_row(Text(_plain(name)), *(figures.millions(cell) for cell in cells))
    return Group(table, Text())


def _causes(run: FitRun) -> Table:
    table = _table(
        "Symbols with a prompt, by cause", f"{run.plan.total_y} symbols =y in all; {len(run.unexplained)} unexplained"
    )
    table.add_column("cause")
    table.add_column("symbols", justify="right")
    table.add_column("meaning", style="dim")
    found = counts(run.plan.choices)
    for cause, number in found.items():
        table.add_row(cause.value, str(number), MEANING[cause])
    table.add_section()
    table.add_row("in all", str(sum(found.values())), "")
    return table


def _trials(run: FitRun) -> Table:
    table = _table("Trials", f"{repairs(run)} repairs")
    for heading, justify in (
        ("", "right"),
        ("purpose", "left"),
        ("changed", "left"),
        ("build", "right"),
        ("verify", "right"),
        ("result", "left"),
    ):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for trial in run.trials:
        changed = " ".join([*(f"+{x}" for x in trial.added), *(f"-{x}" for x in trial.removed)])
        result = (
            Text("passed", "green") if trial.passed else Text("; ".join(map(_plain, trial.failures)) or "failed", "red")
        )
        table.add_row(
            str(trial.number),
            Text(_plain(trial.purpose)),
            Text(_plain(changed)),
            figures.seconds(trial.build_seconds),
            figures.seconds(trial.verify_seconds),
            result,
        )
    return table


def _doubts(run: FitRun) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for name in run.unexplained:
        lines.append(
            Text.assemble(
                ("unexplained ", "bold yellow"), f"{_plain(name)} is in the kernel, and no reason is on record"
            )
        )
    for warning in run.warnings:
        lines.append(
            Text.assemble(("warning ", "bold yellow"), (f"[{_plain(warning.code)}] ", "dim"), _plain(warning.text))
        )
    rest = run.untouched.files_total - run.untouched.files_opened
    if rest > 0:
        share = figures.percent(rest, run.untouched.files_total)
        lines.append(
            Text.assemble(
                ("untouched ", "bold"),
                f"the exercise never opened {rest} of {run.untouched.files_total} files ({share})",
            )
        )
    for port in run.untouched.ports_never_answered:
        lines.append(Text.assemble(("untouched ", "bold"), f"port {port} is exposed and never answered"))
    return [*lines, Text()] if lines else []


def _next(run: FitRun) -> Text:
    bundle = shlex.quote(_plain(run.bundle))
    text = Text.assemble(
        ("bundle  ", "bold"), _plain(run.bundle), "\n", ("report  ", "bold"), f"{_plain(run.bundle)}/{PAGE}", "\n\n"
    )
    published = next((p.number for p in run.image.exposed_ports if p.protocol == "tcp"), None)
    publish = f" -p {published + 8000 if published < 1024 else published}:{published}" if published else ""
    example = next(
        (c.name for c in run.plan.choices if c.prompted and any(r.cause == "demanded" for r in c.reasons)), "EPOLL"
    )
    for command, what in (
        (f"vmtailor run{publish} {bundle}", "start the container in its machine"),
        (f"vmtailor explain {bundle} {example}", "why a symbol is in, or out"),
        (f"vmtailor verify {bundle} --clock wall", "prove it again, on another host"),
    ):
        text.append(f"  {command}", "cyan")
        text.append(f"   {what}\n", "dim")
    return text


def _plain(text: str) -> str:
    """Untrusted text for a terminal: control characters (escape sequences among them) are shown, not obeyed."""
    return "".join(c if c.isprintable() or c == "\u202f" else f"\\x{ord(c):02x}" for c in text)
