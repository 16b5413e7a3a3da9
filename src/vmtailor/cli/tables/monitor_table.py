# SPDX-License-Identifier: Apache-2.0
"""Tables of a monitor's cost in the lab, for a terminal."""

from __future__ import annotations

from vmtailor.base.figures import millions
from vmtailor.base.terminal import Column, Table, TerminalConsole, Text, box
from vmtailor.base.text import plain
from vmtailor.model.boots.exits import MonitorCost, MonitorPart

#: Accesses that are listed; all are in the record.
MOST_PLACES = 12
_FAULTS = "page fault"
#: The title, and what the narrow columns are.
PARTS = "instructions of each part"
LEGEND = (
    "host: its kernel (bytes: of it, cleared and copied one by one); guest: its kernel; user: its programs; "
    "to it: exits that the monitor answered"
)


def show_monitor(cost: MonitorCost, console: TerminalConsole) -> None:
    """Print each part of a boot, exits by cause, and what they were about."""
    parts = _table(
        PARTS,
        ("from", "to"),
        ("host", "bytes", "monitor", "guest", "user", "exits"),
    )
    until = cost.until("ready")
    for one in (*cost.parts, *((until,) if until is not None else ())):
        parts.add_row(plain(one.begin), plain(one.end), *_counts(one), style="bold" if one is until else "")
    console.print(parts)
    console.print(Text(LEGEND, style="dim"))
    if cost.waited_ns is not None:
        console.print(Text(f"the lab waited for {cost.waited_ns / 1e6:.1f} ms besides", style="dim"))
    if cost.causes:
        rows = _table("exits until ready", ("cause",), ("exits", "to it", "host", "monitor", "each"))
        for cause in cost.causes:
            whole = cause.host_kernel + cause.host_user
            rows.add_row(
                plain(cause.cause), f"{cause.exits:,}", f"{cause.to_monitor:,}", millions(cause.host_kernel),
                millions(cause.host_user), f"{whole // max(1, cause.exits):,}",
            )  # fmt: skip
        console.print(rows)
    if cost.small_pages is not None and until is not None:
        small = cost.small_pages
        parts = _table("the same without huge pages", ("",), ("executed", "by bytes", "exits", _FAULTS))
        for name, one, causes in (("with", until, cost.causes), ("without", small.until, small.causes)):
            faults = sum(row.exits for row in causes if row.cause == _FAULTS)
            parts.add_row(name, millions(one.executed), millions(one.by_bytes), f"{one.exits:,}", f"{faults:,}")
        console.print(parts)
    if cost.places:
        rows = _table("what exits were about (another boot)", ("event", "device"), ("exits",))
        for place in cost.places[:MOST_PLACES]:
            rows.add_row(plain(place.event), plain(place.title), f"{place.exits:,}")
        if more := cost.places[MOST_PLACES:]:
            rows.add_row("", f"{len(more)} others", f"{sum(one.exits for one in more):,}")
        console.print(rows)


def _counts(part: MonitorPart) -> tuple[str, ...]:
    counts = (part.host_kernel, part.by_bytes, part.host_user, part.guest_kernel, part.guest_user)
    return (*(millions(count) for count in counts), f"{part.exits:,}")


def _table(title: str, names: tuple[str, ...], counts: tuple[str, ...]) -> Table:
    columns = (Column(name, justify="right") for name in counts)
    return Table(*names, *columns, title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
