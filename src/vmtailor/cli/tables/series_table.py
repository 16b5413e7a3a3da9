# SPDX-License-Identifier: Apache-2.0
"""Series of boots on a terminal and as a JSON document."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from vmtailor.analysis.cost import load_latency, request_costs
from vmtailor.analysis.statistics.boot_statistics import Summary, summarise
from vmtailor.base.figures import millions
from vmtailor.base.files import plain_files
from vmtailor.base.terminal import BREAK, Column, Table, TerminalConsole, Text, box
from vmtailor.base.text import plural
from vmtailor.base.verb_end import NextCommand, VerbEnd, VerdictMark, show_end
from vmtailor.cli.tables.load_table import show_loads
from vmtailor.cli.tables.monitor_table import show_monitor
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.load_result import BUCKET_SHARE
from vmtailor.model.boots.series import BootSeries, JudgedBy
from vmtailor.model.change import Change, Effect, Figure, Verdict
from vmtailor.model.machine import Clock

#: Bytes at the end of a console among which its last lines are looked for.
_END_BYTES = 64 << 10
_COLOURS = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.SAME: "dim", Verdict.UNDECIDED: "yellow"}


_JUDGED = {
    JudgedBy.READY: "the time of ready",
    JudgedBy.INSTRUCTIONS: "instructions executed from kernel entry to init",
    JudgedBy.CPU: "QEMU's processor time up to ready",
    JudgedBy.REQUEST_KERNEL: "instructions of the kernel for a request of the load",
    JudgedBy.REQUEST: "instructions of kernel and programs for a request of the load",
    **{by: f"latency under the load's rate, {by} in virtual time" for by in JudgedBy if by.percentile is not None},
}
#: Unit of a table's savings, and how many of the figure's are one; seconds for all others.
_UNITS = {
    JudgedBy.INSTRUCTIONS: ("M instr", 1e6),
    JudgedBy.REQUEST_KERNEL: ("k instr a request", 1e3),
    JudgedBy.REQUEST: ("k instr a request", 1e3),
    **{by: ("µs", 1e-6) for by in JudgedBy if by.percentile is not None},
}
#: Columns beside the figures that are judged by.
_BESIDE = {
    "k kernel a request": (Figure.REQUEST_KERNEL, 1e3),
    "k a request": (Figure.REQUEST, 1e3),
    "wall s": (Figure.WALL, 1.0),
    "cpu s": (Figure.CPU, 1.0),
}


def summaries(series: BootSeries, variant: str) -> list[tuple[str, Summary]]:
    """Return figures by milestone over the boots of a variant that got ready, in the order of time."""
    values: dict[str, list[float]] = {}
    for boot in series.of(variant):
        if boot.outcome is Outcome.READY:
            for mark in boot.milestones:
                at = mark.seconds(series.clock)
                if at is not None:
                    values.setdefault(mark.name, []).append(at)
        if boot.outcome is Outcome.READY and boot.cpu_s is not None:
            values.setdefault("host processor time", []).append(boot.cpu_s)
    found = [(name, summary) for name, numbers in values.items() if (summary := summarise(numbers)) is not None]
    return sorted(found, key=lambda pair: (pair[0] == "host processor time", pair[1].median))


def document(series: BootSeries, out: Path) -> dict[str, Any]:
    """Return the JSON document: the record with every raw sample, and its figures."""
    record = msgspec.to_builtins(series)
    figures = {
        one.name: {name: msgspec.to_builtins(summary) for name, summary in summaries(series, one.name)}
        for one in series.variants
    }
    return {"schema": series.SCHEMA, "folder": str(out), "figures": figures, **record}


def show(series: BootSeries, out: Path, console: TerminalConsole) -> None:
    """Print a series for a person."""
    base = series.variants[0]
    _milestones(series, base.name, console)
    _failures(series, out, console)
    if series.trials:
        _trials(series, console)
    show_loads(series.of(base.name), console)
    monitor = next((boot.monitor for boot in series.of(base.name) if boot.monitor is not None), None)
    if monitor is not None:
        show_monitor(monitor, console)
    clock = "virtual time (instructions executed, and waits)" if series.clock is Clock.INSTRUCTIONS else "host time"
    console.print(Text(f"{clock}, {base.machine.accelerator}", style="dim"))
    log = f"{out}/{base.name}-1/console.log"
    where = NextCommand("Show where the time went", ("vmtailor", "analyze", log))
    show_end(VerbEnd(files=(("consoles and records", str(out)),), commands=(where,)), console)


def _milestones(series: BootSeries, variant: str, console: TerminalConsole) -> None:
    boots = series.of(variant)
    good = sum(b.outcome is Outcome.READY for b in boots)
    sign = (VerdictMark.GOOD if good == len(boots) else VerdictMark.BAD).value[0]
    title = f"{sign} {series.subject}: {good} of {plural(len(boots), 'boot')} ready ({series.ready})"
    seconds = (Column(name, justify="right") for name in ("median s", "95 %", "min", "max"))
    table = Table("milestone", *seconds, title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    for name, summary in summaries(series, variant):
        if summary.two_modes:
            low, high = summary.modes
            middle = Text(f"{_s(low.median)} ({low.count}×) or {_s(high.median)} ({high.count}×)", style="yellow")
            table.add_row(name, middle, Text("two modes", style="yellow"), _s(summary.min), _s(summary.max))
            continue
        interval = f"{_s(summary.low)} – {_s(summary.high)}"
        table.add_row(name, _s(summary.median), interval, _s(summary.min), _s(summary.max))
    console.print(table)
    counted = [b.instructions for b in boots if b.instructions is not None]
    whole = [m.executed for b in boots if (m := b.milestone("ready")) is not None and m.executed is not None]
    in_lab = any(boot.monitor is not None for boot in boots)
    begin = "the monitor's exec" if in_lab else "QEMU's start"
    for counts, way in ((counted, "from kernel entry to init"), (whole, f"from {begin} to ready")):
        if counts:
            differ = f", the boots differ by {max(counts) - min(counts):,}" if len(counts) > 1 else ""
            console.print(Text(f"{millions(statistics.median(counts))} instructions {way}{differ}"))


def _s(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds >= 10 else f"{seconds:.3f}"


def _failures(series: BootSeries, out: Path, console: TerminalConsole) -> None:
    for one in series.boots:
        boot, name = one.boot, f"{one.variant} {one.number}"
        for warning in boot.kernel_warnings[:3]:
            console.print(Text(f"{name}: warning: {warning}", style="yellow"))
        if boot.failed_units:
            console.print(Text(f"{name}: failed units: {', '.join(boot.failed_units)}", style="yellow"))
        if boot.outcome is Outcome.READY:
            continue
        console.print(Text(f"{name}: {boot.outcome}: {boot.problem}", style="red"))
        # An earlier run may have left the folder, and that may have been a stranger's: only its own files are read.
        names = [f"{one.folder}/{log}" for log in ("console.times.log", "console.log")]
        name = next((log for log in names if plain_files.has(out, log)), "")
        if one.variant == series.variants[0].name and name:
            for line in _end_of(out, name).splitlines()[-12:]:
                console.print(Text(f"  │ {line[:200]}", style="dim"))
        console.print(Text(f"  its console: {out / (name or names[-1])}", style="dim"), soft_wrap=True)


def _end_of(folder: Path, name: str) -> str:
    """Return the last bytes of a file of a folder as text."""
    with plain_files.opened(folder, name) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _END_BYTES))
        return file.read(_END_BYTES).decode("utf-8", "replace")


def _trials(series: BootSeries, console: TerminalConsole) -> None:
    unit, per = _UNITS.get(series.judged_by, ("s", 1.0))
    # On the wall clock, what is judged by is that very figure.
    own = {JudgedBy.READY: "wall s", JudgedBy.REQUEST_KERNEL: "k kernel a request", JudgedBy.REQUEST: "k a request"}
    # What is done under load takes as long as the host likes: only its instructions are shown.
    hidden = {own.get(series.judged_by, ""), *(("wall s", "cpu s") if series.judged_by.of_load else ())}
    shown = [name for name in _BESIDE if name not in hidden]
    columns = [name for name in shown if any(_more(one, name) is not None for one in series.trials)]
    savings = (Column(name, justify="right") for name in ("predicted", "measured", "95 %", *columns))
    table = Table(
        Column("change", min_width=30), *savings, "verdict",
        title=f"changes tried, savings in {unit}", title_justify="left", box=box.SIMPLE_HEAD, title_style="bold",
    )  # fmt: skip
    order = sorted(
        series.trials, key=lambda t: (t.id == "together", not t.measured, t.measured[0].value if t.measured else 0.0)
    )
    for one in order:
        table.add_row(*_trial_row(one, per, columns))
    console.print(table)
    virtual = series.judged_by is JudgedBy.READY and series.clock is Clock.INSTRUCTIONS
    judged = "the virtual time of ready" if virtual else _JUDGED[series.judged_by]
    judged += f", and by {_JUDGED[series.also]}" if series.also is not None else ""
    console.print(Text(f"judged by {judged}; + is a saving", style="dim"))
    if moved := _moved(series):
        console.print(Text(moved, style="dim"))
    if series.interaction is not None:
        more = "more" if series.interaction >= 0 else "less"
        size = abs(series.interaction) / per
        console.print(Text(f"together the changes save {size:.2f} {unit} {more} than the sum of each alone"))


def _moved(series: BootSeries) -> str:
    """Return a sentence on the effect of meaningless words on the unchanged machine; empty when none were tried."""
    if series.judged_by.percentile is not None:
        return _latency_moved(series, series.judged_by.percentile)
    if series.judged_by.of_load:
        return _load_moved(series)
    before = [at for one in series.of(series.variants[0].name) if (at := one.at("ready", series.clock)) is not None]
    after = [at for one in series.controls if (at := one.at("ready", series.clock)) is not None]
    if not before or not after:
        return ""
    most = max(abs(at - statistics.median(before)) for at in after)
    return f"a word that means nothing moves it by up to {_s(most)} s: what is less is no saving"


def _load_moved(series: BootSeries) -> str:
    """Return that sentence for the load, in the kernel's instructions a request."""
    base = [cost.kernel for one in series.of(series.variants[0].name) if (cost := request_costs.of_boot(one))]
    moved = [cost.kernel for one in series.controls if (cost := request_costs.of_boot(one))]
    if not base or not moved:
        return ""
    most = max(abs(one - statistics.median(base)) for one in moved)
    return f"a word that means nothing moves it by up to {most / 1e3:.2f} k instr a request: what is less is no saving"


def _latency_moved(series: BootSeries, share: float) -> str:
    """Return that sentence for a latency under load."""
    base = [at for one in series.of(series.variants[0].name) if (at := load_latency.of_boot(one, share)) is not None]
    moved = [at for one in series.controls if (at := load_latency.of_boot(one, share)) is not None]
    if not base or not moved:
        return ""
    most = max(abs(one - statistics.median(base)) for one in moved)
    return (
        f"a word that means nothing moves it by up to {most / 1e3:.2f} µs, and it is right to "
        f"{BUCKET_SHARE:.1%}: what is less is no saving"
    )


def _more(one: Change, name: str) -> Effect | None:
    return one.measures(_BESIDE[name][0])


def _trial_row(one: Change, per: float, more: Sequence[str]) -> tuple[Text | str, ...]:
    change = Text(one.id, style="bold" if one.id == "together" else "")
    measured = one.measured[0] if one.measured else None
    interval = "–" if measured is None else f"{-measured.high / per:.2f} – {-measured.low / per:.2f}"
    interval = "exact" if measured is not None and measured.low == measured.high else interval
    untried = bool(one.problem) and measured is None and one.verdict is Verdict.UNDECIDED
    # The reason why a change is not tried is all that its row has to say.
    text = one.problem if untried else (one.problem or one.does)[:90]
    change.append(BREAK).append(text, style="red" if one.problem else "dim")
    verdict = Text("not tried" if untried else str(one.verdict), style="dim" if untried else _COLOURS[one.verdict])
    figures = (_saving(one.expected[0] if one.expected else None, per), _saving(measured, per), interval)
    return change, *figures, *(_saving(_more(one, name), _BESIDE[name][1]) for name in more), verdict


def _saving(effect: Effect | None, per: float = 1.0) -> str:
    """Return the saving, so that more is better."""
    return "–" if effect is None else f"{0.0 - effect.value / per:+.2f}"
