# SPDX-License-Identifier: Apache-2.0
"""The cost of a monitor from the counters of a lab, and from KVM's trace."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from tests.fakes.lab_counts import MARKS, STATISTICS, at, counters

from vmtailor.analysis.comparison import judged_document
from vmtailor.analysis.cost import monitor_costs
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli.tables.monitor_table import show_monitor
from vmtailor.model.boots.counters import (
    ENTRY,
    CodeMark,
)
from vmtailor.model.boots.exits import CauseRow, DeviceRow, EventRow, ExitRows, MonitorCost, exit_rows
from vmtailor.model.guest import GuestMark

ROWS = ExitRows(
    cause=(CauseRow("device", ("fault",), ("play",)), CauseRow("fault", ("fault",)), CauseRow("port", ("port",))),
    event=(EventRow("kvm_pio", "pio_(?:read|(?P<write>write)) at (?P<number>0x[0-9a-f]+) "),),
    by_bytes=("clear",),
    device=(
        DeviceRow("kvm_pio", 0x3F8, 0x3F8, "byte", written=True),
        DeviceRow("kvm_pio", 0x3F8, 0x3FF, "serial port"),
    ),
)
LAB = SymbolTable.of([(0x100, "a", True), (0x200, "clear", True), (0x300, "b", True)])


def test_parts_add_up_to_all_that_was_executed_since_the_exec() -> None:
    found = monitor_costs.cost(counters(MARKS), ROWS, LAB, 500)
    assert found is not None
    assert [(one.begin, one.end, one.executed, one.exits) for one in found.parts] == [
        ("monitor", "entered", 35, 0), ("entered", "init", 85, 3), ("init", "ready", 82, 2), ("ready", "gone", 77, 1),
    ]  # fmt: skip
    assert [one.by_bytes for one in found.parts] == [len("entered"), len("init"), len("ready"), len("gone")]
    whole = MARKS["gone"].since(MARKS["monitor"]).executed
    assert sum(one.executed for one in found.parts) == whole and found.waited_ns == 500 - whole
    until = found.until("ready")
    assert until is not None
    assert (until.host_user, until.host_kernel, until.guest_kernel, until.guest_user) == (15, 100, 80, 7)
    assert until.exits == 5 and found.until("load") is None


def test_without_the_exec_there_is_no_cost() -> None:
    assert monitor_costs.cost(counters({"machine": at(1, 1)}), ROWS, LAB, None) is None
    assert monitor_costs.milestones(counters({"machine": at(1, 1)}), (), None) == ()


def test_an_exit_has_the_first_cause_whose_functions_were_passed() -> None:
    spans = [
        ("fault", at(0, 1)),  # before the first entry
        ("entry", at(10, 130)),
        ("fault", at(10, 131)), ("play", at(10, 132)), ("entry", at(12, 140)),
        ("fault", at(12, 141)), ("entry", at(12, 150)),
        ("port", at(12, 151)), ("entry", at(13, 155)),
        ("entry", at(13, 156)),
        ("port", at(13, 157)), ("entry", at(100, 900)),  # after ready
    ]  # fmt: skip
    found = monitor_costs.cost(counters(MARKS, spans), ROWS, LAB, None)
    assert found is not None and found.waited_ns is None
    rows = {one.cause: (one.exits, one.to_monitor, one.host_kernel, one.host_user) for one in found.causes}
    assert rows == {"device": (1, 1, 10, 2), "fault": (1, 0, 10, 0), "port": (1, 1, 5, 1), "other": (1, 0, 1, 0)}
    assert [one.cause for one in found.causes] == ["device", "fault", "port", "other"]


def test_waits_are_what_the_guests_clock_shows_beyond_what_was_executed() -> None:
    told = [GuestMark("init", 1000, 0, 0), GuestMark("ready", 1000 + 82 + 40, 0, 0)]
    lasted = MARKS["gone"].since(MARKS["monitor"]).executed + 100
    found = {one.name: one for one in monitor_costs.milestones(counters(MARKS), told, lasted)}
    waits = {name: (one.virtual_ns or 0) - (one.executed or 0) for name, one in found.items()}
    assert waits == {"monitor": 0, "entered": 0, "init": 60, "ready": 100, "gone": 100}
    unknown = monitor_costs.milestones(counters(MARKS), told, None)
    assert [one.virtual_ns for one in unknown] == [None] * 5


TRACE = (
    b"# tracer: nop\n#\nkvm_exit: vcpu 0 reason io\nkvm_pio: pio_write at 0x3f8 size 1 count 1 val 0x41\n"
    b"kvm_exit: vcpu 0 reason io\nkvm_pio: pio_read at 0x64 size 1 count 1 val 0x0\nkvm_pio: nonsense\nstray\n"
    b"kvm_exit: vcpu 0 reason io\nkvm_pio: pio_write at 0x3fd size 1 count 1 val 0x42\n"
)


def test_places_are_of_the_first_exits_alone() -> None:
    found = monitor_costs.places(TRACE, ROWS, 2)
    assert [(one.event, one.title, one.exits) for one in found] == [("kvm_pio", "byte", 1), ("kvm_pio", "0x64", 1)]
    more = monitor_costs.places(TRACE + b"kvm_pio: pio_read at 0x3f8 size 1 count 1 val 0x41\n", ROWS, 3)
    assert {one.title: one.exits for one in more} == {"byte": 1, "serial port": 2, "0x64": 1}


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("kvm_pio: pio_write at 0x3f8 size 1 count 1 val 0x41", "byte to the serial port"),
        ("kvm_pio: pio_read at 0x3f8 size 1 count 1 val 0x41", "serial port"),
        ("kvm_pio: pio_write at 0x3fd size 1 count 1 val 0x41", "serial port"),
        ("kvm_mmio: mmio unsatisfied-read len 4 gpa 0xfec00010 val 0x0", "I/O interrupt controller"),
        ("kvm_msr: msr_write 6e0 = 0x1", "0x6e0"),
        ("kvm_cpuid: func 40000000 idx 0 rax 40000001", "search for a hypervisor"),
    ],
)
def test_events_of_kvm_have_the_devices_of_the_data(line: str, title: str) -> None:
    (found,) = monitor_costs.places(f"kvm_exit: vcpu 0\n{line}\n".encode(), exit_rows("x86_64"), 1)
    assert found.title == title


@pytest.mark.parametrize(
    ("trace", "exits", "enough"),
    [
        (TRACE + STATISTICS, 3, True),
        (TRACE + STATISTICS, 9, True),  # there were no more
        (TRACE + STATISTICS[:-5], 3, False),
        (TRACE + STATISTICS.replace(b"dropped events: 0", b"dropped events: 1"), 3, True),
        (TRACE + STATISTICS.replace(b"dropped events: 0", b"dropped events: 1"), 4, False),
    ],
)
def test_a_trace_must_have_the_exits_that_are_asked_for(trace: bytes, exits: int, enough: bool) -> None:
    assert monitor_costs.has_exits(trace, exits) is enough


def test_the_lab_is_counted_with_its_guest_apart() -> None:
    lab = SymbolTable.of([(0x10, "start_kernel", True), (0x20, "preempt_notifier_inc", True), (0x30, "fault", True)])
    guest = [CodeMark("kernel", 0x1), CodeMark("start_kernel", 0x2), CodeMark("init", 0x3)]
    found = monitor_costs.config(lab, {"monitor": 0x40, "gone": 0x41}, guest, 0x2, ROWS)
    assert (found.kernel, found.guest_kernel, found.guests) == (0x10, 0x2, True)
    assert [(one.name, one.address, one.in_guest) for one in found.marks] == [
        ("monitor", 0x40, False), ("gone", 0x41, False), ("machine", 0x20, False), ("entered", ENTRY, False),
        ("kernel", 0x1, True), ("init", 0x3, True),
    ]  # fmt: skip
    assert [(one.name, one.address) for one in found.spans] == [("entry", ENTRY), ("fault", 0x30)]


def test_the_rows_of_the_labs_processor_can_be_read() -> None:
    rows = exit_rows("x86_64")
    assert {"page fault", "port", "halt"} <= {one.title for one in rows.cause}
    assert {one.event for one in rows.device} <= {one.name for one in rows.event}
    titles = {one.title for one in rows.device if one.event == "kvm_pio" and one.first <= 0x3F9 <= one.last}
    assert titles == {"serial port"}


def test_figures_of_a_monitor_can_be_judged() -> None:
    boot = {
        "milestones": [{"name": "ready", "executed": 7}, {"name": "gone"}, "stray"],
        "monitor": {
            "causes": [{"cause": "page fault", "exits": 3}, {"cause": "port", "exits": 2}, {"cause": "x"}],
            "places": [{"title": "serial port", "exits": 4}, {"title": "serial port", "exits": 1}, {"title": "x"}, 7],
        },
    }
    assert judged_document.of_monitor(boot) == {
        "monitor_ready_instructions": 7, "exits_page_fault": 3, "exits_port": 2, "exits": 5,
        "accesses_serial_port": 5,
    }  # fmt: skip
    assert judged_document.of_monitor({"milestones": []}) == {}


def test_the_table_shows_every_part_and_cause() -> None:
    spans = [("entry", at(10, 130)), ("port", at(12, 151)), ("entry", at(13, 155))]
    cost = monitor_costs.cost(counters(MARKS, spans), ROWS, LAB, 500)
    assert isinstance(cost, MonitorCost)
    cost = replace(cost, places=monitor_costs.places(TRACE, ROWS, 3))
    out = io.StringIO()
    show_monitor(cost, TerminalConsole(file=out, width=120))
    shown = out.getvalue()
    for words in ("entered", "exits until ready", "port", "serial port", "the lab waited for"):
        assert words in shown
