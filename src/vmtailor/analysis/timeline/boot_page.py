# SPDX-License-Identifier: Apache-2.0
"""A timeline as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vmtailor.analysis.timeline.phases import phase_strip
from vmtailor.base import pages
from vmtailor.model.boots.timeline import GapSpan, Initcall, Path, Probe, Process, Timeline, UnitSpan

if TYPE_CHECKING:
    from vmtailor.base.verb_end import NextCommand

#: Bars drawn; beyond, the shortest are left out and the page says so.
MOST_BARS = 20_000
#: Lines of the kernel that the page lists.
MOST_LINES = 5_000


def boot_page(timeline: Timeline, title: str, tries: Sequence[NextCommand] = ()) -> str:
    """Return the page. `title` is what the boot is called, such as its file's name; `tries`: commands that try its
    advice."""
    rows, left_out = _bars(timeline)
    phases = phase_strip(timeline.phases, timeline.shown_end_us)
    data = {
        "phases": [[p.name, p.start_us, p.end_us, p.source] for p in timeline.phases],
        "end": timeline.shown_end_us,
        "last": timeline.last_us,
        "bars": rows,
        "hotspots": [
            [
                h.kind,
                h.name,
                h.exclusive_us,
                h.share_kernel,
                h.share_total,
                list(h.advice),
                h.start_us,
                h.occurrence or 0,
                h.path,
                h.duration_us,
                h.times,
                list(h.options),
                h.source,
            ]
            for h in timeline.hotspots
        ],
        "lines": [[line.at_us, line.text, list(line.options), line.source] for line in timeline.lines[:MOST_LINES]],
        "samples": [
            [s.at_us, s.user, s.system, s.waiting, s.disk_read_bps, s.disk_write_bps, s.disk_busy]
            for s in timeline.samples
        ],
    }
    return pages.render(
        "boot.html",
        data=data,
        styles=["boot.css"],
        scripts=["boot.js"],
        values={
            "title": title,
            "timeline": timeline,
            "left_out": left_out,
            "phases": phases,
            "tries": tries,
        },
    )


def _bars(timeline: Timeline) -> tuple[list[list[Any]], int]:
    """[kind, name, start, duration, own time, beside, occurrence, source, returned, reported] of all that has a place
    on the clock."""
    rows: list[list[Any]] = []
    for call in timeline.initcalls:
        if call.bar_us is not None:
            name = f"{call.name} [{call.module}]" if call.module else call.name
            rows.append(_called("initcall", name, call.bar_us[0], call))
    for probe in timeline.probes:
        if probe.start_us is not None and probe.duration_us is not None:
            rows.append(_called("probe", probe.name, probe.start_us, probe))
    for unit in timeline.units:
        if unit.start_us is not None and unit.duration_us is not None:
            rows.append(_started("unit", unit, unit.critical is False, 1))
    for gap in timeline.gaps:
        rows.append(_silence(gap))
    for process in timeline.processes:
        if process.start_us is not None and process.duration_us is not None:
            rows.append(_started("process", process, process.observer, process.pid or 0))
    if len(rows) > MOST_BARS:
        rows.sort(key=lambda row: -row[3])
        left_out = len(rows) - MOST_BARS
        rows = rows[:MOST_BARS]
    else:
        left_out = 0
    rows.sort(key=lambda row: (row[2], -row[3]))
    return rows, left_out


def _called(kind: str, name: str, start_us: int, one: Initcall | Probe) -> list[Any]:
    """Return the row of what the kernel called: it returns, and says how long it took."""
    return [
        kind, name, start_us, one.duration_us, one.exclusive_us, one.path == Path.BESIDE, one.occurrence,
        one.duration_source, one.returned, one.reported_us,
    ]  # fmt: skip


def _silence(gap: GapSpan) -> list[Any]:
    """Return the row of a gap. Its source is what stood before and after."""
    length = gap.end_us - gap.start_us
    around = f"after: {gap.before}\nuntil: {gap.after}"
    return ["gap", gap.name, gap.start_us, length, length, False, 1, around, None, None]


def _started(kind: str, one: UnitSpan | Process, beside: bool, occurrence: int) -> list[Any]:
    """The row of what was started in user space."""
    return [
        kind, one.name, one.start_us, one.duration_us, one.exclusive_us, beside, occurrence, one.duration_source,
        None, None,
    ]  # fmt: skip
