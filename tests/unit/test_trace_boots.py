# SPDX-License-Identifier: Apache-2.0
"""How often the trace stage boots: a boot that failed is the last, unless a module may have been missing."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vmtailor.base.errors import GuestError
from vmtailor.drivers.rootfs import initramfs
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.ending import End, Ending, Gathered
from vmtailor.model.boots.workload import Exercised
from vmtailor.model.exercise import Exercise, Ready, ReadyKind
from vmtailor.model.guest import READY_STEP, GuestNote, GuestReport, StepResult
from vmtailor.model.machine import Clock
from vmtailor.model.trace import ModuleRequest
from vmtailor.stages import container_trace

EXERCISE = Exercise("test", Ready(ReadyKind.TCP, timeout_s=120.0))


def unready(seconds: float) -> GuestReport:
    """A container that did not get ready in so many seconds of the guest's time."""
    return GuestReport(results=(StepResult(READY_STEP, "tcp", 1, 0, True, int(seconds * 1e9)),), exit_code=1)


def left(ending: Ending, report: GuestReport) -> Gathered:
    return Gathered(End(ending, "qemu", "", "", 700.0, 0), 0.0, report)


def inputs_in(folder: Path) -> Any:
    inputs: Any = dataclasses.make_dataclass(
        "Inputs", ["exercise", "machine", "modules", "tools", "table", "natives", "kernel_release"]
    )(EXERCISE, lambda _: SimpleNamespace(clock=Clock.INSTRUCTIONS), folder, folder, None, None, "6.1")
    inputs.table = type("Table", (), {"architecture": "x86_64"})()
    return inputs


@pytest.mark.parametrize(
    ("seen", "boots"),
    [
        (left(Ending.DEADLINE, GuestReport()), 1),
        (left(Ending.PANIC, GuestReport()), 1),
        (left(Ending.EXITED, GuestReport(fatal=GuestNote("no proc", "PROC_FS"))), 1),
        (left(Ending.EXITED, unready(120.4)), 1),  # never ready
        # Ended by itself: again with the modules, while it asks for others, as one module asks for the next.
        (left(Ending.EXITED, unready(3)), container_trace.MODULE_ROUNDS),
    ],
)
def test_a_boot_that_failed_ends_the_stage(
    seen: Gathered, boots: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    booted: list[Any] = []

    def boot(machine: Any, work: Exercised, *_: Any, **__: Any) -> tuple[Boot, Gathered]:
        booted.append(machine)
        most_s = container_trace.BOOT_S + container_trace.MOST_STRETCH * EXERCISE.ready.timeout_s
        assert work.patience.all_s == most_s and work.timeout_s > most_s  # of a busy host
        return Boot(Outcome.STOPPED, (), 700.0, failures=("it does not work",)), seen

    monkeypatch.setattr(container_trace, "boot", boot)
    monkeypatch.setattr(container_trace.boots, "marks", lambda *_: ())  # type: ignore[attr-defined]
    further = iter(range(100))
    monkeypatch.setattr(initramfs, "providers", lambda *_: (ModuleRequest("x", f"module{next(further)}", "a/b.ko"),))
    inputs = inputs_in(tmp_path)
    counted: list[Boot] = []
    with pytest.raises(GuestError, match="does not work on the baseline"):
        container_trace.trace(inputs, tmp_path, tmp_path, counted.append)
    assert len(booted) == boots and not counted


def test_the_counted_boot_is_told_while_calls_are_still_traced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = threading.Event()
    alone = Boot(Outcome.STOPPED, (), 20.0)

    def boot(machine: Any, work: Exercised, *_: Any, counting: Any = None, **__: Any) -> tuple[Boot, Gathered]:
        if counting is None:
            assert told.wait(30)
            return Boot(Outcome.STOPPED, (), 60.0, failures=("it does not work",)), left(Ending.PANIC, GuestReport())
        return alone, left(Ending.EXITED, GuestReport())

    def counted(found: Boot) -> None:
        assert found is alone
        told.set()

    monkeypatch.setattr(container_trace, "boot", boot)
    monkeypatch.setattr(container_trace.boots, "marks", lambda *_: ())  # type: ignore[attr-defined]
    monkeypatch.setattr(container_trace, "Counting", lambda *_: "the plugin")
    monkeypatch.setattr(initramfs, "providers", lambda *_: ())
    monkeypatch.setattr(container_trace.machine_variants, "counted", lambda machine: machine)  # type: ignore[attr-defined]
    with pytest.raises(GuestError, match="with its system calls traced"):
        container_trace.trace(inputs_in(tmp_path), tmp_path, tmp_path, counted)
    assert told.is_set()
