# SPDX-License-Identifier: Apache-2.0
"""A system's bundle measured and fitted once more, and a system in a work folder: from what is in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes import work_data
from tests.fakes.bundle_data import bundle
from tests.fakes.fit_run_data import fit_run
from tests.fakes.kernel_tree import VERSION
from tests.fakes.started import Start
from tests.unit.systems.test_reverifying import BEFORE, EXERCISE, write
from tests.unit.systems.test_system_fitting import RIGHT, SUBJECT, Runs, given, stages
from tests.unit.systems.test_system_planning import LOADS, LOG

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.kernel import kept_source, kernel_source
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.bundle import PLAN, RUN, SYSTEM_TRACED
from vmtailor.model.change import Cause, Change, ChangeKind, Reason, Setting, symbol
from vmtailor.model.exercise import StepKind
from vmtailor.model.fit_run import FitRun
from vmtailor.model.kernel import KernelFiles
from vmtailor.model.machine import Clock, Disk, DiskFormat, DiskMode, Machine
from vmtailor.model.plan import Plan
from vmtailor.model.systems.kept_changes import Tuning
from vmtailor.model.systems.units import UnitChoice, UnitFate, UnitsMode, UnitStanding
from vmtailor.model.trial import Verification
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.model.watched.system_trace import LogFigures, SystemTrace
from vmtailor.pipeline import (
    bundle_files,
    bundle_kernel,
    fit,
    fit_sides,
    measured_machines,
    reverify,
    second_fit,
    subject_kind,
    system_bundle,
    work_stages,
)
from vmtailor.pipeline.measured_machines import Measured, MeasureRequest
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.reverify import VerifyRequest
from vmtailor.pipeline.second_fit import RefitRequest
from vmtailor.pipeline.subject import Findings, UsersDisk
from vmtailor.pipeline.systems.driven_system import SystemSeen
from vmtailor.pipeline.systems.system_subject import SystemSubject
from vmtailor.pipeline.work_files import BothSides, Work, is_work_folder
from vmtailor.stages import build as build_stage
from vmtailor.stages import kernel_plan, system_files, system_verify
from vmtailor.stages.exercise_file import in_guest
from vmtailor.stages.measure import MeasuredMachine
from vmtailor.stages.system_files import OpenedSystem
from vmtailor.stages.system_verify import SystemTarget

__all__ = ["given", "stages"]

pytestmark = pytest.mark.usefixtures("own_cache")

Asked = list[tuple[MeasureRequest, MeasuredMachine]]

BOOT = Boot(Outcome.READY, (), 1.0, "qemu")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    """Nothing is booted: what would have been measured."""
    seen: Asked = []

    def record(asked: MeasureRequest) -> Measured:
        seen.append((asked, asked.subject(tmp_path)))
        return Measured((BOOT,), (BOOT,), (), 7 << 20, None)

    monkeypatch.setattr(measured_machines, "measured", record)
    return seen


def test_the_machine_of_a_systems_bundle_is_measured_until_its_system_is_ready(
    tmp_path: Path, start: Start, measured: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "bundle")
    driven: list[tuple[SystemTarget, object]] = []

    def workload(target: SystemTarget, *_: object, until: object) -> None:
        driven.append((target, until))

    monkeypatch.setattr(system_verify, "workload", workload)
    code, out, err = start("measure", folder, "--repeat", "2", "--json")
    assert code == 0, err
    ((asked, found),) = measured
    machine = found.machine
    assert (asked.boots, machine.clock, machine.network) == (2, Clock.INSTRUCTIONS, True)
    assert machine.words == ("root=/dev/vda", "rw") and machine.cpu_model == "max" and machine.ports == ()
    assert machine.disks[0].path == str(folder / "disk.raw") and machine.disks[0].mode is DiskMode.OVERLAID
    ((target, until),) = driven
    assert str(until) == "ready" and target.root.device == "/dev/vda2"
    assert all(step.kind is not StepKind.HOST_COMMAND for step in target.exercise.load)
    said = json.loads(out)
    assert said["tailored"]["min_memory_bytes"] == 7 << 20 and said["baseline_of"] == "0.1.0"
    before = fit_run().baseline
    assert said["baseline"]["init_instructions"] == before.init_instructions
    assert before.ready_wall_us is not None and said["baseline"]["ready_wall_us"] is None
    assert "baseline's figures are those of the fit (vmtailor 0.1.0)" in " ".join(err.split())


@pytest.mark.attack
@pytest.mark.parametrize(("name", "says"), [("disk.raw", "its content differs"), ("vmlinux", "its content differs")])
def test_what_is_measured_is_what_the_record_says(tmp_path: Path, start: Start, name: str, says: str) -> None:
    folder = write(tmp_path / "bundle")
    (folder / name).write_bytes((folder / name).read_bytes()[::-1])
    code, _, err = start("measure", folder)
    assert code == 2 and says in " ".join(err.split())


@pytest.mark.attack
def test_a_strangers_processor_is_one(tmp_path: Path, start: Start) -> None:
    folder = write(tmp_path / "bundle")
    run = fit_run()
    tailored = replace(run.tailored, conditions=(("cpu model", "max -device x"),))
    records.save(replace(run, tailored=tailored), folder / RUN)
    seal(folder, bundle(root="disk.raw", image=None, words=("root=/dev/vda", "rw")))
    code, _, err = start("measure", folder)
    assert code == 2 and "is no CPU model" in err


def test_what_a_systems_bundle_has_is_not_asked_for(tmp_path: Path, start: Start) -> None:
    code, _, err = start("measure", write(tmp_path / "bundle"), "--source", "x")
    assert code == 2 and "--source does not go with" in err and "the bundle of a system" in " ".join(err.split())


# ---- refit


@dataclass
class Refitted:
    """A system's bundle, and what a refit of it opened, prepared and placed."""

    folder: Path
    subject: SystemSubject
    opened: list[tuple[Path, str, dict[str, Any]]] = field(default_factory=list)
    options: list[FitOptions] = field(default_factory=list)
    exercises: list[SystemExercise] = field(default_factory=list)

    def request(self, **more: Any) -> RefitRequest:
        asked = FitOptions("", self.folder.with_name("out"), store=self.subject.store, **more.pop("options", {}))
        return RefitRequest(self.folder, asked, **more)


TRACE = SystemTrace(
    "disk:x.raw", Machine("q35", 1 << 30), BOOT, 1.0, "log", LogFigures(2, 2, 2, 0, 0, len(LOG), 1.0), True, (), (),
    LOADS, (), (), (),
)  # fmt: skip


def traced(folder: Path, plan: Plan, trace: SystemTrace = TRACE, **run: Any) -> None:
    """Write what a refit begins with beside what a verification needs, and seal all of it."""
    records.save(trace, folder / SYSTEM_TRACED)
    (folder / "trace" / "log").write_bytes(LOG)
    records.save(plan, folder / PLAN)
    records.save(fit_run(**run), folder / RUN)
    seal(folder, bundle(root="disk.raw", image=None, words=("root=/dev/vda", "rw")))


@pytest.fixture
def refitted(
    tmp_path: Path,
    given: SystemSubject,
    stages: Callable[[Runs], list[SystemTarget]],
    monkeypatch: pytest.MonkeyPatch,
) -> Refitted:
    """The bundle of the made-up system. Its disk is opened, and its kernel is there, as `given` has them."""
    stages(lambda target: RIGHT)
    folder = write(tmp_path / "bundle")
    traced(folder, given.trace().planned())
    found = Refitted(folder, given)

    @contextmanager
    def of_disk(path: Path, reference: str, **how: Any) -> Iterator[OpenedSystem]:
        found.opened.append((path, reference, how))
        yield OpenedSystem(SUBJECT, SimpleNamespace(begin=lambda path, most: b""))  # type: ignore[arg-type]

    def of_opened(options: FitOptions, _: object, exercise: SystemExercise, source: object) -> SystemSubject:
        assert source == "the source"
        found.options.append(options)
        found.exercises.append(exercise)
        return replace(given, options=options, exercise=exercise)

    monkeypatch.setattr(system_files, "of_disk", of_disk)
    monkeypatch.setattr(system_bundle, "of_opened", of_opened)
    monkeypatch.setattr(bundle_kernel, "source_of", lambda files, *_: "the source")
    return found


def test_a_system_is_planned_again_from_its_bundles_disk_trace_and_exercise(refitted: Refitted) -> None:
    with second_fit.prepare(refitted.request()) as same:
        assert not same.difference and same.after.symbol("IPV6") and len(same.skipped) == 1
        seen = same.findings.seen
        assert seen.before == BEFORE and (seen.folder / seen.record.requests_file).read_bytes() == LOG
        assert seen.folder.parent.parent == refitted.subject.store.root
    ((path, reference, how),) = refitted.opened
    assert (path, reference) == (refitted.folder / "disk.raw", "disk:x.raw")
    assert (how["partition"], how["init"]) == (2, "/sbin/init")
    (options,), (exercise,) = refitted.options, refitted.exercises
    assert (options.machine, options.memory_bytes, options.memory_asked) == ("microvm", 64 << 20, True)
    assert exercise == in_guest(EXERCISE) != EXERCISE
    with second_fit.prepare(refitted.request(trust_host_commands=True)) as trusted:
        assert trusted.skipped == () and refitted.exercises[-1] == EXERCISE


def test_what_the_user_adds_and_what_repair_has_put_back_stand(refitted: Refitted) -> None:
    with second_fit.prepare(refitted.request(options={"drop": ("IPV6",)})) as less:
        assert "IPV6" in [one.id for one in less.difference.goes] and not less.difference.comes
    back = symbol("PARTS_FS", "y", Reason(Cause.REPAIR, "trial:2", "it failed without it"), before="n")
    with second_fit.prepare(refitted.request()) as plain:
        before = plain.after
    assert before.symbol("PARTS_FS") is None
    traced(refitted.folder, replace(before, changes=(*before.changes, back)))
    with second_fit.prepare(refitted.request()) as repaired:
        assert not repaired.difference
        kept = repaired.after.symbol("PARTS_FS")
    assert kept is not None and "in the fit before, it failed without it" in [one.text for one in kept.reasons]


def test_what_was_changed_beside_the_kernel_is_tried_again(refitted: Refitted) -> None:
    def change(name: str, *settings: Setting) -> Change:
        return Change(name, "", settings, (Reason(Cause.USER, "user:try", ""),))

    kept = (
        change("console-quiet", Setting(ChangeKind.COMMAND_LINE, "quiet", "")),
        change("file:/etc/x", Setting(ChangeKind.ROOTFS, "/etc/x", "y")),
        change("mouse", Setting(ChangeKind.UNIT, "gpm.service", "masked")),
    )
    units = tuple(UnitStanding(name, UnitFate.MASKED, "") for name in ("gpm.service", "cron.service"))
    plan = records.load(Plan, refitted.folder / PLAN)
    traced(refitted.folder, plan, tuned=Tuning(kept[:2]), units=UnitChoice(UnitsMode.TRIM, units[1:]))
    with second_fit.prepare(refitted.request()):
        pass
    assert (refitted.options[0].tries, refitted.options[0].mask) == (("console-quiet",), ("cron.service",))
    hostile = UnitStanding("a b\x1b", UnitFate.MASKED, "")
    traced(refitted.folder, plan, units=UnitChoice(UnitsMode.TRIM, (hostile,)))
    with pytest.raises(UserInputError, match="no unit is called"), second_fit.prepare(refitted.request()):
        pass


def test_the_new_bundle_has_the_disk_of_the_old_one(
    refitted: Refitted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = refitted.folder / "disk.raw"
    seen: list[object] = []
    sha256 = hashlib.sha256(disk.read_bytes()).hexdigest()
    with second_fit.prepare(refitted.request()) as prepared:
        opened: Any = SimpleNamespace(
            subject=SUBJECT, disk=SimpleNamespace(path=disk, format=DiskFormat.RAW), root=refitted.subject.found.root
        )
        machine = replace(refitted.subject.baseline, disks=(Disk(str(disk)),))
        before = prepared.findings.subject
        assert isinstance(before, SystemSubject)
        subject = replace(before, found=opened, baseline=machine, sha256=sha256)
        prepared.findings.subject = subject

        def finished(found: Findings[SystemSeen], *_: object) -> FitRun:
            seen.append(found.costs)
            return fit_run()

        def place(made: Path, out: Path, command: str, disk: UsersDisk) -> FitRun:
            seen.append(disk)
            return fit_run()

        monkeypatch.setattr(SystemSubject, "costs", lambda *_: "counted")
        monkeypatch.setattr(fit, "finished", finished)
        monkeypatch.setattr(bundle_files, "place", place)
        monkeypatch.setattr(fit_sides, "baseline_asked", lambda *_: None)
        monkeypatch.setattr(measured_machines.Ahead, "begin", lambda *_: None)
        second_fit.refit(prepared)
    assert seen == ["counted", UsersDisk("disk.raw", disk, sha256)]


@pytest.mark.attack
@pytest.mark.parametrize(
    ("trace", "says"),
    [
        (replace(TRACE, requests_file="../../etc/passwd"), "no trace/../../etc/passwd"),
        (replace(TRACE, loads=(replace(LOADS[0], path="../../../etc/x"),)), "a name that none has"),
        (replace(TRACE, loads=(replace(LOADS[0], module="/etc/x"),)), "a name that none has"),
    ],
)
def test_a_strangers_trace_of_a_system_leads_nowhere(refitted: Refitted, trace: SystemTrace, says: str) -> None:
    traced(refitted.folder, records.load(Plan, refitted.folder / PLAN), trace)
    with pytest.raises(UserInputError, match=says), second_fit.prepare(refitted.request()):
        pass


@pytest.mark.attack
@pytest.mark.parametrize("name", ["disk.raw", "trace/log", SYSTEM_TRACED, PLAN])
def test_what_is_fitted_again_is_what_the_record_says(refitted: Refitted, name: str) -> None:
    path = refitted.folder / name
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(UserInputError, match="its content differs"), second_fit.prepare(refitted.request()):
        pass


def test_what_cannot_be_chosen_for_a_system_is_refused(tmp_path: Path, start: Start) -> None:
    folder, seen = write(tmp_path / "bundle"), tmp_path / "seen.json"
    for words in (("--kernel", "6.1"), ("--margin", "server"), ("--observed", str(seen))):
        code, _, err = start("refit", folder, "--dry-run", *words)
        said = " ".join(err.split())
        assert code == 2 and f"{words[0]} does not go with" in said and "the bundle of a system" in said, said
    code, _, err = start("refit", folder, "--dry-run")
    assert code == 2 and "no trace/system-trace.json: vmtailor trace writes it" in " ".join(err.split())


# ---- work folders


@dataclass
class Begun:
    """A work folder that holds the trace of a system."""

    path: Path
    asked: FitOptions
    subject: SystemSubject
    built: list[Plan]


@pytest.fixture
def begun(refitted: Refitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begun:
    given = refitted.subject
    store, disk = given.store, tmp_path / "x.raw"

    def filled(folder: Path) -> None:
        (folder / "modules").mkdir()
        for name in ("vmlinuz", "config", "System.map", "vmlinux"):
            (folder / name).write_text(name)

    places: dict[str, Any] = {
        name: str(store.get("kernel-image", "0" * 40, filled) / tail) for name, tail in TAILS.items()
    }
    subject = replace(
        given,
        kernel=replace(given.kernel, version=VERSION, **places),
        source=SourceTree(given.source.path, "5a" * 32),
        sha256=hashlib.sha256(disk.read_bytes()).hexdigest(),
        options=replace(given.options, cpu_model="max"),
        exercise=in_guest(EXERCISE),
    )
    built: list[Plan] = []

    def build(made: Plan, *_: object, **__: object) -> KernelFiles:
        built.append(made)
        return work_data.kernel_files(tmp_path / "built")

    @contextmanager
    def prepare(options: FitOptions) -> Iterator[SystemSubject]:
        yield subject

    def again(options: FitOptions, found: OpenedSystem, exercise: SystemExercise, source: SourceTree) -> SystemSubject:
        assert source == subject.source
        return replace(subject, options=options, exercise=exercise, found=replace(found, disk=given.found.disk))

    monkeypatch.setattr(subject_kind, "prepare", prepare)
    monkeypatch.setattr(system_bundle, "of_opened", again)
    monkeypatch.setattr(build_stage, "build_kernel", build)
    monkeypatch.setattr(kept_source, "by_digest", lambda *_: subject.source)
    monkeypatch.setattr(kernel_source, "require_version", lambda *_: None)
    monkeypatch.setattr(SourceTree, "version", VERSION)
    monkeypatch.setattr(kernel_plan, "read_tree", lambda *_, **__: given.tree)
    work = tmp_path / "work"
    with work_stages.trace(FitOptions("disk:x.raw", store=store), work):
        pass
    return Begun(work, FitOptions("", Path(), store=store), subject, built)


TAILS = {
    "vmlinuz": "vmlinuz",
    "config": "config",
    "modules_dir": "modules",
    "system_map": "System.map",
    "debug_vmlinux": "vmlinux",
    "debug_modules_dir": "",
}
TRACED_FILES = {
    *("work.json", "system.json", "system-exercise.json", "system-run.json", "disk.raw"),
    *("trace/system-trace.json", "trace/requests.strace"),
}


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_work_folder_of_a_system_goes_through_the_stages(
    begun: Begun, start: Start, monkeypatch: pytest.MonkeyPatch, driven: list[SystemTarget]
) -> None:
    assert names(begun.path) == TRACED_FILES and is_work_folder(begun.path)
    wanted = begun.subject.trace().planned()
    assert work_stages.plan(begun.path, begun.asked) == wanted
    files, differing = work_stages.build(begun.path, begun.asked)
    assert [made.fragment for made in begun.built] == [wanted.fragment] and differing == ()
    assert files.image == str(begun.path / "vmlinux")
    found = reverify.verify_prepared(reverify.prepare(VerifyRequest(begun.path, Clock.INSTRUCTIONS), begun.asked.store))
    assert records.load(Verification, begun.path / "verification.json") == found
    records.save(EXERCISE, begun.path / "system-exercise.json")
    stranger = reverify.prepare(VerifyRequest(begun.path, Clock.INSTRUCTIONS), begun.asked.store)
    assert stranger.subject.runs == () and len(stranger.subject.skipped) == 1
    (target,) = driven
    machine = target.machine
    assert machine.kernel and Path(machine.kernel).read_text() == "vmlinux"
    assert machine.disks[0].path == str(begun.path / "disk.raw") and machine.disks[0].mode is DiskMode.OVERLAID
    assert target.root.device == "/dev/vda2" and "root=/dev/vda2" in machine.words
    assert machine.memory_bytes == 512 << 20 and machine.cpu_model == "max" and machine.clock is Clock.INSTRUCTIONS
    code, said, _ = start("trace", begun.path, "--json")
    assert code == 0 and {row["call"] for row in json.loads(said)["rows"]} == {"socket", "execve"}
    sides = SimpleNamespace(baseline=fit_run().baseline, tailored=fit_run().tailored)
    monkeypatch.setattr(fit_sides, "both_sides", lambda found, built: sides)
    both = work_stages.measured(begun.path, begun.asked)
    assert records.load(BothSides, begun.path / "measured.json") == both and not both.baseline_of
    with work_stages.trace(FitOptions("disk:x.raw", store=begun.asked.store), begun.path):
        assert names(begun.path) == TRACED_FILES


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> list[SystemTarget]:
    seen: list[SystemTarget] = []

    def verify(target: SystemTarget, before: SystemRun, scratch: Path) -> Verification:
        assert before == RIGHT
        seen.append(target)
        return Verification(())

    monkeypatch.setattr(system_verify, "verify", verify)
    return seen


@pytest.mark.attack
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"disk": "../../etc/passwd"}, "neither an image nor a disk"),
        ({"disk": "work.json"}, "neither an image nor a disk"),
        ({"disk_sha256": "x"}, "neither an image nor a disk"),
        ({"disk_sha256": "00" * 32}, "is not the file that was traced"),
        ({"disk": ""}, "neither an image nor a disk"),
    ],
)
def test_a_strangers_work_folder_names_no_other_disk(begun: Begun, change: dict[str, str], says: str) -> None:
    work = records.load(Work, begun.path / "work.json")
    records.save(replace(work, **change), begun.path / "work.json")  # type: ignore[arg-type]
    with pytest.raises(UserInputError, match=says):
        work_stages.plan(begun.path, begun.asked)


@pytest.mark.attack
def test_the_trace_of_a_strangers_work_folder_names_no_other_log(begun: Begun) -> None:
    where = begun.path / "trace" / "system-trace.json"
    records.save(replace(records.load(SystemTrace, where), requests_file="../../etc/passwd"), where)
    with pytest.raises(UserInputError, match="its files have other names") as error:
        work_stages.plan(begun.path, begun.asked)
    assert str(where) in error.value.message


@pytest.mark.attack
def test_a_disk_that_changed_since_it_was_traced_is_not_used(begun: Begun) -> None:
    (begun.path / "disk.raw").write_bytes(b"another")
    with pytest.raises(UserInputError, match="is not the file that was traced") as error:
        work_stages.plan(begun.path, begun.asked)
    assert "vmtailor trace" in (error.value.hint or "")
    (begun.path / "disk.raw").unlink()
    with pytest.raises(UserInputError, match=r"has no disk\.raw: vmtailor trace writes it"):
        work_stages.plan(begun.path, begun.asked)
