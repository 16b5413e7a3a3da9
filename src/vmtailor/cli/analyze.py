# SPDX-License-Identifier: Apache-2.0
"""`vmtailor analyze`: logs and charts of one boot → where its time went, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from vmtailor.analysis.changes import trial_command
from vmtailor.analysis.timeline.boot_json import json_chunks, to_csv, trace_events
from vmtailor.analysis.timeline.boot_page import boot_page
from vmtailor.analysis.timeline.boot_timeline import analyze as analyze_files
from vmtailor.analysis.timeline.hotspots import weight
from vmtailor.analysis.timeline.phases import phase_strip
from vmtailor.base import output as printed
from vmtailor.base.errors import UserInputError
from vmtailor.base.figures import duration, share
from vmtailor.base.files import regular_files
from vmtailor.base.terminal import Column, Group, RenderableType, Table, TerminalConsole, Text, panel
from vmtailor.base.text import encodable, plural
from vmtailor.base.verb_end import VerbEnd, show_end
from vmtailor.cli.boots import booted_log
from vmtailor.model.boots.timeline import Hotspot, MachineInfo, Timeline
from vmtailor.model.boots.timeline import Path as BootPath
from vmtailor.model.option import Option
from vmtailor.model.option_rows import BOOT, JSON, PAGE_OUT, TOP


def analyze(
    files: Annotated[
        Sequence[Path],
        Option(
            name="FILES", type=Path, many=True,
            help="Read logs and charts of one boot: kernel log, journal, systemd-analyze, bootchart, ftrace, .config; "
            "folders, compressed files and - too.",
        ),
    ],
    json: Annotated[bool, JSON] = False,
    csv: Annotated[bool, Option(name="--csv", type=bool, help="Print every item as a row of CSV.")] = False,
    trace: Annotated[
        Path | None,
        Option(name="--trace", type=Path, help="Write Chrome trace events, which open in Perfetto, to this file."),
    ] = None,
    out: Annotated[Path | None, PAGE_OUT] = None,
    top: Annotated[int, replace(TOP, help="Print this many hot spots.")] = 20,
    boot: Annotated[int, BOOT] = 0,
    ready: Annotated[
        str | None,
        Option(
            name="--ready", type=str, help="End the boot at the first message with this REGEX, or when this unit is up."
        ),
    ] = None,
) -> None:  # fmt: skip
    """Show where the time of a boot went: phases, hot spots, and the changes that would help."""
    if json and csv:
        raise UserInputError("--json and --csv exclude each other", hint="give one of them")
    timeline = analyze_files(files, boot, needs_log=True, ready=ready)
    tried = trial_command.commands(timeline, booted_log.booted(files[0]))
    if out is not None:
        regular_files.write_output(out, boot_page(timeline, _title(files), tried).encode())
        printed.note(f"written: {out}")
    if trace is not None:
        regular_files.write_output(trace, trace_events(timeline))
        printed.note(f"written: {trace} (open it at ui.perfetto.dev or in chrome://tracing)")
    if json:
        printed.json_bytes(json_chunks(timeline, tried))
    elif csv:
        printed.lines(to_csv(timeline))
    else:
        show_timeline(timeline, top)
        if tried:
            show_end(VerbEnd(commands=tried))


def _title(files: Sequence[Path]) -> str:
    return encodable(files[0].name) + (f" and {len(files) - 1} more" if len(files) > 1 else "")


COLOURS = {
    "firmware": "grey50",
    "loader": "grey62",
    "kernel": "dark_cyan",
    "initrd": "dark_goldenrod",
    "userspace": "steel_blue",
    "ready": "green",
}
#: A longer name of a hot spot is cut: a gap is named by the line before it. All of it is in the page and the document.
MOST_CHARACTERS = 70
#: Columns from which there is room for bars.
WIDE = 100
_KINDS = {"initcall": "cyan", "probe": "magenta", "gap": "yellow", "unit": "blue", "process": "green", "console": "red"}


def show_timeline(timeline: Timeline, top: int = 20) -> None:
    """Print a timeline."""
    console = TerminalConsole()
    console.print(_head(timeline))
    strip = _strip(timeline, max(20, console.width - 4))
    if strip is not None:
        console.print(strip)
    console.print(_phases(timeline))
    if timeline.hotspots:
        console.print(_hotspots(timeline, top, console.width))
    if timeline.advice:
        console.print(_advice(timeline))
    if timeline.unused:
        console.print(_unused(timeline))
    for warning in timeline.warnings:
        console.print(Text.assemble(("! ", "yellow"), (warning.code, "yellow"), ": ", warning.text))
    counts = [
        f"{len(rows)} {name}"
        for rows, name in (
            (timeline.initcalls, "initcalls"),
            (timeline.probes, "probes"),
            (timeline.units, "units"),
            (timeline.processes, "processes"),
        )
        if rows
    ]
    timed = ", ".join(counts) or "no initcalls, units or processes"
    console.print(f"{timed}. Details: --json, --csv, --trace FILE, -o PAGE.html", style="dim")


def _head(timeline: Timeline) -> RenderableType:
    kernel = timeline.kernel
    lines = []
    interface = "" if timeline.machine.hypervisor else kernel.hypervisor or ""
    words = [f"Linux {kernel.version or 'of unknown version'}", kernel.arch or "", interface]
    lines.append(Text(" · ".join(word for word in words if word), style="bold"))
    if kernel.command_line:
        lines.append(Text(kernel.command_line, style="dim"))
    if machine := _machine(timeline.machine):
        lines.append(Text(machine))
    for file in timeline.files:
        lines.append(Text.assemble((file.path, ""), ("  ", ""), (file.format, "cyan")))
    took = []
    if timeline.total_us or timeline.shown_us:
        more = "" if timeline.total_us else " or more"
        took.append(f"boot {duration(timeline.total_us or timeline.shown_us)}{more}")
    if timeline.kernel_us:
        took.append(f"kernel {duration(timeline.kernel_us)}")
    return panel(Group(*lines), " · ".join(took) or "boot")


def _machine(machine: MachineInfo) -> str:
    cpus = f"{machine.cpus} CPU{'s' if machine.cpus > 1 else ''}" if machine.cpus else ""
    kind = f"{machine.kind} ({machine.hypervisor})" if machine.hypervisor else machine.kind or ""
    cloud = f"cloud: {machine.cloud}" if machine.cloud else ""
    return " · ".join(word for word in (machine.model or "", kind, cloud, cpus) if word)


def _strip(timeline: Timeline, width: int) -> Text | None:
    """Return the phases to scale on one line; None when none has a length."""
    parts = phase_strip(timeline.phases, timeline.shown_end_us)
    if not parts:
        return None
    total = max(part.at_us + part.us for part in parts)
    strip = Text("  ")
    at = 0
    for part in parts:
        left = round(part.at_us * width / total)
        right = max(round((part.at_us + part.us) * width / total), at + 1)
        strip.append(" " * max(0, left - at))
        size = right - max(left, at)
        label = f" {part.name} {duration(part.us)}{' or more' if part.is_open else ''} "
        if size <= 0:
            continue
        colour = COLOURS.get(part.name, "white")
        strip.append(label[:size].ljust(size) if len(label) <= size else " " * size, style=f"bold white on {colour}")
        at = right
    return strip


def _phases(timeline: Timeline) -> Table:
    times = (Column(name, justify="right") for name in ("start", "end", "took"))
    table = Table("phase", *times, "how found", box=None, pad_edge=True, header_style="dim")
    for phase in timeline.phases:
        took = phase.end_us - phase.start_us if phase.end_us is not None and phase.start_us is not None else None
        table.add_row(
            Text(phase.name, style=COLOURS.get(phase.name, "")),
            duration(phase.start_us),
            duration(phase.end_us),
            "" if phase.name == "ready" else duration(took),
            Text(phase.source, style="dim"),
        )
    return table


def _name(spot: Hotspot) -> Text:
    name = spot.name if len(spot.name) <= MOST_CHARACTERS else f"{spot.name[: MOST_CHARACTERS - 1]}…"
    run = f" (run {spot.occurrence})" if spot.occurrence and spot.occurrence > 1 else ""
    run = f" ({spot.times} times)" if spot.times > 1 else run
    by = f"  {' or '.join(spot.options)}" if spot.options else ""
    return Text.assemble(name, run, (by, "dim cyan"), (" beside" if spot.path == BootPath.BESIDE else "", "dim italic"))


def _bar(spot: Hotspot, longest: int) -> Text:
    bar = "█" * max(1, round(12 * weight(spot) / longest)) if longest else ""
    return Text(bar, style="dim" if spot.path == BootPath.BESIDE else "cyan")


def _hotspots(timeline: Timeline, top: int, width: int) -> Table:
    """Return the items that took longest. Columns that would be empty, and on a narrow terminal the bars, leave their
    room to names."""
    spots = timeline.hotspots[:top]
    table = Table(
        title=f"Hot spots (the first {len(spots)})",
        title_justify="left",
        title_style="bold",
        box=None,
        header_style="dim",
    )
    longest = max((weight(spot) for spot in timeline.hotspots), default=0)
    columns: list[tuple[str, list[Text | str]]] = [
        ("kind", [Text(spot.kind, style=_KINDS.get(spot.kind, "")) for spot in spots]),
        ("name", [_name(spot) for spot in spots]),
        ("own time", [duration(spot.exclusive_us) for spot in spots]),
    ]
    if any(spot.duration_us not in (None, spot.exclusive_us) for spot in spots):
        columns.append(("took", [duration(spot.duration_us) for spot in spots]))
    if width >= WIDE:
        columns.append(("", [_bar(spot, longest) for spot in spots]))
    if any(spot.share_kernel is not None for spot in spots):
        columns.append(("of kernel", [share(spot.share_kernel) for spot in spots]))
    if any(spot.share_total is not None for spot in spots):
        columns.append(("of boot", [share(spot.share_total) for spot in spots]))
    if any(spot.advice for spot in spots):
        columns.append(("advice", [Text(", ".join(spot.advice), style="green") for spot in spots]))
    for name, _ in columns:
        if name in ("name", "advice"):
            table.add_column(name, overflow="fold", ratio=3 if name == "name" else 1)
        else:
            table.add_column(name, justify="right" if name not in ("kind", "") else "left", no_wrap=True)
    for row in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*row)
    return table


def _advice(timeline: Timeline) -> Table:
    table = Table(
        Column("saves up to", justify="right", no_wrap=True), Column("sure", no_wrap=True),
        Column("remedy", ratio=2, overflow="fold"), Column("change", ratio=3, overflow="fold"),
        title="What would help", title_justify="left", title_style="bold", box=None, header_style="dim",
    )  # fmt: skip
    for remedy in timeline.advice:
        title = Text.assemble((remedy.title, "" if remedy.applies else "dim strike"), (f"  {remedy.id}", "dim"))
        change = Text("; ".join(remedy.change)) if remedy.applies else Text(f"no longer: {remedy.why}", style="dim")
        table.add_row(
            duration(remedy.saving_us) if remedy.applies else "–",
            remedy.confidence if remedy.applies else "",
            title,
            change,
        )
    return table


def _unused(timeline: Timeline) -> Table:
    """Return the options that are built in and that the log does not use, each with the command that tries it."""
    table = Table(
        Column("option", no_wrap=True), Column("what it said, and the command that tries it", ratio=1, overflow="fold"),
        title=f"Built in, and nothing in this log uses it: {plural(len(timeline.unused), 'option')}",
        title_justify="left", title_style="bold", box=None, header_style="dim", caption_justify="left",
        caption="A program may still ask for one later: a trial runs the exercise without it.",
    )  # fmt: skip
    for one in timeline.unused:
        said = one.text if len(one.text) <= MOST_CHARACTERS else f"{one.text[: MOST_CHARACTERS - 1]}…"
        held = f"  kept on by {', '.join(one.held_by)}" if one.held_by else ""
        table.add_row(Text(one.option, style="cyan"), Text.assemble(said, (held, "yellow")))
        table.add_row("", Text(one.command, style="dim"))
    return table
