# SPDX-License-Identifier: Apache-2.0
"""A system's bundle verified again: what is started, which programs run on the host, and what no fit writes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.bundle_data import bundle, write_bundle
from tests.fakes.verbs import verify_verb
from tests.unit.systems.test_system_fitting import SUBJECT

from vmtailor.analysis.guests import machine_variants
from vmtailor.base.errors import AnswerNo, UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.host import bundle_values
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.system_exercise import Saying, SystemExercise, SystemReady, SystemReadyKind
from vmtailor.model.bundle import SYSTEM, SYSTEM_EXERCISE, SYSTEM_RUN
from vmtailor.model.exercise import Step, StepKind
from vmtailor.model.guest import GuestReport
from vmtailor.model.machine import Accelerator, Clock, DiskMode
from vmtailor.model.trial import Verification
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.pipeline import reverify
from vmtailor.pipeline.reverify import VerifyRequest
from vmtailor.pipeline.systems import subjects
from vmtailor.stages import system_verify
from vmtailor.stages.system_verify import SystemTarget

pytestmark = [pytest.mark.attack, pytest.mark.usefixtures("own_cache")]

READY = SystemReady(SystemReadyKind.UNIT, unit="multi-user.target")
EXERCISE = SystemExercise(
    "exercise.toml", READY,
    (Step(StepKind.COMMAND, argv=("true",)), Step(StepKind.HOST_COMMAND, argv=("touch", "\x1b[31mowned"))), (80,),
)  # fmt: skip
BEFORE = SystemRun(Boot(Outcome.READY, (), 1.0, "qemu"), GuestReport())


def write(folder: Path, exercise: SystemExercise = EXERCISE, subject: Any = SUBJECT, before: bool = True) -> Path:
    write_bundle(folder)
    (folder / "disk.raw").write_bytes(b"disk" * 256)
    records.save(subject, folder / SYSTEM)
    records.save(exercise, folder / SYSTEM_EXERCISE)
    if before:
        records.save(BEFORE, folder / SYSTEM_RUN)
    seal(folder, bundle(root="disk.raw", image=None, words=("root=/dev/vda", "rw")))
    return folder


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> list[SystemTarget]:
    """Nothing is booted: what would have been."""
    seen: list[SystemTarget] = []

    def record(target: SystemTarget, before: SystemRun, _: Path) -> Verification:
        assert before == BEFORE
        seen.append(target)
        return Verification(() if target.exercise.host_steps else ("unit web.service failed",))

    def again(target: SystemTarget, before: SystemRun, first: Verification, _: Path) -> Verification:
        assert before == BEFORE and target == seen[-1]
        return first

    monkeypatch.setattr(system_verify, "verify", record)
    monkeypatch.setattr(system_verify, "verify_again", again)
    return seen


def test_what_other_timing_does_not_repeat_is_told_and_no_failure(
    tmp_path: Path, driven: list[SystemTarget], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bundle whose fit passed so passes again, and on the instruction clock it has to be asked as the fit asked."""

    def again(target: SystemTarget, before: SystemRun, first: Verification, _: Path) -> Verification:
        return Verification((), races=first.failures)

    monkeypatch.setattr(system_verify, "verify_again", again)
    verify_verb(write(tmp_path / "bundle"))
    said = capsys.readouterr()
    assert "a race decides it: unit web.service failed" in said.err and "the system works" in said.out


def test_programs_of_the_host_are_run_when_they_are_trusted(
    tmp_path: Path, driven: list[SystemTarget], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "bundle")
    with pytest.raises(AnswerNo, match="without 1 program that the bundle would run on this host") as error:
        verify_verb(folder)
    assert "\x1b" not in str(error.value)
    assert not driven[0].exercise.host_steps and driven[0].machine.clock is Clock.INSTRUCTIONS
    capsys.readouterr()
    verify_verb(folder, trust_host_commands=True, accelerator=Accelerator.TCG)
    said = capsys.readouterr()
    assert driven[1].exercise == EXERCISE and driven[1].machine.clock is Clock.WALL
    assert "on the wall clock" in said.err and "\x1b" not in said.err
    assert "the system works" in said.out
    for target in driven:
        machine = target.machine
        assert machine.disks[0].mode is DiskMode.OVERLAID and machine.disks[0].path == str(folder / "disk.raw")
        assert machine.ports == machine_variants.on_loopback((80,))
        assert target.root.device == "/dev/vda2" and target.root.writable
        assert (machine.accelerator, machine.cpu_model, machine.architecture) == (Accelerator.TCG, "max", "x86_64")
        assert target.natives == guest_programs.of("x86_64") and target.built_in == frozenset()


def test_another_exercise_has_nothing_to_be_compared_with(tmp_path: Path, driven: list[SystemTarget]) -> None:
    folder, file = write(tmp_path / "bundle"), tmp_path / "mine.toml"
    file.write_text(
        '[ready]\nkind = "unit"\nunit = "multi-user.target"\n[[load]]\nkind = "command"\nargv = ["false"]\n'
    )
    with pytest.raises(UserInputError, match="asks the system other things"):
        verify_verb(folder, exercise=file)
    assert not driven


def test_a_bundle_of_before_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    folder = write(tmp_path / "bundle", before=False)
    with pytest.raises(UserInputError, match="does not say what its system did") as error:
        reverify.prepare(VerifyRequest(folder, Clock.INSTRUCTIONS))
    assert "fit the system again" in (error.value.hint or "")
    write(folder)
    (folder / SYSTEM_RUN).write_text("{}")
    with pytest.raises(UserInputError, match="its content differs"):
        reverify.prepare(VerifyRequest(folder, Clock.INSTRUCTIONS))


def test_a_run_that_took_for_ever_gives_no_time(tmp_path: Path, driven: list[SystemTarget]) -> None:
    folder = write(tmp_path / "bundle")
    records.save(replace(BEFORE, boot=replace(BEFORE.boot, cpu_s=1e300)), folder / SYSTEM_RUN)
    seal(folder, bundle(root="disk.raw", image=None, words=("root=/dev/vda", "rw")))
    with pytest.raises(UserInputError, match="no boot takes"):
        verify_verb(folder)
    assert not driven


@pytest.mark.parametrize(
    "subject",
    [
        replace(SUBJECT, init=replace(SUBJECT.init, path="/sbin/\0init")),
        replace(SUBJECT, init=replace(SUBJECT.init, path="sbin/init")),
        replace(SUBJECT, init=replace(SUBJECT.init, path="/" + "x" * 5000)),
        replace(SUBJECT, disk=None),
        replace(SUBJECT, architecture="arm64"),
    ],
)
def test_a_subject_that_no_fit_writes(tmp_path: Path, subject: Any, driven: list[SystemTarget]) -> None:
    with pytest.raises(UserInputError):
        verify_verb(write(tmp_path / "bundle", subject=subject))
    assert not driven


@pytest.mark.parametrize(
    "exercise",
    [
        replace(EXERCISE, ready=SystemReady(SystemReadyKind.LOG, pattern="(a+)+$")),
        replace(EXERCISE, ready=replace(READY, unit="--help")),
        replace(EXERCISE, ready=replace(READY, timeout_s=float("inf"))),
        replace(EXERCISE, ready=SystemReady(SystemReadyKind.TCP)),
        replace(EXERCISE, step_timeout_s=0),
        replace(EXERCISE, stop_timeout_s=float("nan")),
        replace(EXERCISE, stop=()),
        replace(EXERCISE, stop=("a\0b",)),
        replace(EXERCISE, ports=(0,)),
        replace(EXERCISE, load=(Step(StepKind.COMMAND),)),
        replace(EXERCISE, says=(Saying("a\nb", ("x",)),)),
        replace(EXERCISE, says=(Saying("engine", ()),)),
        replace(EXERCISE, says=(Saying("engine", ("a\0b",)),)),
        replace(EXERCISE, says=(Saying("engine", ("x",)),) * 9),
    ],
)
def test_an_exercise_that_no_file_could_say(tmp_path: Path, exercise: SystemExercise) -> None:
    with pytest.raises(UserInputError):
        bundle_values.require_system_exercise(exercise, tmp_path)


def test_an_exercise_that_a_file_says(tmp_path: Path) -> None:
    bundle_values.require_system_exercise(EXERCISE, tmp_path)
    asks = replace(EXERCISE, says=(Saying("engine", ("docker", "info"), errors=True),))
    bundle_values.require_system_exercise(asks, tmp_path)


def test_a_disk_that_holds_no_system_and_a_container_that_has_none(tmp_path: Path) -> None:
    disk = tmp_path / "empty.raw"
    disk.write_bytes(bytes(1 << 20))
    with pytest.raises(UserInputError, match=r"empty\.raw"):
        verify_verb(write(tmp_path / "bundle"), disk=disk)
    with pytest.raises(UserInputError, match=r"--disk does not go with .*, the bundle of a container"):
        verify_verb(write_bundle(tmp_path / "container"), disk=disk)


def test_the_disk_that_was_given_is_the_one_that_is_started(
    tmp_path: Path, driven: list[SystemTarget], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def opened(reference: str, *_: object) -> Any:
        assert reference == f"disk:{disk}"
        yield SimpleNamespace(subject=replace(SUBJECT, disk=other))

    layout, disk = SUBJECT.disk, tmp_path / "newer.raw"
    assert layout is not None
    other = replace(layout, root=3)
    disk.write_bytes(bytes(4096))
    monkeypatch.setattr(subjects, "opened", opened)
    with pytest.raises(AnswerNo, match=r"on the disk .*newer\.raw"):
        verify_verb(write(tmp_path / "bundle"), disk=disk)
    assert driven[0].machine.disks[0].path == str(disk) and driven[0].root.device == "/dev/vda3"
