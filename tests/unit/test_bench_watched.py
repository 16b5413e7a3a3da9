# SPDX-License-Identifier: Apache-2.0
"""The table of watched tasks: what figures grow by in each step, from the last sample before it to the last within."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fakes.tools import load_tool

from vmtailor.model.machine import Clock
from vmtailor.model.machine_watch import MachineWatch, WatchedKind, WatchMark, WatchSeries

SECOND = 10**9
MARKS = (
    WatchMark("ready", 1 * SECOND),
    WatchMark("step-0", 2 * SECOND, r"sh -c # update the index\x0aset -e\x0aapt-get update\x0a"),
    WatchMark("step-1", 4 * SECOND, "sleep 3"),
    WatchMark("load_end", 7 * SECOND),
    WatchMark("stop", 8 * SECOND),
)


def watched(*series: WatchSeries, marks: tuple[WatchMark, ...] = MARKS) -> MachineWatch:
    times = tuple(second * SECOND for second in range(1, 9))
    return MachineWatch("0", "x", Clock.INSTRUCTIONS, 1000, times, times, series, marks=marks)


def bench_watched() -> Any:
    return load_tool("bench_watched")


def test_each_step_has_what_grew_in_it() -> None:
    machine = WatchSeries(WatchedKind.MACHINE, "", "cpu_user_us", (0, 1, 2, 500_002, 500_003, 500_004, 500_005, 9**9))
    kernel = WatchSeries(WatchedKind.MACHINE, "", "cpu_system_us", (0, 0, 0, 250_000, 250_000, 250_000, 250_000, 9**9))
    first = WatchSeries(WatchedKind.CONTAINER, "a", "cpu_us", (None, None, 10, 70_000, 70_000, 80_000, None, None))
    second = WatchSeries(
        WatchedKind.CONTAINER, "b", "memory_bytes", (None, None, 1 << 20, 2 << 20, 3 << 20, 5 << 20, 4 << 20, 0)
    )
    update, rest = bench_watched().tasks(watched(machine, kernel, first, second))
    assert (update.name, rest.name) == ("update the index", "sleep 3")
    assert (update.seconds, rest.seconds) == (2.0, 3.0)
    assert update.kernel == 0.25 and update.work == pytest.approx(0.750001) and rest.kernel == 0
    assert update.containers == 0.07 and rest.containers == pytest.approx(0.01)
    assert (update.held, rest.held) == (2 << 20, 4 << 20)


def test_the_table_leaves_out_what_is_nothing_on_both_sides() -> None:
    tool = bench_watched()
    kernel = WatchSeries(WatchedKind.MACHINE, "", "cpu_system_us", (0, 0, 0, 250_000, 250_000, 250_000, 250_000, 0))
    text = tool.table(tool.tasks(watched()), tool.tasks(watched(kernel)))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    assert rows[0] == ["update the index", "seconds of the machine's clock", "2.00", "2.00"]
    assert ["", "of it kernel, s", "0.00", "0.25"] in rows and not any("disks" in row[1] for row in rows)


def test_a_watch_without_steps_has_no_tasks() -> None:
    with pytest.raises(ValueError, match="no steps"):
        bench_watched().tasks(watched(marks=()))
