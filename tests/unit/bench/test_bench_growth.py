# SPDX-License-Identifier: Apache-2.0
"""Memory and density of instances within a machine, and units of several tests in one boot: what the guest is told to
do, what it says, and what becomes of it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.bench.test_bench_descriptions import strictly_filled
from tests.unit.bench.test_bench_inside_machine import INSIDE, NAMES, WITHIN_JOB

from vmtailor.base.errors import GuestError
from vmtailor.bench.analysis import guest_growth
from vmtailor.bench.analysis.benchmarks import AVAILABLE, BEFORE, CHARGED, OF_KERNEL, BenchTest
from vmtailor.bench.analysis.boot_counts import units_of_steps
from vmtailor.bench.analysis.schedule import PlannedTrial, plan
from vmtailor.bench.model.job import BenchMonitor
from vmtailor.bench.model.results import CLOCK, BenchFigure, SuiteName
from vmtailor.bench.run import growth_boot, guest_engine, units_boot
from vmtailor.bench.run.growth_boot import DENSITY, IDLE, SMALL_BYTES, Growths
from vmtailor.bench.run.guest_engine import GuestEngine
from vmtailor.bench.run.machine_counts import cannot_tell, machine_tests
from vmtailor.bench.run.units_boot import UnitBoots
from vmtailor.bench.runtimes import description
from vmtailor.bench.runtimes import guest_runtime as guest
from vmtailor.bench.runtimes.description import Commands, Description, RootForm
from vmtailor.bench.runtimes.growth_script import SEEN, growing
from vmtailor.bench.runtimes.guest_runtime import ROUNDS, in_turn
from vmtailor.bench.suites.bench_run import TrialFailed
from vmtailor.model.boots.boot import Boot, FunctionCost, Milestone, Outcome, Phase, PhaseCounts
from vmtailor.model.boots.counters import Totals
from vmtailor.model.boots.ending import End, Ending, Gathered
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.guest import GuestReport

MEMORY_JOB = replace(
    WITHIN_JOB, suites=(SuiteName.MEMORY,), only=(), at_once=False, counts=(1, 4), variant="", quick=False
)
NOTES = """\
look 0
MemTotal:        1000000 kB
MemAvailable:     900000 kB
Slab:              20000 kB
KernelStack:        1000 kB
HugePages_Total:       0
look 4
MemAvailable:     860000 kB
Slab:              22000 kB
KernelStack:        1400 kB
current 1048576
current 2097152
current 1048576
current 4194304
stopped 5
started 5
answered 4
"""


@pytest.mark.parametrize("name", NAMES)
def test_every_description_becomes_scripts_that_a_shell_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (description, guest):
        monkeypatch.setattr(module, "filled", strictly_filled)
    one = description.load(name)
    commands = [["/bench/bench", "null"], ["/bench/bench", "spin"]]
    turn = in_turn(one, commands, commands[:1], "bench:1", "/dev/vdb", "/dev/vdc")
    for script in (growing(one, (1, 4), 9, "bench:1", "/dev/vdb", "/dev/vdc"), turn.prepare):
        read = subprocess.run(["sh", "-n"], input=script.encode(), capture_output=True, timeout=20, check=False)
        assert read.returncode == 0, read.stderr
        assert len(script.encode()) < 100_000  # a word of a command is at most 128 KiB
    assert len(turn.run) == 2 and turn.run[0] != turn.run[1]
    groups = [[word for word in words if word.endswith("/cgroup.procs")] for words in turn.run]
    if name == "nspawn":  # a cgroup that passed controllers on is never entered again
        assert groups[0] and groups[0] != groups[1]


def of_shell(start: str) -> Description:
    """A runtime whose instances are what a shell does."""
    return Description(
        name="fake", title="fake", programs=(), packages=(), root=RootForm.IMAGE,
        commands=Commands(run=("true",), start=("sh", "-c", start)),
    )  # fmt: skip


def grown_here(start: str, tmp_path: Path, most: int = 9) -> str:
    """What the script notes on this host, without its disks, its rests, and its hold on the host's memory."""
    script = growing(of_shell(start), (1, 2), most, "bench:1", "/dev/vdb", "/dev/vdc")
    for before, after in (
        (ROUNDS, str(tmp_path / "rounds")), ("/run/vmtailor-", f"{tmp_path}/"), ("mount -o remount,rw /\n", ""),
        ("must mount", "true"), (guest.FOLDER, str(tmp_path / "own")),
        ("echo 3 >/proc/sys/vm/drop_caches; sleep 5", ":"),
        ("sleep 1;", ":;"), ("sleep 30", ":"), ("command -v systemctl", "false"), ("sync;", ""), ("sync\n", "\n"),
    ):  # fmt: skip
        script = script.replace(before, after)
    subprocess.run(["sh", "-c", script], timeout=60, check=True)
    seen = tmp_path / SEEN.removeprefix("/run/vmtailor-")
    log = tmp_path / guest.LOG.removeprefix("/run/vmtailor-")
    return seen.read_text() if seen.is_file() else log.read_text()


def test_instances_are_started_until_one_fails_and_then_asked_whether_they_are_there(tmp_path: Path) -> None:
    rounds = tmp_path / "rounds"
    start = f"n={{name}}; n=${{n#bench}}; [ $n != 3 ] || exit 7; : >{rounds}/$n; [ $n = 1 ] || : >{rounds}/$n.told"
    found = guest_growth.read(grown_here(start, tmp_path))
    assert (found.started, found.stopped, found.answered) == (3, True, 2)
    assert sorted(found.looks) == [0, 1, 2] and all(look.meminfo["MemTotal"] > 1 << 20 for look in found.looks.values())
    assert "it did not start" in (tmp_path / "bench.log").read_text()


def test_a_machine_that_has_room_says_that_none_failed(tmp_path: Path) -> None:
    start = f"n={{name}}; : >{tmp_path}/rounds/${{n#bench}}; : >{tmp_path}/rounds/${{n#bench}}.told"
    found = guest_growth.read(grown_here(start, tmp_path, most=4))
    assert (found.started, found.stopped, found.answered) == (4, False, 4)
    assert found.density() == {"started": 4.0, "still answered": 4.0}


def test_figures_are_what_memory_grew_by_for_each() -> None:
    found = guest_growth.read(NOTES)
    assert found.idle(4, 1 << 30) == {
        AVAILABLE: 10_240_000.0, OF_KERNEL: 614_400.0, BEFORE: float((1 << 30) - 900_000 * 1024), CHARGED: 2_097_152.0,
    }  # fmt: skip
    assert found.idle(16, 1 << 30) is None and found.density() == {"started": 5.0, "still answered": 4.0}
    less = guest_growth.read(NOTES.replace("current 4194304\n", ""))
    assert CHARGED not in (less.idle(4, 1 << 30) or {})  # a cgroup that is not seen makes no mean
    assert guest_growth.read("started 3\n").density() is None


@given(st.text(max_size=300) | st.lists(st.sampled_from(NOTES.split("\n")), max_size=40).map("\n".join))
def test_any_notes_are_read(text: str) -> None:
    found = guest_growth.read(text)
    for count in found.looks:
        values = found.idle(count, 1 << 30)
        assert values is None or count > 0


def test_memory_is_a_test_of_engines_within_a_machine() -> None:
    found = machine_tests(MEMORY_JOB)
    assert [(test.test, test.count, test.variant) for test in found] == [
        (IDLE, 1, CLOCK), (IDLE, 4, CLOCK), (DENSITY, 1, CLOCK),
    ]  # fmt: skip
    assert not machine_tests(replace(MEMORY_JOB, insides=(), inside_runtimes=()))
    monitor = BenchMonitor(name="kvm:x", asked="kvm:x", title="QEMU", argv=("qemu",), files=(), version=(), machine="")
    said = cannot_tell(replace(MEMORY_JOB, insides=(replace(INSIDE, monitors=(monitor,)),)))
    assert any(text.startswith("vm:engines/…: memory least: cannot tell") for text in said)
    assert any(text.startswith("vm:engines/kvm:x: memory: cannot tell") for text in said)


def engine(tmp_path: Path) -> GuestEngine:
    return GuestEngine(INSIDE, description.load("native"), tmp_path)


def test_numbers_of_idle_instances_share_a_boot_and_density_has_a_small_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booted: list[tuple[int, tuple[int, ...], int]] = []

    def grown(machine: GuestEngine, looks: Sequence[int], most: int) -> guest_growth.Growth:
        booted.append((machine.known.machine.machine.memory_bytes, tuple(looks), most))
        return guest_growth.read(NOTES)

    monkeypatch.setattr(growth_boot, "grown", grown)
    found, here = Growths(MEMORY_JOB), engine(tmp_path)
    one, four, density = plan(machine_tests(MEMORY_JOB), [here.name], 1, 1)
    with pytest.raises(TrialFailed, match="5 of 1 instances"):  # which these notes do not have
        found.figures(one, here)
    assert found.has(four) and not found.has(density) and not found.has(replace(four, block=2))
    figures = {figure.name: figure.value for figure in found.figures(four, here)}
    assert figures[AVAILABLE] == 10_240_000.0
    assert [figure.value for figure in found.figures(density, here)] == [5.0, 4.0]
    assert booted == [(1 << 30, (1, 4), 4), (SMALL_BYTES, (), 64)]

    def refused(*_: Any) -> guest_growth.Growth:
        booted.append((0, (), 0))
        raise GuestError("in the machine: podman is not there")

    monkeypatch.setattr(growth_boot, "grown", refused)
    before = len(booted)
    for trial in (replace(one, block=2), replace(four, block=2)):
        with pytest.raises(TrialFailed, match="podman is not there"):
            found.figures(trial, here)
    assert len(booted) == before + 1  # what failed is not booted again for each number


def test_units_of_all_tests_share_a_boot_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replace(WITHIN_JOB, suites=(SuiteName.UNIXBENCH, SuiteName.STARTUP), only=(), at_once=False, quick=True)
    found, here = UnitBoots(replace(job, one_boot=True)), engine(tmp_path)
    planned = plan(machine_tests(job), [here.name], 2, 1)
    start = next(trial for trial in planned if trial.test.suite == SuiteName.STARTUP)
    units = [trial for trial in planned if trial.test.suite == SuiteName.UNIXBENCH]
    assert not UnitBoots(job).takes(units[0].test) and found.takes(units[0].test) and not found.takes(start.test)
    found.left = lambda: planned
    booted: list[list[BenchTest]] = []

    def done(tests: Sequence[BenchTest], _: GuestEngine) -> dict[BenchTest, tuple[BenchFigure, ...] | TrialFailed]:
        booted.append([*tests])
        return {test: (BenchFigure(name=test.test, value=1.0, unit=""),) for test in tests}

    monkeypatch.setattr(units_boot, "_booted", cast(Any, done))
    for trial in units:
        (figure,) = found.figures(trial, here)
        assert figure.name == trial.test.test and found.has(trial)
    names = list(dict.fromkeys(trial.test.test for trial in units))
    assert [[test.test for test in tests] for tests in booted] == [names, names]  # one boot for each repetition


def test_a_unit_costs_the_difference_of_two_commands() -> None:
    less, more = Totals(kernel=1000, user=100, ports=1, mmio=2), Totals(kernel=3000, user=150, ports=2, mmio=2)
    found = {figure.name: figure.value for figure in units_of_steps(less, more, 10)}
    assert found == {"kernel a unit": 200.0, "user a unit": 5.0, "devices a unit": 0.1}


def test_each_of_several_starts_of_a_boot_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SystemExercise] = []
    counted = [Totals(kernel=100, user=10), Totals(kernel=120, user=12)]
    end = End(Ending.EXITED, "qemu", "", "", 1.0, 0)
    gathered = Gathered(end, 0.0, GuestReport(), b"", (), counters=cast(Any, "counters"))

    def driven(_: GuestEngine, exercise: SystemExercise, *__: Any, **___: Any) -> tuple[Boot, Gathered]:
        asked.append(exercise)
        phases = (PhaseCounts(Phase.LOAD, 220, 22),)
        functions = (FunctionCost("copy_page", Phase.LOAD, 60), FunctionCost("kmalloc", Phase.KERNEL, 99))
        marks = (Milestone("load", 0, 0), Milestone("load_end", 0, 4000))
        return Boot(Outcome.READY, marks, 1.0, phases=phases, functions=functions), gathered

    monkeypatch.setattr(GuestEngine, "driven", driven)
    monkeypatch.setattr(guest_engine, "steps", lambda _: counted)
    here = replace(engine(tmp_path), in_each=2)
    found = here.start(["/bench/bench", "report"])
    named = [(figure.name, figure.instance, figure.value) for figure in found]
    assert named == [
        ("kernel to its end", 0, 100.0), ("user to its end", 0, 10.0), ("devices to its end", 0, 0.0),
        ("kernel to its end", 1, 120.0), ("user to its end", 1, 12.0), ("devices to its end", 1, 0.0),
        ("virtual time to its end", 0, 2e-6), ("functions of the kernel to its end: copy_page", 0, 30.0),
    ]  # fmt: skip
    assert (
        len(asked[0].load) == 2 and asked[0].load[0].argv != asked[0].load[1].argv
    )  # each with an instance of its own
    counted.pop()
    with pytest.raises(GuestError, match="counted 1 of 2 starts"):
        here.start(["/bench/bench", "report"])


def test_what_a_trial_is_of_tells_its_boot() -> None:
    test = machine_tests(MEMORY_JOB)[0]
    assert PlannedTrial(test, "a", 1).boot != PlannedTrial(test, "a", 2).boot
