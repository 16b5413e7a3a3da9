# SPDX-License-Identifier: Apache-2.0
"""One made-up boot as every document shows it: rows for a spreadsheet, trace events, bars of the page, hot spots."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from vmtailor.analysis.timeline import boot_page, hotspots
from vmtailor.analysis.timeline.boot_json import from_json, json_chunks, to_csv, trace_events
from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.timeline import (
    ConsoleCost,
    GapSpan,
    Hotspot,
    Initcall,
    KernelInfo,
    PhaseSpan,
    Probe,
    Process,
    Timeline,
    UnitSpan,
    UseSample,
)

BOOT = Timeline(
    KernelInfo("6.1"),
    phases=(PhaseSpan("kernel", 0, 100_000, "log"), PhaseSpan("userspace", 100_000, None, "log")),
    initcalls=[
        Initcall("a_init", "mod", 1, 1000, 5000, 4000, "reported", 5000, 0, 6100, 5100, "late", 7, "critical"),
        Initcall("b_init", None, 2, 2000, None, None, None, None, None, path="beside"),
    ],
    probes=[
        Probe("0:1", "0:1", None, 1, 3000, 700, 600, "reported", 700, -19, 3700, "beside"),
        Probe("0:2", "0:2", None, 1, 3100, 100, 90, "reported", 100, 0, 3200, "beside"),
        Probe("0:3", "0:3", None, 1, 3700, 100, 80, "reported", 100, 0, 3800, "critical"),
    ],
    units=[
        UnitSpan("a.service", 100_000, 150_000, 50_000, 20_000, "reported", True, 30_000),
        UnitSpan("=b.service", 110_000, 120_000, 10_000, 0, "reported", False),
        UnitSpan("blamed.service", None, None, 9_000, None, "reported"),
    ],
    processes=[
        Process("sh", 42, 1, 120_000, 130_000, 10_000, 800, "samples", False, 300),
        Process("sh", 43, 1, None, None, None, 200, "samples"),
        Process("bootchartd", 44, 1, 120_000, 130_000, 10_000, 999, "samples", True),
    ],
    gaps=(
        GapSpan(7000, 90_000, "x starts", "y is up", "kernel", own_us=80_000),
        GapSpan(160_000, 170_000, "p", "q", "userspace", "dhcp", "waiting for an address", "critical", False, 9_000),
    ),
    samples=(UseSample(100_000, 0.5, None, 0.25), UseSample(110_000), UseSample(120_000, disk_busy=1.0)),
    console=ConsoleCost(10, 1000, 87.0, 87_000, "the log", 50_000),
    kernel_us=100_000,
    total_us=200_000,
)


def test_a_spreadsheet_has_a_row_for_each_item() -> None:
    header, *rows = csv.reader(io.StringIO(to_csv(BOOT)))
    assert header == [
        "kind", "name", "module", "occurrence", "start_us", "end_us", "duration_us", "exclusive_us", "duration_source",
        "reported_us", "stamps_us", "returned", "task", "path",
    ]  # fmt: skip
    none = [""] * 14
    assert [",".join(row) for row in rows] == [
        "phase,kernel,,,0,100000,100000,,,,,,,",
        "phase,userspace,,,100000,,,,,,,,,",
        "gap,after: x starts,,,7000,90000,83000,80000,time-stamps,,,,,unknown",
        "gap,waiting for an address,,,160000,170000,10000,9000,time-stamps,,,,,critical",
        "initcall,a_init,mod,1,1000,6100,5000,4000,reported,5000,5100,0,7,critical",
        "initcall,b_init,,2,2000,,,,,,,,,beside",
        "probe,0:1,,1,3000,3700,700,600,reported,700,,-19,,beside",
        "probe,0:2,,1,3100,3200,100,90,reported,100,,0,,beside",
        "probe,0:3,,1,3700,3800,100,80,reported,100,,0,,critical",
        "unit,a.service,,,100000,150000,50000,20000,reported,,,,,",
        "unit,'=b.service,,,110000,120000,10000,0,reported,,,,,",
        "unit,blamed.service,,,,,9000,,reported,,,,,",
        "process,sh,,,120000,130000,10000,800,samples,,,,42,",
        "process,sh,,,,,,200,samples,,,,43,",
        "process,bootchartd,,,120000,130000,10000,999,samples,,,,44,",
    ]
    assert all(len(row) == len(none) for row in rows)


def test_trace_events_are_what_the_boot_did_in_lanes() -> None:
    document = json.loads(trace_events(BOOT))
    events: list[dict[str, Any]] = document["traceEvents"]
    assert document["displayTimeUnit"] == "ms"
    named = [(one["pid"], one["tid"], one["name"], one["args"]) for one in events if one["ph"] == "M"]
    words = ("phases", "kernel", "beside", "units", "processes", "silences")
    assert named == [(n, 0, "process_name", {"name": word}) for n, word in enumerate(words, 1)]
    drawn = [(one["pid"], one["tid"], one["name"], one["ts"], one["dur"]) for one in events if one["ph"] == "X"]
    assert drawn == [
        (1, 1, "kernel", 0, 100_000),
        (2, 7, "a_init", 1100, 5000),  # it ends where its line says
        (3, 10_000, "0:1", 3000, 700),
        (3, 10_001, "0:2", 3100, 100),  # beside the other one
        (2, 1, "0:3", 3700, 100),
        (4, 1, "a.service", 100_000, 50_000),
        (4, 2, "=b.service", 110_000, 10_000),
        (6, 1, "after: x starts", 7000, 83_000),
        (6, 2, "waiting for an address", 160_000, 10_000),
        (5, 42, "sh", 120_000, 10_000),
        (5, 44, "bootchartd", 120_000, 10_000),
    ]
    details = {one["name"]: one["args"] for one in events if one["ph"] == "X"}
    assert details["kernel"] == {"source": "log"}
    assert details["a_init"] == {"exclusive_us": 4000, "source": "reported"}
    assert details["sh"] == {"exclusive_us": 800, "source": "samples", "waiting_us": 300}
    assert details["after: x starts"] == {"before": "x starts", "after": "y is up", "exclusive_us": 80_000}
    counted = [(one["pid"], one["ts"], one["args"]) for one in events if one["ph"] == "C"]
    assert counted == [(5, 100_000, {"user": 0.5, "waiting": 0.25})]


def test_a_lane_is_used_again_once_it_is_free() -> None:
    spans = [UnitSpan(str(n), start, start + 10, 10, 1, "reported") for n, start in enumerate((0, 5, 10, 12))]
    events = json.loads(trace_events(Timeline(KernelInfo(), units=spans)))["traceEvents"]
    assert [one["tid"] for one in events if one["ph"] == "X"] == [1, 2, 1, 3]


def test_the_page_draws_bars_in_their_order() -> None:
    rows, left_out = boot_page._bars(BOOT)
    assert left_out == 0 and rows == [
        ["initcall", "a_init [mod]", 1100, 5000, 4000, False, 1, "reported", 0, 5000],
        ["probe", "0:1", 3000, 700, 600, True, 1, "reported", -19, 700],
        ["probe", "0:2", 3100, 100, 90, True, 1, "reported", 0, 100],
        ["probe", "0:3", 3700, 100, 80, False, 1, "reported", 0, 100],
        ["gap", "after: x starts", 7000, 83_000, 83_000, False, 1, "after: x starts\nuntil: y is up", None, None],
        ["unit", "a.service", 100_000, 50_000, 20_000, False, 1, "reported", None, None],
        ["unit", "=b.service", 110_000, 10_000, 0, True, 1, "reported", None, None],
        ["process", "sh", 120_000, 10_000, 800, False, 42, "samples", None, None],
        ["process", "bootchartd", 120_000, 10_000, 999, True, 44, "samples", None, None],
        ["gap", "waiting for an address", 160_000, 10_000, 10_000, False, 1, "after: p\nuntil: q", None, None],
    ]


def test_of_too_many_bars_the_longest_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_page, "MOST_BARS", 2)
    rows, left_out = boot_page._bars(BOOT)
    assert [row[1] for row in rows] == ["after: x starts", "a.service"] and left_out == 8


def test_hot_spots_are_ranked_by_what_the_boot_waited_for() -> None:
    found = hotspots.rank(BOOT).hotspots
    assert [(one.kind, one.name, one.exclusive_us, one.share_kernel, one.share_total) for one in found] == [
        ("console", "printing to the console", 87_000, 0.5, 0.435),
        ("gap", "after: x starts", 80_000, 0.8, 0.4),
        ("unit", "a.service", 30_000, None, 0.15),  # what the path waited for; it counts with its 50 ms
        ("unit", "=b.service", 0, None, 0.0),
        ("gap", "waiting for an address", 9_000, None, 0.045),
        ("unit", "blamed.service", 9_000, None, None),
        ("initcall", "a_init [mod]", 4000, 0.04, 0.02),
        ("process", "sh", 1000, None, 0.005),
        ("probe", "0:1", 600, 0.006, 0.003),
        ("process", "sh, waiting for disks", 300, None, 0.0015),
        ("probe", "0:2", 90, 0.0009, 0.00045),
        ("probe", "0:3", 80, 0.0008, 0.0004),
    ]
    rows = {one.name: one for one in found}
    assert [rows[name].path for name in ("a.service", "=b.service", "blamed.service", "0:1")] == [
        "critical", "beside", "unknown", "beside",
    ]  # fmt: skip
    assert (rows["a_init [mod]"].start_us, rows["a_init [mod]"].occurrence, rows["a_init [mod]"].duration_us) == (
        1000, 1, 5000,
    )  # fmt: skip
    assert (rows["waiting for an address"].start_us, rows["waiting for an address"].times) == (160_000, 1)
    assert rows["after: x starts"].duration_us == 83_000 and rows["a.service"].duration_us == 50_000


def test_a_unit_weighs_all_of_its_time_and_anything_else_its_own() -> None:
    assert hotspots.weight(Hotspot("unit", "a", 5, None, None, duration_us=9)) == 9
    assert hotspots.weight(Hotspot("unit", "a", 5, None, None)) == 5
    assert hotspots.weight(Hotspot("initcall", "a", 5, None, None, duration_us=9)) == 5


def test_only_the_longest_hot_spots_are_kept() -> None:
    calls = [Initcall(f"c{n}", None, 1, 0, n, n, "reported", n, 0) for n in range(1, 300)]
    found = hotspots.rank(Timeline(KernelInfo(), initcalls=calls)).hotspots
    assert [one.name for one in found] == [f"c{n}" for n in range(299, 99, -1)]
    assert found[0].share_kernel is None and found[0].share_total is None


def test_a_quick_console_is_no_hot_spot() -> None:
    for console in (ConsoleCost(1, 1, 0.1, 50_000, "x"), ConsoleCost(1, 1, None, 50_000, "x"), None):
        assert hotspots.rank(Timeline(KernelInfo(), console=console)).hotspots == ()


def test_a_document_reads_back_whole_and_another_schema_is_refused() -> None:
    data = b"".join(json_chunks(BOOT))
    assert from_json(data, "x") == BOOT
    before, _, _ = data.replace(b"timeline/3", b"timeline/2").partition(b',\n"lines":')
    assert from_json(before + b"}\n", "x") == BOOT  # without what came later
    for wrong, said in ((data.replace(b"timeline/3", b"timeline/1"), "not a timeline"), (b"[]", "not a timeline"),
                        (data[:-9], "damaged"), (data.replace(b'"6.1"', b"6.1"), "damaged")):  # fmt: skip
        with pytest.raises(UserInputError, match=said):
            from_json(wrong, "x")
