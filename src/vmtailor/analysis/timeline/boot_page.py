# SPDX-License-Identifier: Apache-2.0
"""A timeline as one self-contained HTML page."""

from __future__ import annotations

from typing import Any

from vmtailor.base import pages
from vmtailor.model.timeline import Path, Timeline

#: Bars drawn; beyond, the shortest are left out and the page says so.
MOST_BARS = 20_000


def boot_page(timeline: Timeline, title: str) -> str:
    """The page. `title` is what the boot is called, such as its file's name."""
    rows, left_out = _bars(timeline)
    data = {
        "phases": [[p.name, p.start_us, p.end_us, p.source] for p in timeline.phases],
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
            ]
            for h in timeline.hotspots
        ],
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
        values={"title": title, "timeline": timeline, "left_out": left_out, "phases": _strip(timeline)},
    )


def _strip(timeline: Timeline) -> list[dict[str, Any]]:
    known = [(p, p.start_us, p.end_us) for p in timeline.phases if p.start_us is not None and p.end_us is not None]
    if not known:
        return []
    first = min(start for _, start, _ in known)
    total = max(end for _, _, end in known) - first
    return [
        {
            "name": p.name,
            "us": end - start,
            "x": 100 * (start - first) / total,
            "width": 100 * (end - start) / total,
            "source": p.source,
        }
        for p, start, end in known
        if total and end > start
    ]


def _bars(timeline: Timeline) -> tuple[list[list[Any]], int]:
    """[kind, name, start, duration, own time, beside, occurrence, source, returned, reported] of all that has a place
    on the clock."""
    rows: list[list[Any]] = []
    for call in timeline.initcalls:
        if call.start_us is not None and call.duration_us is not None:
            # Drawn so that it ends where its line says: the printing before it is not its own.
            start = call.end_us - call.duration_us if call.end_us is not None else call.start_us
            name = f"{call.name} [{call.module}]" if call.module else call.name
            rows.append(
                [
                    "initcall",
                    name,
                    start,
                    call.duration_us,
                    call.exclusive_us,
                    call.path == Path.BESIDE,
                    call.occurrence,
                    call.duration_source,
                    call.returned,
                    call.reported_us,
                ]
            )
    for probe in timeline.probes:
        if probe.start_us is not None and probe.duration_us is not None:
            rows.append(
                [
                    "probe",
                    probe.name,
                    probe.start_us,
                    probe.duration_us,
                    probe.exclusive_us,
                    probe.path == Path.BESIDE,
                    probe.occurrence,
                    probe.duration_source,
                    probe.returned,
                    probe.reported_us,
                ]
            )
    for unit in timeline.units:
        if unit.start_us is not None and unit.duration_us is not None:
            rows.append(
                [
                    "unit",
                    unit.name,
                    unit.start_us,
                    unit.duration_us,
                    unit.exclusive_us,
                    unit.critical is False,
                    1,
                    unit.duration_source,
                    None,
                    None,
                ]
            )
    for process in timeline.processes:
        if process.start_us is not None and process.duration_us is not None:
            rows.append(
                [
                    "process",
                    process.name,
                    process.start_us,
                    process.duration_us,
                    process.exclusive_us,
                    process.observer,
                    process.pid or 0,
                    process.duration_source,
                    None,
                    None,
                ]
            )
    if len(rows) > MOST_BARS:
        rows.sort(key=lambda row: -row[3])
        left_out = len(rows) - MOST_BARS
        rows = rows[:MOST_BARS]
    else:
        left_out = 0
    rows.sort(key=lambda row: (row[2], -row[3]))
    return rows, left_out
