# SPDX-License-Identifier: Apache-2.0
"""`vmtailor watch`: a machine's figures over time, in one page."""

from __future__ import annotations

from functools import partial

import typer

from vmtailor.base import output
from vmtailor.base.errors import ExitCode
from vmtailor.base.files import records
from vmtailor.base.progress import step
from vmtailor.base.terminal import Text
from vmtailor.base.text import plain, plural
from vmtailor.base.verb_end import EndVerdict, NextCommand, VerbEnd, VerdictMark, show_end
from vmtailor.cli.boots.boot_machine import machine_for
from vmtailor.cli.boots.boot_output import telling
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.machine_watch import RECORD
from vmtailor.pipeline import machine_watches
from vmtailor.pipeline.machine_watches import Watched, WatchOptions
from vmtailor.pipeline.options import BootOptions
from vmtailor.stages.report.watch_page import glance


def watch(asked: WatchOptions) -> None:
    """Watch a machine over time: processors, load, memory, disks and network of the machine, of each container in it,
    and as its host sees it.

    The steps of its exercise are marked. An exercise that fails is shown all the same, and the exit code is 5."""
    machine = BootOptions(
        kernel=asked.kernel, initrd=asked.initrd, append=asked.append, memory_bytes=asked.memory_bytes,
        cpus=asked.cpus, accelerator=asked.accelerator, clock=asked.clock,
    )  # fmt: skip
    with step(f"watch {plain(asked.subject)}") as progress:
        found = machine_watches.watch(asked, partial(machine_for, machine), telling(progress, 1))
    if asked.json:
        output.json_bytes([records.to_bytes(found.watch)])
    else:
        _show(asked, found)
    if found.boot is not None and found.boot.outcome is not Outcome.READY:
        raise typer.Exit(ExitCode.GUEST)


def _show(asked: WatchOptions, found: Watched) -> None:
    watch, boot = found.watch, found.boot
    good = boot is None or boot.outcome is Outcome.READY
    seen = f"{plural(len(watch.times_ns), 'sample')}, {plural(len(watch.containers), 'container')}"
    rows = [Text(f"{row.title:34}{row.cells[0]}") for row in glance([watch])]
    files = [("the page", str(found.page)), ("the record", str(asked.out / RECORD))]
    if asked.open_metrics is not None:
        files.append(("OpenMetrics text", str(asked.open_metrics)))
    show_end(
        VerbEnd(
            verdict=EndVerdict(
                VerdictMark.GOOD if good else VerdictMark.BAD,
                f"watched: {seen}",
                plain(boot.problem) if boot is not None and not good else "",
            ),
            notes=[*rows, *(Text(note) for note in (*watch.notes, *found.notes))],
            files=files,
            commands=[NextCommand("open the page", ("xdg-open", str(found.page)))],
            more="in the record",
        )
    )
