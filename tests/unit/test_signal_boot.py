# SPDX-License-Identifier: Apache-2.0
"""One boot against a machine that is played: every way it can end is a result, and nothing is left running."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes import played
from tests.fakes.boot_data import GATHERED

from vmtailor.analysis.guests.machine_variants import USUAL
from vmtailor.base.files import records
from vmtailor.booting import series_run
from vmtailor.booting.booter import boot
from vmtailor.drivers.guest.ready import parse_signal
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.series import BootSeries
from vmtailor.model.boots.workload import Nothing, OwnInit, Workload
from vmtailor.model.machine import Machine

PLAIN = replace(USUAL, network=False)


def kept(machine: Machine, work: Workload, folder: Path) -> Boot:
    """Boot, and keep what it said in `boot`."""
    found, gathered = boot(machine, work, folder)
    series_run.keep(gathered, folder / "boot", machine, "played")
    return found


def play(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, console: list[tuple[float, str]], *, ready: str = "login",
    also: tuple[str, ...] = (), end: str = "stay", timeout_s: float = 10.0, vm: Machine | None = None,
    events: tuple[str, ...] = (), probe: str = "", collector: bool = False,
) -> Boot:  # fmt: skip
    played.play(monkeypatch, tmp_path, console, end=end, events=events, probe=probe)
    marks = (("net", re.compile("link up")),)
    work = OwnInit(parse_signal(ready), timeout_s, tuple(parse_signal(a) for a in also), marks, collector)
    return kept(vm or PLAIN, work, tmp_path)


def test_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = time.monotonic()
    found = play(
        monkeypatch,
        tmp_path,
        [
            (0.1, "[    0.000000] Linux version 6.12.1\r\n[    0.050000] eth0: link up\r\n"),
            (0.2, "[    0.300000] Run /init as init process\r\n\x1b[0mhost lo"),
            (0.1, "gin: "),
        ],
    )
    assert time.monotonic() - started < 8
    assert found.outcome is Outcome.READY, found.problem
    assert [m.name for m in found.milestones] == ["kernel", "net", "initrd", "login", "ready"]
    ready, net = found.at("ready"), found.at("net")
    assert ready is not None and net is not None and 0.2 < ready < 5 and net < ready
    assert found.cpu_s is not None
    times = (tmp_path / "boot" / "console.times.log").read_text()
    assert re.search(r"^\[\d+\.\d{6} \d+\.\d{6}\] \[    0\.000000\] Linux version 6\.12\.1$", times, re.M)


def test_a_clock_set_wrong_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = "[    0.052000] tsc: PIT calibration deviates from HPET: 494423 2298402\r\na login: "
    found = play(monkeypatch, tmp_path, [(0.0, lines)])
    assert found.outcome is Outcome.READY
    assert found.kernel_warnings == ("tsc: PIT calibration deviates from HPET: 494423 2298402",)


@pytest.mark.lengthy
def test_a_panic_is_a_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = "[    1.000000] Kernel panic - not syncing: VFS: Unable to mount root fs\r\n"
    found = play(monkeypatch, tmp_path, [(0.0, lines)], timeout_s=30)
    assert found.outcome is Outcome.PANIC
    assert found.problem == "the kernel panicked: VFS: Unable to mount root fs"
    assert b"Kernel panic" in (tmp_path / "boot" / "console.log").read_bytes()
    assert found.seconds < 10


@pytest.mark.lengthy
def test_a_shell_of_the_initial_ram_disk_is_a_dead_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = play(monkeypatch, tmp_path, [(0.0, "ALERT! /dev/vdb does not exist.\r\n(initramfs) ")], timeout_s=30)
    assert found.outcome is Outcome.STOPPED
    assert "gave up" in found.problem


def test_never_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = play(monkeypatch, tmp_path, [(0.0, "still here\r\n")], timeout_s=0.5, ready="log:nothing like it")
    assert found.outcome is Outcome.TIMEOUT
    assert found.problem.endswith(": log:nothing like it")
    assert found.milestone("ready") is None


def test_a_machine_that_ends_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = play(monkeypatch, tmp_path, [(0.0, "bye\r\n")], end="exit")
    assert found.outcome is Outcome.STOPPED
    assert "ended by itself" in found.problem


@pytest.mark.lengthy
def test_ready_but_another_signal_never_comes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = play(monkeypatch, tmp_path, [(0.0, "x login: ")], also=("log:docker is up",), timeout_s=3.0)
    assert found.outcome is Outcome.WRONG
    assert "docker is up" in found.problem


@pytest.mark.lengthy
def test_a_machine_that_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ready is that it still runs, and is not lost."""
    played.play(monkeypatch, tmp_path, [(0.0, "[    0.000000] Linux version 6.12.1\r\na login: ")], end="stay")
    found = kept(PLAIN, Nothing(3.0), tmp_path)
    assert (found.outcome, found.problem) == (Outcome.READY, "") and found.seconds >= 3.0
    assert [m.name for m in found.milestones] == ["kernel", "login"]
    played.play(monkeypatch, tmp_path, [(0.0, "bye\r\n")], end="exit")
    assert kept(PLAIN, Nothing(9.0), tmp_path).outcome is Outcome.STOPPED
    lines = "[    1.000000] Kernel panic - not syncing: VFS: Unable to mount root fs\r\n"
    played.play(monkeypatch, tmp_path, [(0.0, lines)], end="stay")
    assert kept(PLAIN, Nothing(3.0), tmp_path).outcome is Outcome.PANIC


def test_an_event_is_a_signal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = play(monkeypatch, tmp_path, [], ready="event:RTC_CHANGE", events=("RTC_CHANGE",))
    assert found.outcome is Outcome.READY


def test_the_chart_of_processes_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stat = "1 (init) S 0 0 0 0 -1 4 5 6 0 0 3 4 0 0 20 0 1 0 29 1208320 97"
    probe = f"@ 100\nc cpu 1 2 3 4 5\np {stat}\n@ 110\n"
    vm = replace(USUAL, network=False)
    found = play(monkeypatch, tmp_path, [(0.2, "a login: ")], vm=vm, probe=probe, collector=True)
    assert found.outcome is Outcome.READY
    chart = (tmp_path / "boot" / "bootchart" / "proc_ps.log").read_text()
    assert chart.startswith(f"100\n{stat}")


@pytest.mark.lengthy
def test_lines_get_the_time_they_came_at_and_all_of_a_burst_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    burst = "".join(f"line {n}\r\n" for n in range(20_000))
    found = play(monkeypatch, tmp_path, [(0.0, "early\r\n"), (2.0, burst), (0.0, "a login: ")])
    assert found.outcome is Outcome.READY
    console = (tmp_path / "boot" / "console.log").read_text()
    assert console.count("line ") == 20_000
    times = [
        float(t) for t in re.findall(r"^\[(\d+\.\d+) ", (tmp_path / "boot" / "console.times.log").read_text(), re.M)
    ]
    assert times == sorted(times) and times[1] - times[0] > 0.4


def test_a_series_alternates_and_keeps_every_boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    played.play(monkeypatch, tmp_path, [(0.0, "a login: ")])
    variants = [series_run.variant(name, replace(USUAL, network=False)) for name in ("base", "other")]
    plan = OwnInit(parse_signal("login"), 10.0)
    found = series_run.run("subject", series_run.in_turn(variants, 2), plan, tmp_path / "out")
    assert [(b.variant, b.number) for b in found.boots] == [("base", 1), ("other", 1), ("base", 2), ("other", 2)]
    again = series_run.run("subject", series_run.in_turn(variants, 2), plan, tmp_path / "out", before=found.boots)
    assert again.boots == found.boots
    record = tmp_path / "out" / "boots.json"
    assert record.is_file()


def test_a_run_goes_on_only_with_the_same_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    played.play(monkeypatch, tmp_path, [(0.0, "a login: ")])
    kernel = tmp_path / "kernel"
    kernel.write_bytes(b"x")
    schedule = [(series_run.variant("base", replace(USUAL, kernel=str(kernel), network=False)), 1)]
    plan = OwnInit(parse_signal("login"), 10.0)
    found = series_run.run("subject", schedule, plan, tmp_path / "out")
    assert series_run.Earlier(tmp_path / "out").of(plan, schedule) == found.boots
    longer = replace(plan, timeout_s=99.0)
    assert series_run.Earlier(tmp_path / "out").of(longer, schedule) == found.boots  # it was ready in less
    late = replace(found.boots[0], boot=replace(found.boots[0].boot, outcome=Outcome.TIMEOUT))
    records.save(replace(found, boots=(late,)), tmp_path / "out" / "boots.json")
    assert series_run.Earlier(tmp_path / "out").of(plan, schedule) == (late,)
    assert series_run.Earlier(tmp_path / "out").of(longer, schedule) == ()  # it may get there now
    after = (tmp_path / "out" / "boots.json").stat().st_mtime + 1
    os.utime(kernel, (after, after))
    assert series_run.Earlier(tmp_path / "out").of(plan, schedule) == ()


def test_nor_with_another_initial_ram_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """But ours, beside the boots, is written again by every run."""
    played.play(monkeypatch, tmp_path, [(0.0, "a login: ")])
    out, plan = tmp_path / "out", OwnInit(parse_signal("login"), 10.0)
    for initrd, goes_on in ((tmp_path / "initrd", False), (out / "small" / "initrd", True)):
        initrd.parent.mkdir(exist_ok=True, parents=True)
        initrd.write_bytes(b"x")
        schedule = [(series_run.variant("base", replace(USUAL, initrd=str(initrd), network=False)), 1)]
        found = series_run.run("subject", schedule, plan, out)
        assert series_run.Earlier(out).of(plan, schedule) == found.boots
        after = (out / "boots.json").stat().st_mtime + 1
        os.utime(initrd, (after, after))
        assert series_run.Earlier(out).of(plan, schedule) == (found.boots if goes_on else ())


def test_an_interrupted_series_keeps_the_boots_until_then_and_goes_on_with_the_next(tmp_path: Path) -> None:
    made: list[Machine] = []

    def booter(machine: Machine, *_: object, **__: object) -> tuple[Boot, Gathered]:
        made.append(machine)
        if len(made) == 2:
            raise KeyboardInterrupt
        return Boot(Outcome.READY, (), float(len(made))), GATHERED

    out, plan = tmp_path / "out", OwnInit(parse_signal("login"), 10.0)
    schedule = series_run.in_turn([series_run.variant("base", PLAIN)], 2)
    with pytest.raises(KeyboardInterrupt):
        series_run.run("subject", schedule, plan, out, booter=booter)
    (kept_,) = records.load(BootSeries, out / "boots.json").boots
    assert (kept_.variant, kept_.number, kept_.boot.seconds) == ("base", 1, 1.0)
    found = series_run.run(
        "subject", schedule, plan, out, before=series_run.Earlier(out).of(plan, schedule), booter=booter
    )
    assert [(one.number, one.boot.seconds) for one in found.boots] == [(1, 1.0), (2, 3.0)] and len(made) == 3
    assert records.load(BootSeries, out / "boots.json") == found
