# SPDX-License-Identifier: Apache-2.0
"""Boots in the lab, counted from the monitor's exec."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.program import run_program
from tests.system.conftest import Fitted

from vmtailor.analysis.cost import request_costs
from vmtailor.base import natives
from vmtailor.base.files import records
from vmtailor.booting import bundle_booter
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.booting.lab_booter import LabBooter
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.lab import lab_monitor
from vmtailor.drivers.monitors import lab_folder, monitors
from vmtailor.model.architecture import of_host
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.series import RECORD, BootSeries
from vmtailor.model.machine import LAB, USUAL_MONITOR, Clock

pytestmark = [pytest.mark.system, pytest.mark.slow]
#: Stands in QEMU's place, and says how many exits KVM has counted when QEMU ends.
EXITS = Path(__file__).parents[1] / "guests" / "exits.c"
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


def test_entries_are_kvms_own_exits_and_the_parts_are_all_that_the_processor_counted(
    lighttpd: Fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "exits"
    subprocess.run(["cc", "-std=c11", "-O2", "-static", "-s", "-o", program, EXITS], check=True, timeout=120)
    # The processor's own counter follows instructions. It also goes on while the lab waits: so the lab never halts.
    monkeypatch.setattr(lab_monitor, "_WORDS", (*lab_monitor._WORDS, "idle=poll"))
    loaded = bundle_folder.load_container(lighttpd.bundle)
    machine = machine_of(loaded, Chosen(clock=Clock.INSTRUCTIONS, monitor=f"{LAB}{USUAL_MONITOR}"))
    workload = bundle_booter.workload_of(loaded.exercise, 900.0)
    workload = replace(workload, timeout_s=workload.timeout_s * monitors.of(machine).slowness)
    with monitors.lab_programs({USUAL_MONITOR: program}):
        found, gathered, cost = LabBooter(loaded, natives.locate())._counted(machine, workload, tmp_path, None)
    assert found.outcome is Outcome.READY and cost is not None and gathered.lasted_ns is not None
    # Read when QEMU ends: a reading before that lacks those that follow it.
    (said,) = (line for line in gathered.end.stderr.splitlines() if line.startswith("exits "))
    assert int(said.removeprefix("exits ")) == sum(part.exits for part in cost.parts) > 10_000
    counted = sum(part.executed for part in cost.parts)
    assert min(sum(getattr(part, name) for part in cost.parts) for name in ("guest_user", "guest_kernel")) > 1_000_000
    # An access that faults begins twice, and the plugin counts it twice.
    assert 0 <= counted - gathered.lasted_ns < counted / 10_000


def test_a_load_comes_from_the_lab_over_the_machines_network(lighttpd: Fitted, tmp_path: Path) -> None:
    exercise, out = tmp_path / "load.toml", tmp_path / "boots"
    load = '[[load]]\nkind = "peak"\nport = 80\nat_once = 4\nrequests = 40\n'
    exercise.write_text(f'[ready]\nkind = "healthcheck"\n{load}{load}')
    ended = run_program(
        tmp_path, "boot", lighttpd.bundle, "-x", exercise, "--on", "qemu", "--lab", "--clients", "host", "-n", "1",
        "-o", out, timeout_s=1800.0,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    (found,) = (one.boot for one in records.load(BootSeries, out / RECORD).boots)
    assert found.container is not None and [one.stages[0].right for one in found.container.loads] == [40, 40]
    cost = request_costs.from_host(found)
    # The guest leaves its processor for packets, and the lab's kernel carries them.
    assert cost is not None and cost.requests == 40 and cost.exits > 0.1
    assert min(cost.kernel, cost.host, cost.client) > 10_000 and cost.user > 1_000
    assert "a request from the lab takes" in " ".join(ended.stdout.split())
