# SPDX-License-Identifier: Apache-2.0
"""What a system's own kernel cost while its exercise ran: counted in that very run, put down to symbols, and where it
goes from there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.systems.test_system_fitting import EXERCISE, RIGHT, WORK, Runs, failing, given, stages

from vmtailor.analysis.cost.attribution import AttributedCost, Attribution
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.guests import machine_variants as guests
from vmtailor.model.boots.boot import Boot, FunctionCost, Outcome, Phase, PhaseCounts
from vmtailor.model.boots.counters import CountingMode
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.change import Figure
from vmtailor.model.guest import GuestReport
from vmtailor.model.kernel import KernelFiles
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.systems.units import UnitsMode
from vmtailor.model.trace import LoadedModule
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.pipeline import code_cost, fit, fit_sides, kernel_repair, measured_machines
from vmtailor.pipeline.measured_machines import Measured
from vmtailor.pipeline.subject import Findings, Times
from vmtailor.pipeline.systems import unit_masks
from vmtailor.pipeline.systems.driven_system import SystemSeen
from vmtailor.pipeline.systems.system_subject import SystemSubject
from vmtailor.stages import measure, system_verify
from vmtailor.stages.system_verify import Counts, SystemTarget

__all__ = ["given", "stages"]
TABLE = SymbolTable.parse("ffffffff81000000 T _text\nffffffff81000010 T start_kernel\n", "x86_64")
COSTS = Attribution(
    (
        AttributedCost("kernel", "net_init", "net/x.c", "NET", 700),
        AttributedCost("kernel", "[parts]", "fs/parts.ko", "PARTS_FS", 40),
        AttributedCost("load", "net_send", "net/x.c", "NET", 5),
    ),
    {},
    {"kernel": 740, "load": 5},
)


def test_addresses_in_a_module_are_the_modules() -> None:
    loaded = (LoadedModule("a_fs", 0x1000, 0x100), LoadedModule("made_up", 0x2000, 0x10))
    asked = np.array([0xFFF, 0x1000, 0x10FF, 0x1100, 0x2008], np.uint64)
    paths = {"a_fs": "fs/a/a-fs"}
    found = code_cost.in_modules(asked, loaded, lambda name: paths.get(name, ""), {"fs/a/a-fs": "A_FS"}.get)
    fs = ("[a_fs]", "fs/a/a-fs.ko", "A_FS")
    assert found == {0x1000: fs, 0x10FF: fs, 0x2008: ("[made_up]", "", "")}


@pytest.fixture
def booted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Boots that count what they are told to; each with what it was told."""
    seen: list[Any] = []

    def boot(machine: Machine, work: object, scratch: Path, counting: Any = None) -> tuple[Boot, Gathered]:
        seen.append(counting)
        counts = b"counts" if counting is not None and counting.mode is CountingMode.COUNTS else b""
        ending: Any = SimpleNamespace(seconds=1.0, stderr="it stopped", command="qemu -x")
        gathered: Any = SimpleNamespace(report=GuestReport(), lines=((0.5, "a line"),), end=ending, counts=counts)
        return Boot(Outcome.READY, (), 1.0), gathered

    monkeypatch.setattr(system_verify, "boot", boot)
    monkeypatch.setattr(system_verify, "Counting", lambda natives, config: config)
    said: list[tuple[str, ...]] = []

    def workload(target: object, folder: Path, *, until: object, reports: Any) -> Any:
        said.append(tuple(one.name for one in reports))
        return WORK

    monkeypatch.setattr(system_verify, "workload", workload)
    seen.append(said)
    return seen


def target(clock: Clock) -> SystemTarget:
    natives: Any = SimpleNamespace(attendant_marks=lambda: {"init": 0x1234})
    return SystemTarget(Machine("q35", 1 << 30, clock=clock), None, EXERCISE, natives)  # type: ignore[arg-type]


def test_every_block_is_counted_in_the_run_that_is_compared_with(booted: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "counts"
    run = system_verify.run(target(Clock.INSTRUCTIONS), tmp_path, counts=Counts(TABLE, file))
    assert run.words == "--- console:\na line\n--- machine, ended after 1.0 s:\nit stopped\nqemu -x"
    said, config = booted
    assert config.mode is CountingMode.COUNTS and config.kernel is None
    assert {mark.name for mark in config.marks} >= {"start_kernel", "init"}
    assert file.read_bytes() == b"counts" and said == [("failed-units", "errors", "warnings", "units", "modules")]


def test_on_the_wall_clock_nothing_is_counted(
    booted: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests, "with_time", lambda machine: machine)
    file = tmp_path / "counts"
    system_verify.run(target(Clock.WALL), tmp_path, counts=Counts(TABLE, file))
    assert booted[1:] == [None] and not file.exists()


def test_without_counts_there_is_no_attribution(given: SystemSubject, tmp_path: Path) -> None:
    assert given.costs(RIGHT, tmp_path / "none") is None


@pytest.fixture
def found(
    given: SystemSubject, stages: Callable[[Runs], list[SystemTarget]], monkeypatch: pytest.MonkeyPatch
) -> Findings[SystemSeen]:
    stages(lambda target: RIGHT)
    monkeypatch.setattr(SystemSubject, "costs", lambda *_: COSTS)
    return given.trace()


def test_what_is_left_out_has_its_price(found: Findings[SystemSeen]) -> None:
    fitted = kernel_repair.fit_kernel(found)
    gone = {change.id: change.saves(Figure.TRACE_INSTRUCTIONS) for change in fitted.plan.gone}
    assert gone["PARTS_FS"] == 40


def boot(functions: dict[str, int]) -> Boot:
    costs = tuple(FunctionCost(name, Phase.KERNEL, count) for name, count in functions.items())
    return Boot(
        Outcome.READY, (), 1.0, phases=(PhaseCounts(Phase.KERNEL, sum(functions.values()), 0),), functions=costs
    )


def test_both_sides_have_their_costs_and_a_ledger(
    found: Findings[SystemSeen], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fitted = kernel_repair.fit_kernel(found)
    (tmp_path / "map").write_text("ffffffff81000000 T _text\n")
    kernel: KernelFiles = replace(fitted.kernel, system_map=str(tmp_path / "map"))
    fitted = replace(fitted, kernel=kernel)
    before, after = (
        Measured((boot(f),), (), (), 1 << 20, None) for f in ({"net_init": 700, "x": 9}, {"net_init": 650})
    )
    monkeypatch.setattr(measured_machines, "both", lambda *_: (before, after))
    monkeypatch.setattr(fit_sides, "baseline_asked", lambda *_: None)
    monkeypatch.setattr(fit_sides, "tailored_asked", lambda *_: None)
    monkeypatch.setattr(measure, "conditions", lambda *_: ())
    sides = fit_sides.both_sides(found, fitted)
    assert sides.baseline.symbol_costs == (("NET", 700), ("PARTS_FS", 40))
    assert sides.baseline.subsystems == (("net", 700), ("other", 9))
    assert sides.tailored.subsystems == (("net", 650),)
    rows, _ = fit_sides.ledger(COSTS, fitted, sides)
    parts = next(one for one in rows if one.id == "fs")
    assert [one.name for one in parts.settings] == ["PARTS_FS"] and parts.expected[0].value == -40


class Enough(Exception):
    """All that is asked about has been done."""


def enough(*_: object) -> None:
    raise Enough


@pytest.mark.parametrize("units", UnitsMode)
@pytest.mark.parametrize("passes", [True, False])
def test_machines_are_counted_as_soon_as_they_are_known(
    units: UnitsMode, passes: bool, given: SystemSubject, stages: Callable[[Runs], Any],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    begun: list[str] = []
    own = given.baseline.kernel

    def run(target: SystemTarget) -> SystemRun:
        begun.append(f"exercise on {'its own' if target.machine.kernel == own else 'the fitted'} kernel")
        return RIGHT if passes or target.machine.kernel == own else failing("no")

    class Ahead:
        def begin(self, asked: Any) -> None:
            begun.append(asked.title)

        def keep_only(self, key: str) -> None:
            begun.append(f"{key} alone")

    stages(run)
    monkeypatch.setattr(measured_machines, "ahead", lambda: contextlib.nullcontext(Ahead()))
    monkeypatch.setattr(SystemSubject, "costs", lambda *_: COSTS)
    monkeypatch.setattr(fit_sides, "tailored_asked", lambda *_: SimpleNamespace(title=fit_sides.TAILORED))
    monkeypatch.setattr(fit_sides, "baseline_asked", lambda *_: SimpleNamespace(title=fit_sides.BASELINE, key="first"))
    monkeypatch.setattr(kernel_repair, "repaired", lambda _, failing: failing)
    monkeypatch.setattr(unit_masks, "chosen", lambda system, found, fitted, ask: (fitted, None))
    for name in ("both_sides", "baseline_facts"):
        monkeypatch.setattr(fit_sides, name, enough)
    given = replace(given, options=replace(given.options, units=units))
    with pytest.raises(Enough):
        fit._make(given, Times(), tmp_path, None)
    assert begun == [
        "exercise on its own kernel",
        *([fit_sides.BASELINE] if units is not UnitsMode.ASK else []),  # progress would be drawn over the question
        *([fit_sides.TAILORED] if units is UnitsMode.KEEP else []),
        "exercise on the fitted kernel",
        *([] if passes else ["exercise on the fitted kernel", "first alone"]),
    ]
