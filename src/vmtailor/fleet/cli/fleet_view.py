# SPDX-License-Identifier: Apache-2.0
"""A fleet while it works: a table by image on a terminal, a line a minute elsewhere; and its table at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from vmtailor.base import figures, output
from vmtailor.base.terminal import Column, Table, TerminalConsole, Text, box, folding
from vmtailor.base.text import plural
from vmtailor.fleet.model.fleet_record import FleetImage, FleetRecord, ImageStanding
from vmtailor.fleet.run.dask_engine import SeenSlot
from vmtailor.fleet.run.graph import Graph

#: Seconds between two tables, and between two lines.
TABLE_S, LINE_S = 2.0, 60.0
#: Lines of a terminal that are no image's.
_OTHERS = 6
_MARKS = {ImageStanding.DONE: "✓", ImageStanding.FAILED: "✗", ImageStanding.RUNNING: "…", ImageStanding.WAITING: " "}


class FleetView:
    """Shows how far each image is, on standard error. `live`: a table that is drawn again, on a terminal."""

    def __init__(self, *, live: bool | None = None) -> None:
        self._live = sys.stderr.isatty() if live is None else live
        self._shown = 0.0
        self._told: set[str] = set()

    def show(self, work: Graph, slots: Sequence[SeenSlot], record: FleetRecord) -> None:
        """Show how things stand, where it is time for it. What ends is said at once, where there is no terminal."""
        if not self._live:
            self._say_ended(record)
        if time.monotonic() - self._shown < (TABLE_S if self._live else LINE_S):
            return
        self._shown = time.monotonic()
        if self._live:
            self._draw(work, len(slots))
        else:
            output.note(line(work, len(slots)))

    def _say_ended(self, record: FleetRecord) -> None:
        for one in record.images:
            name = one.entry.name
            if one.standing in (ImageStanding.DONE, ImageStanding.FAILED) and name not in self._told:
                if self._shown:  # else it was so before
                    output.note(f"{_MARKS[one.standing]} {name}" + (f": {one.says}" if one.says else ""))
                self._told.add(name)

    def _draw(self, work: Graph, slots: int) -> None:
        console = TerminalConsole(stderr=True)
        console.clear()
        table = Table(
            *folding("image", "stage", "worker"), Column("since", justify="right"), "left", box=box.SIMPLE_HEAD
        )
        rows = sorted(work.works, key=lambda one: (work.standing(one) is not ImageStanding.RUNNING, one.index))
        room = max(5, console.height - _OTHERS)
        for one in rows[:room]:
            running = work.tasks_of(one)
            standing = work.standing(one)
            stage = ", ".join(task.part for task in running) or standing.value
            worker = ", ".join(dict.fromkeys(task.worker for task in running))
            since = figures.seconds(time.monotonic() - min(task.since for task in running)) if running else ""
            left = (
                "" if standing in (ImageStanding.DONE, ImageStanding.FAILED) else plural(len(work.left(one)), "stage")
            )
            table.add_row(f"{_MARKS[standing]} {one.entry.name}", stage, worker, since, left)
        console.print(table)
        if len(rows) > room:
            console.print(Text(f"and {plural(len(rows) - room, 'further image')}", "dim"))
        console.print(Text(line(work, slots), "dim"))


def line(work: Graph, slots: int) -> str:
    """Return one line about all of it."""
    standings = [work.standing(one) for one in work.works]
    done, failed = standings.count(ImageStanding.DONE), standings.count(ImageStanding.FAILED)
    failures = f", {failed} failed" if failed else ""
    return (
        f"{done} of {plural(len(standings), 'image')} done{failures}; {plural(len(work.running), 'task')} running on "
        f"{plural(slots, 'slot')}, {len(work.waiting)} waiting"
    )


def table(record: FleetRecord) -> Table:
    """Return the table of a fleet: each image with the size of its kernel, its instructions to init, its kernel's key
    and its failure. References are on its page."""
    right = (Column("kernel", justify="right"), Column("to init", justify="right", no_wrap=True))
    made = Table(
        "", *folding("image"), *right, Column("kernel key", no_wrap=True), *folding("failure"), box=box.SIMPLE_HEAD
    )
    for one in record.images:
        known = dict(one.figures)
        made.add_row(
            _mark(one), one.entry.name,
            figures.file_bytes(known["kernel_bytes"]) if "kernel_bytes" in known else "",
            figures.millions(known.get("init_instructions")) if "init_instructions" in known else "",
            one.kernel[:12], f"{one.failed_in}: {one.says}" if one.failed_in else one.says,
        )  # fmt: skip
    return made


def _mark(one: FleetImage) -> str:
    return "✗" if one.verified_again is False else _MARKS[one.standing]
