# SPDX-License-Identifier: Apache-2.0
"""Boots in the lab, counted from the monitor's exec."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.program import run_program
from tests.system.conftest import Fitted

from vmtailor.base.files import records
from vmtailor.drivers.monitors import lab_folder
from vmtailor.model.architecture import of_host
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.series import RECORD, BootSeries

pytestmark = [pytest.mark.system, pytest.mark.slow]
#: Milestones in their order.
MARKS = [
    *("monitor", "machine", "entered", "kernel", "init", "entry", "ready", "load", "load_end", "stop", "end", "gone"),
]  # fmt: skip


@pytest.mark.parametrize("monitor", ["qemu", "libkrun"])
def test_two_boots_agree_to_the_instruction(monitor: str, lighttpd: Fitted, tmp_path: Path) -> None:
    if monitor not in lab_folder.load(of_host().name)[0].monitors:
        pytest.skip("the lab was built without it")
    out = tmp_path / "boots"
    ended = run_program(
        tmp_path, "boot", lighttpd.bundle, "--on", monitor, "--lab", "-n", "2", "-o", out, timeout_s=1800.0
    )
    assert ended.code == 0, ended.stderr
    first, second = (one.boot for one in records.load(BootSeries, out / RECORD).boots)
    _check(first)
    assert first.monitor == second.monitor and first.milestones == second.milestones


def _check(boot: Boot) -> None:
    monitor = boot.monitor
    assert boot.outcome is Outcome.READY and monitor is not None
    assert [mark.name for mark in boot.milestones] == MARKS
    whole, ready = boot.milestones[-1].executed, boot.milestone("ready")
    assert sum(part.executed for part in monitor.parts) == whole and ready is not None
    until = monitor.until("ready")
    assert until is not None and until.executed == ready.executed
    # Each entry is followed by an exit; the last one before ready is not over yet.
    assert until.exits - 1 <= sum(cause.exits for cause in monitor.causes) <= until.exits
    assert {"page fault", "port", "halt"} <= {cause.cause for cause in monitor.causes}
    assert not any(cause.cause == "other" and cause.exits > until.exits / 10 for cause in monitor.causes)
    assert any(place.title == "serial port" for place in monitor.places)
    assert monitor.small_pages is not None and monitor.small_pages.until.exits > until.exits
