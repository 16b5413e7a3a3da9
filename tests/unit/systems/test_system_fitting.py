# SPDX-License-Identifier: Apache-2.0
"""The way of a system through the stages, with boots and compiles stood in for: what is planned, tried, recorded and
kept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.kernel_tree import read_tree
from tests.unit.systems.test_system_planning import BASELINE, BOOK, LOADS, LOG, SOURCE

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.explain.lookup import KnownSource
from vmtailor.analysis.explain.name_index import AskedNames
from vmtailor.analysis.guests.machine_variants import PLACEBO_WORDS
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import GuestError
from vmtailor.base.files import records
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import named
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.system_exercise import SystemExercise, SystemReady, SystemReadyKind
from vmtailor.model.boots.workload import FIXED_KEY, Attended
from vmtailor.model.exercise import Step, StepKind
from vmtailor.model.guest import GuestReport
from vmtailor.model.kernel import KernelBaseline, KernelFiles
from vmtailor.model.machine import Clock, Disk, DiskFormat, Machine
from vmtailor.model.systems.system import (
    DiskLayout,
    Init,
    InitKind,
    LoaderEntry,
    Mount,
    OsRelease,
    SubjectKind,
    System,
    TableKind,
)
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.model.watched.system_trace import LogFigures, SystemTrace
from vmtailor.pipeline import kernel_repair, kernel_trials, keys
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.systems import system_kernel, system_plan
from vmtailor.pipeline.systems.inputs import words
from vmtailor.pipeline.systems.system_subject import SystemSubject
from vmtailor.stages import system_verify, system_watch
from vmtailor.stages.system_verify import SystemTarget
from vmtailor.stages.system_watch import SystemTraceInputs

TREE = read_tree()
EXERCISE = SystemExercise("x.toml", SystemReady(SystemReadyKind.UNIT, unit="a.target"), (Step(StepKind.COMMAND),))
SUBJECT = System(
    "disk:x.raw", SubjectKind.DISK, "x86_64", OsRelease(pretty_name="Small"),
    Init("/sbin/init", "/x", InitKind.SYSTEMD), "6.12.1", (), (), (), (),
    disk=DiskLayout("raw", 1 << 20, TableKind.MBR, (), root=2),
)  # fmt: skip
RIGHT = SystemRun(Boot(Outcome.READY, (), 1.0, cpu_s=5.0), GuestReport())

WORK = Attended(EXERCISE, Path("volume"), FIXED_KEY, 1.0)

Runs = Callable[[SystemTarget], SystemRun]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SystemSubject:
    """Inputs of the made-up kernel tree, with files that are none."""
    files = {name: tmp_path / name for name in ("vmlinuz", "config", "System.map", "x.raw", "attendant", "small-init")}
    for name, path in files.items():
        path.write_text(name)
    vmlinuz, config, table = (str(files[name]) for name in ("vmlinuz", "config", "System.map"))
    kernel = KernelBaseline("6.12.1", "6.12.1", vmlinuz, config, table, "", "", "", str(SOURCE), "5a", ("package 1",))
    found: Any = SimpleNamespace(
        subject=SUBJECT, disk=SimpleNamespace(path=files["x.raw"], format=DiskFormat.RAW),
        root=SimpleNamespace(begin=lambda path, most: b""),
    )  # fmt: skip
    natives: Any = SimpleNamespace(attendant=files["attendant"], small_init=files["small-init"])
    own: Any = SimpleNamespace(file=files["vmlinuz"], modules=None, way_in=())
    options = FitOptions(
        "disk:x.raw", tmp_path / "out", tmp_path / "x.toml", "x86_64", "microvm", 512 << 20,
        store=Store(tmp_path / "c"), distribution=SimpleNamespace(),
    )  # fmt: skip
    known = KnownSource(TREE.facts, AskedNames("6.12.1", {}, {}), demand_rules.load(), TREE.kconfig)
    baseline = Machine("microvm", 512 << 20, vmlinuz, ("root=/dev/vda2", "rw"), disks=(Disk(str(files["x.raw"])),))
    monkeypatch.setattr(keys, "of_run", lambda judge, machine, exercise, natives, *more: digest(repr((machine, more))))
    make = functools.partial(system_plan.make_system_plan, catalogue=BOOK)
    monkeypatch.setattr(system_plan, "make_system_plan", make)
    return SystemSubject(
        options=options, architecture=named("x86_64"), found=found, sha256="1d", exercise=EXERCISE, kernel=kernel,
        source=SourceTree(SOURCE, "5a"), tree=TREE, known=known, natives=natives, own=own, baseline=baseline,
        table=SymbolTable.parse("ffffffff81000000 T _text\n", "x86_64"), config=dict(BASELINE),
    )  # fmt: skip


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Callable[[Runs], list[SystemTarget]]:
    """Stages without machines and compilers: each run of the exercise is what a function says."""

    def stand_in(runs: Runs) -> list[SystemTarget]:
        seen: list[SystemTarget] = []

        def run(target: SystemTarget, scratch: Path, patience: object = None, **_: object) -> SystemRun:
            seen.append(target)
            return runs(target)

        monkeypatch.setattr(system_verify, "run", run)
        return seen

    def trace(inputs: SystemTraceInputs, folder: Path, scratch: Path) -> SystemTrace:
        assert inputs.machine.clock is Clock.INSTRUCTIONS and not inputs.machine.entropy
        assert inputs.plain_s == RIGHT.boot.seconds  # the run before tells how long it takes: no boot finds out again
        figures = LogFigures(2, 2, 2, 0, 0, len(LOG), 1.0)
        record = SystemTrace(
            "disk:x.raw", inputs.machine, RIGHT.boot, 1.0, "log", figures, True, (), (), LOADS, (), (), ()
        )
        (folder / "log").write_bytes(LOG)
        records.save(record, folder / system_watch.RECORD)
        return record

    def built(findings: Any, made: Any) -> KernelFiles:
        enabled = ",".join(sorted(one.id for one in made.symbols if one.is_kept))
        return KernelFiles("6.12.1", f"/kernel/{enabled}", 1, None, 1, "", "", "", "cc", 1, 1.0)

    monkeypatch.setattr(system_watch, "trace", trace)
    monkeypatch.setattr(system_verify, "workload", lambda target, folder, **_: WORK)
    usual = Machine("q35", 1 << 30, clock=Clock.WALL)
    monkeypatch.setattr(system_kernel, "machine_of", lambda found, own, **_: usual)
    monkeypatch.setattr(kernel_trials, "built", built)
    return stand_in


def failing(text: str, **boot: object) -> SystemRun:
    changed: Any = {"failures": (text,), **boot}
    return replace(RIGHT, boot=replace(RIGHT.boot, **changed))


def test_what_the_system_asked_for_is_built_in_and_verified_on_the_clock_that_waits_for_nobody(
    given: SystemSubject, stages: Callable[[Runs], list[SystemTarget]]
) -> None:
    seen = stages(lambda target: RIGHT)
    found = given.trace()
    fitted = kernel_repair.fit_kernel(found)
    assert fitted.verification.passed and [trial.passed for trial in found.trials] == [True]
    ipv6 = fitted.plan.symbol("IPV6")
    assert ipv6 is not None and ipv6.value == "y"
    before, after = seen
    assert before.machine.kernel != after.machine.kernel and after.machine.initrd is None
    assert before.machine.clock is after.machine.clock is Clock.INSTRUCTIONS
    assert after.root.device == "/dev/vda2" and after.root.writable
    # Once it passed, nobody is asked again; nor is the baseline, or the trace.
    again = kernel_repair.fit_kernel(given.trace())
    assert again.verification.passed and len(seen) == 2


def test_what_a_message_asks_for_is_put_back(
    given: SystemSubject, stages: Callable[[Runs], list[SystemTarget]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs(target: SystemTarget) -> SystemRun:
        kernel = target.machine.kernel or ""
        works = not kernel.startswith("/kernel/") or "PARTS_FS" in kernel
        return RIGHT if works else failing('mount("none", "/x", "parts", 0, NULL) = -1 ENODEV (No such device)')

    seen = stages(runs)
    found = given.trace()
    fitted = kernel_repair.fit_kernel(found)
    assert fitted.verification.passed, [trial.failures for trial in found.trials]
    assert fitted.plan.symbol("PARTS_FS") is not None
    assert [trial.passed for trial in found.trials] == [False, True] and len(seen) == 3


def test_what_fails_once_and_asks_for_nothing_is_asked_again_before_a_kernel_is_compiled_for_it(
    given: SystemSubject, stages: Callable[[Runs], list[SystemTarget]]
) -> None:
    late = "its time to shut down is over"
    seen = stages(lambda target: failing(late) if len(seen) == 2 else RIGHT)
    found = given.trace()
    fitted = kernel_repair.fit_kernel(found)
    assert fitted.verification.passed and [trial.passed for trial in found.trials] == [True] and len(seen) == 3
    assert [(one.code, late in one.text) for one in given.doubts(found)] == [("unsteady", True)]
    # What is in doubt is not kept: a second fit asks for itself.
    assert kernel_repair.fit_kernel(given.trace()).verification.passed and len(seen) == 4


def test_what_fails_twice_is_a_failure(given: SystemSubject, stages: Callable[[Runs], list[SystemTarget]]) -> None:
    seen = stages(
        lambda target: failing("no answer") if (target.machine.kernel or "").startswith("/kernel/") else RIGHT
    )
    given = replace(given, options=replace(given.options, budget=1))
    found = given.trace()
    fitted = kernel_repair.fit_kernel(found)
    assert fitted.verification.failures == ("no answer",) and len(seen) == 3 and not found.seen.unsteady


def complaining(*messages: str) -> SystemRun:
    return replace(RIGHT, boot=replace(RIGHT.boot, kernel_warnings=messages))


@pytest.mark.parametrize(
    ("first", "second", "failures"),
    [
        (["a race of 17 and 4"], [], ()),
        (["a race of 17 and 4"], ["another race"], ()),
        (["a timer is off (7)", "a race of 17"], ["a timer is off (9)", "another"], ("a timer is off (9)",)),
    ],
)
def test_a_message_that_other_timing_does_not_repeat_is_a_races(
    given: SystemSubject,
    stages: Callable[[Runs], list[SystemTarget]],
    first: list[str],
    second: list[str],
    failures: tuple[str, ...],
) -> None:
    """On the instruction clock the same machine does the same, so the second one has a word that means nothing."""
    words: list[tuple[str, ...]] = []

    def run(target: SystemTarget) -> SystemRun:
        if not (target.machine.kernel or "").startswith("/kernel/"):
            return RIGHT
        words.append(target.machine.words)
        return complaining(*(first if len(words) == 1 else second))

    stages(run)
    given = replace(given, options=replace(given.options, budget=1))
    found = given.trace()
    fitted = kernel_repair.fit_kernel(found)
    assert fitted.verification.failures == tuple(f"the kernel complains: {text}" for text in failures)
    assert words[1] == (*words[0], PLACEBO_WORDS[0]) and fitted.machine.words == words[0]
    only_once = [text for text in (*second, *first) if (text in first) != (text in second)]
    told = [] if failures else [f"the kernel complains: {text}" for text in only_once]
    assert found.seen.unsteady == told


def test_what_does_not_work_in_the_second_run_is_a_failure_whatever_the_first_one_said(
    given: SystemSubject, stages: Callable[[Runs], list[SystemTarget]]
) -> None:
    seen = stages(lambda target: (RIGHT, RIGHT, complaining("a race"), failing("no answer"))[min(len(seen), 3)])
    given = replace(given, options=replace(given.options, budget=1))
    found = given.trace()
    assert kernel_repair.fit_kernel(found).verification.failures == ("no answer",)


def test_a_unit_that_newly_fails_is_a_failure_though_the_exercise_passes(
    given: SystemSubject, stages: Callable[[Runs], list[SystemTarget]]
) -> None:
    def runs(target: SystemTarget) -> SystemRun:
        tailored = (target.machine.kernel or "").startswith("/kernel/")
        return replace(RIGHT, boot=replace(RIGHT.boot, failed_units=("x.mount",))) if tailored else RIGHT

    stages(runs)
    given = replace(given, options=replace(given.options, budget=1))
    found = given.trace()
    fitted = kernel_repair.fit_kernel(found)
    assert fitted.verification.failures == ("unit x.mount failed, which it did not on the baseline",)
    key = given.verification_key(found, fitted.plan, fitted.machine)
    assert not given.options.store.has("verification", key)


def test_a_system_that_does_not_work_on_its_own_kernel_is_not_fitted(
    given: SystemSubject, stages: Callable[[Runs], list[SystemTarget]]
) -> None:
    stages(lambda target: failing("unit a.target did not start"))
    with pytest.raises(GuestError, match=r"does not pass its exercise on its own kernel: unit a\.target"):
        given.trace()
    stages(lambda target: RIGHT)
    assert given.trace().seen.before == RIGHT  # nothing of the failure was kept


def test_what_fails_under_the_tracer_alone_is_a_warning(
    given: SystemSubject, stages: Callable[[Runs], list[SystemTarget]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes without the tracer; a system that does not even get ready there was not seen, though."""
    before = replace(RIGHT, boot=replace(RIGHT.boot, failed_units=("old.service",)))
    stages(lambda target: before)
    whole, outcome = system_watch.trace, Outcome.WRONG

    def trace(inputs: SystemTraceInputs, folder: Path, scratch: Path) -> SystemTrace:
        record = whole(inputs, folder, scratch)
        failed = ("old.service", "slow.service")
        boot = replace(record.boot, outcome=outcome, failures=("step 2: too late",), failed_units=failed)
        record = replace(record, boot=boot)
        records.save(record, folder / system_watch.RECORD)
        return record

    monkeypatch.setattr(system_watch, "trace", trace)
    found = given.trace()
    assert [(one.code, one.text.split(";")[0]) for one in given.doubts(found)] == [
        ("traced", "only while every system call was seen: step 2: too late"),
        ("traced", "only while every system call was seen: unit slow.service failed"),
    ]
    assert kernel_repair.fit_kernel(found).verification.passed

    outcome = Outcome.TIMEOUT
    other = replace(given, options=replace(given.options, store=Store(given.options.out / "other")))
    with pytest.raises(GuestError, match="does not get ready while every system call is seen: step 2: too late"):
        other.trace()


def test_both_machines_get_the_systems_own_words(given: SystemSubject) -> None:
    row = given.architecture
    found = words(SUBJECT, row, ("tsc=reliable", "panic=-1"))
    assert found[0] == "root=/dev/vda2" and found.count("panic=-1") == 1 and "tsc=reliable" in found
    assert set(row.kernel.words) <= set(found)


def test_a_root_that_nobody_mounts_again_is_writable_from_the_start() -> None:
    """A tree has no loader that says how its root is mounted."""
    row = named("x86_64")
    assert "rw" in words(SUBJECT, row) and "ro" not in words(SUBJECT, row)
    kept = replace(SUBJECT, mounts=(Mount("/dev/vda", "/", "ext4", ("defaults",)),))
    assert "ro" in words(kept, row) and "rw" not in words(kept, row)
    told = replace(SUBJECT, entries=(LoaderEntry("x", "/k", (), ("ro", "quiet"), "grub.cfg", chosen=True),))
    assert "ro" in words(told, row) and "rw" not in words(told, row)
