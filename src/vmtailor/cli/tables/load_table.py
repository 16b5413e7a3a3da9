# SPDX-License-Identifier: Apache-2.0
"""Results of loads on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from vmtailor.analysis.cost import request_costs
from vmtailor.analysis.guests import load_faults, load_rows
from vmtailor.base import figures
from vmtailor.base.terminal import Column, Table, TerminalConsole, Text, box
from vmtailor.base.text import plain
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.load_result import LoadResult


def show_loads(boots: Sequence[Boot], console: TerminalConsole) -> None:
    """Print the loads of the first boot that has any, and how far the other boots differ."""
    loaded = [boot for boot in boots if boot.container is not None and boot.container.loads]
    if not loaded:
        return
    first = loaded[0]
    assert first.container is not None
    for load in first.container.loads:
        console.print(_stages(load))
        for sentence in _words(load):
            console.print(Text(sentence))
    console.print(Text(load_rows.LEGEND, style="dim"))
    if sentence := costs(first):
        console.print(Text(sentence))
    others = [boot for boot in loaded[1:] if boot.container and boot.container.loads != first.container.loads]
    if len(loaded) > 1:
        same = "the same in every boot" if not others else f"otherwise in {len(others)} of {len(loaded)} boots"
        console.print(Text(same, style="dim"))


def rows(load: LoadResult) -> list[tuple[str, ...]]:
    """Return a row for each stage, in the order of its rate."""
    return [load_rows.row(stage) for stage in sorted(load.stages, key=lambda stage: stage.rate or 0)]


def costs(boot: Boot) -> str:
    """Return a sentence on the instructions of a request; empty where they were not counted."""
    if (outer := request_costs.from_host(boot)) is not None:
        return (
            f"a request from the lab takes {figures.short(outer.kernel)} instructions of the guest's kernel, "
            f"{figures.short(outer.user)} of its program, {figures.short(outer.host)} of the lab's kernel, "
            f"{figures.short(outer.client)} of the client and the monitor, and {outer.exits:.1f} exits"
        )
    cost = request_costs.of_boot(boot)
    if cost is None:
        return ""
    parts = ((cost.kernel, "kernel"), (cost.user, "program"), (cost.client_kernel, "kernel for the client"))
    said = ", ".join(f"{figures.short(count)} {name}" for count, name in (*parts, (cost.client_user, "client")))
    return (
        f"{figures.short(cost.whole)} instructions a request ({said}): "
        f"one processor at 1 ns each gives {figures.grouped(cost.most)} a second"
    )


def _words(load: LoadResult) -> list[str]:
    found = []
    if load.knee is not None:
        held, broken = load.knee
        found.append(f"{figures.grouped(held)} a second were held, {figures.grouped(broken)} were not")
    if load.fine_ns > 1_000_000 and any(stage.rate for stage in load.stages):
        found.append(f"the guest's timers were right to {load.fine_ns / 1e6:g} ms only: so late may each request be")
    for stage in load.stages:
        if why := load_faults.of_stage(stage):
            found.append(why)
    return found


def _stages(load: LoadResult) -> Table:
    shown = rows(load)
    # Percentiles that no stage supports only make the others fold.
    kept = [at for at, head in enumerate(load_rows.HEADS) if head[0] != "p" or any(row[at] != "–" for row in shown)]
    numbers = (Column(load_rows.HEADS[at], justify="right") for at in kept)
    table = Table(*numbers, title=plain(load.title), title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    for row in shown:
        table.add_row(*(row[at] for at in kept))
    return table
