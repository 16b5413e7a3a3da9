# SPDX-License-Identifier: Apache-2.0
"""Boots in the lab: which are repeated, and what is made of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.lab_counts import MARKS, STATISTICS, at, counters

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.base.errors import GuestError
from vmtailor.booting import lab_booter
from vmtailor.booting.lab_booter import LabBooter
from vmtailor.drivers.monitors.lab_folder import SMALL_PAGES
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, Run
from vmtailor.model.exercise import Exercise, Ready, ReadyKind
from vmtailor.model.guest import GuestReport
from vmtailor.model.machine import Machine

MACHINE = Machine(board="microvm", memory_bytes=64 << 20, kernel="/k", monitor="lab/qemu", architecture="x86_64")
WORK = Exercised(Run(exercise=Exercise("x", Ready(ReadyKind.EXIT)), key=FIXED_KEY), 10.0)
LAB = SymbolTable.of(
    [(0x10, "start_kernel", True), (0x20, "preempt_notifier_inc", True), (0x30, "kvm_mmu_page_fault", True)], "x86_64"
)
SPANS = [("entry", at(10, 130)), ("kvm_mmu_page_fault", at(10, 135)), ("entry", at(11, 140))]
TRACE = b"kvm_exit: x\nkvm_pio: pio_write at 0x3f8 size 1 count 1 val 0x41\n" * 5 + STATISTICS


class Boots:
    """What is asked of machines; each gets to ready."""

    def __init__(self, spans: Any = SPANS, trace: bytes = TRACE, marks: Any = MARKS) -> None:
        self.asked: list[tuple[tuple[str, ...], bool, float]] = []
        self._spans, self._trace, self._marks = spans, trace, marks

    def __call__(
        self, machine: Machine, work: Exercised, scratch: Path, *, counting: Any = None, on_progress: Any = None
    ) -> tuple[Boot, Any]:
        self.asked.append((machine.extras, work.exits, work.timeout_s))
        assert (counting is None) is work.exits
        found = None if work.exits else counters(self._marks, self._spans)
        gathered = SimpleNamespace(counters=found, lasted_ns=None, exits=self._trace, report=GuestReport())
        return Boot(outcome=Outcome.READY, milestones=(), seconds=1.0), gathered


@pytest.fixture
def booter(monkeypatch: pytest.MonkeyPatch) -> LabBooter:
    monkeypatch.setattr(LabBooter, "_lab", LAB)
    loaded: Any = SimpleNamespace(bundle=SimpleNamespace(architecture="x86_64"), symbols=b"", init_marks={"init": 1})
    natives: Any = SimpleNamespace(begin_marks=lambda: {"monitor": 2, "gone": 3}, marks=dict)
    return LabBooter(loaded, natives)


def booted(booter: LabBooter, boots: Boots, monkeypatch: pytest.MonkeyPatch) -> Boot:
    monkeypatch.setattr(lab_booter, "boot", boots)
    found, gathered = booter(MACHINE, WORK, Path("/s"))
    assert gathered is not None and not isinstance(gathered, Gathered)
    return found


def test_the_first_boot_is_repeated_with_the_trace_and_with_small_pages(
    booter: LabBooter, monkeypatch: pytest.MonkeyPatch
) -> None:
    boots = Boots()
    first = booted(booter, boots, monkeypatch)
    assert [one[:2] for one in boots.asked] == [((), False), ((), True), ((SMALL_PAGES,), False)]
    assert {one[2] for one in boots.asked} == {80.0}  # two levels of machines take longer
    second = booted(booter, boots, monkeypatch)
    assert len(boots.asked) == 4 and first == second
    assert first.monitor is not None and first.monitor.small_pages is not None
    assert [(one.title, one.exits) for one in first.monitor.places] == [("byte to the serial port", 5)]
    assert [mark.name for mark in first.milestones] == [name for name in MARKS if name != "machine"]


def test_a_trace_without_room_is_told_and_loses_nothing_else(
    booter: LabBooter, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = TRACE.replace(b"kvm_exit: x\n", b"", 2).replace(b"dropped events: 0", b"dropped events: 9")
    found = booted(booter, Boots(trace=cut), monkeypatch)
    assert found.monitor is not None and not found.monitor.places and found.monitor.parts
    assert "no room for all exits" in capsys.readouterr().err


def test_a_kernel_elsewhere_than_its_table_says_is_an_error(booter: LabBooter, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = [("entry", at(10, 130)), ("entry", at(11, 140))]
    with pytest.raises(GuestError, match="not where its table says"):
        booted(booter, Boots(spans=strange), monkeypatch)


def test_a_boot_that_does_not_get_ready_is_not_repeated(booter: LabBooter, monkeypatch: pytest.MonkeyPatch) -> None:
    boots = Boots(marks={name: totals for name, totals in MARKS.items() if name != "ready"})
    found = booted(booter, boots, monkeypatch)
    assert len(boots.asked) == 1 and found.monitor is not None and not found.monitor.places
