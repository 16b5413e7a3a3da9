# SPDX-License-Identifier: Apache-2.0
"""The page of watched machines: charts side by side on one scale, and nothing a guest said is more than text."""

from __future__ import annotations

import re

from vmtailor.analysis.watches.columns import WatchColumns
from vmtailor.analysis.watches.panels import panels
from vmtailor.analysis.watches.sample_text import Key, Sample
from vmtailor.model.machine import Clock
from vmtailor.model.machine_watch import MachineWatch, WatchedContainer, WatchedKind, WatchMark
from vmtailor.stages.report.watch_page import glance, watch_page

SECOND = 1_000_000_000
HOSTILE = "<script>alert(1)</script>"


def watched(seconds: int = 10, busy: int = 1, missing: frozenset[int] = frozenset()) -> MachineWatch:
    """A machine that is busy with `busy` of two processors, with one container that is half of it."""
    columns = WatchColumns()
    for at in range(seconds):
        values: dict[Key, int] = {
            (WatchedKind.MACHINE, "", "cpu_user_us"): 1_000_000 * busy * at,
            (WatchedKind.MACHINE, "", "memory_total_bytes"): 1 << 30,
            (WatchedKind.MACHINE, "", "memory_available_bytes"): (1 << 30) - (at << 20),
            (WatchedKind.DISK, "vda", "read_bytes"): 4096 * at,
            (WatchedKind.CONTAINER, "aaaaaaaaaaaa", "cpu_us"): 500_000 * busy * at,
            (WatchedKind.CONTAINER, "aaaaaaaaaaaa", "memory_bytes"): 1 << 20,
            (WatchedKind.INTERFACE, "lo", "sent_bytes"): 10**9 * at,
        }
        if at not in missing:
            columns.add(Sample(at * SECOND, at * SECOND, values), {(WatchedKind.HOST, "", "cpu_us"): 2_000_000 * at})
    container = WatchedContainer("aaaaaaaaaaaa", "docker", HOSTILE)
    marks = (WatchMark("step-0", 3 * SECOND, HOSTILE), WatchMark("later", 99 * SECOND))
    return columns.record("disk:x", Clock.WALL, 1000, containers=(container,), marks=marks, notes=(HOSTILE,))


def test_panels_have_the_machine_its_container_and_its_host() -> None:
    found = {panel.key: {line.name: line for line in panel.lines} for panel in panels(watched())}
    assert set(found) == {"processors", "memory", "disks"}
    cpu = found["processors"]
    assert {name: (line.mean, line.most) for name, line in cpu.items()} == {
        "programs": (1.0, 1.0), "seen by the host": (2.0, 2.0), f"{HOSTILE} aaaaaaaaaaaa": (0.5, 0.5),
    }  # fmt: skip
    assert cpu["programs"].values[0] is None
    assert found["memory"]["used in the machine"].most == 9 << 20
    assert found["disks"]["read"].mean == 4096.0


def test_machines_stand_side_by_side_on_one_scale() -> None:
    page = watch_page("two machines", (("stock", watched()), ("tailored", watched(5, busy=2))))
    assert HOSTILE not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    charts = re.findall(r'role="img" aria-label="(\w+) of (\w+)"', page)
    assert charts == [(t, name) for t in ("Processors", "Memory", "Disks") for name in ("stock", "tailored")]
    # The busier one goes to the top of the scale, the other one half as high; the shorter one ends at 4 of 9 seconds.
    stock, tailored = (re.findall(r'points="([^"]*)"', part)[0] for part in page.split("<svg")[1:3])
    assert stock.split()[-1] == "640.0,120.0" and tailored.split()[-1] == "284.4,0.0"


def test_missing_samples_are_said_and_the_whole_is_right() -> None:
    page = watch_page("x", (("x", watched(missing=frozenset({4, 5, 6}))),))
    assert "samples are missing in 1 interval" in page
    rows = {row.title: row.cells[0] for row in glance([watched(missing=frozenset({4, 5, 6}))])}
    assert rows["Processor time in programs"] == "9.00\u202fs" and rows["Samples"] == "7"


def test_a_watch_without_samples_has_a_page() -> None:
    page = watch_page("x", (("x", WatchColumns().record("x", Clock.INSTRUCTIONS, 200)),))
    assert "At a glance" in page and "<svg" not in page
