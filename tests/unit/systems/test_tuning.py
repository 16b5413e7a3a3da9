# SPDX-License-Identifier: Apache-2.0
"""Changes beside the kernel, tried on the fitted machine: each alone until ready, together through the exercise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.fit_run_data import fit_run
from tests.fakes.started import Start
from tests.unit.systems.test_system_fitting import RIGHT, Runs, failing, given, stages

from vmtailor.analysis.changes import choice
from vmtailor.analysis.explain import system_answers as explaining
from vmtailor.analysis.explain.answers import Standing
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.terminal import TerminalConsole
from vmtailor.model.boots.boot import ContainerRun, Milestone, Outcome, Phase, PhaseCounts
from vmtailor.model.boots.series import JudgedBy, Under
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.boots.timeline import ConsoleCost, KernelInfo, Timeline
from vmtailor.model.change import ChangeKind, Figure, Verdict
from vmtailor.model.exercise import StepKind
from vmtailor.model.fit_run import FitRun
from vmtailor.model.machine import Machine
from vmtailor.model.systems.kept_changes import Tuning
from vmtailor.model.systems.system import Init, InitKind
from vmtailor.model.trial import Purpose
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.pipeline import boot_trials, fit_sides, judged_changes, kernel_repair
from vmtailor.pipeline.boot_trials import Shown
from vmtailor.pipeline.subject import Findings
from vmtailor.pipeline.systems import disk_files, named_changes
from vmtailor.pipeline.systems.driven_system import SystemSeen
from vmtailor.pipeline.systems.system_subject import SystemSubject
from vmtailor.stages import system_verify
from vmtailor.stages.report import report_tables
from vmtailor.stages.report.document import fit_document
from vmtailor.stages.report.report_page import page
from vmtailor.stages.system_verify import SystemTarget

__all__ = ["given", "stages"]

Stages = Callable[[Runs], list[SystemTarget]]
#: Seconds that each word saves.
SAVES = {"quiet": 2.0, "audit=0": 0.0, "systemd.mask=rsyslog.service": 1.0, "systemd.mask=cron.service": -3.0}
#: With these two together the exercise fails.
FATAL = {"quiet", "systemd.mask=rsyslog.service"}


@pytest.fixture(autouse=True)
def no_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_trials, "shown", lambda *_, **__: None)


def system(target: SystemTarget) -> SystemRun:
    took = 20.0 - sum(saved for word, saved in SAVES.items() if word in target.machine.words)
    ready = Milestone("ready", None, int(took * 1e9), took, "mark")
    return replace(RIGHT, boot=replace(RIGHT.boot, milestones=(ready,)))


def chosen(given: SystemSubject, *tries: str) -> tuple[Findings[SystemSeen], tuple[str, ...], Tuning]:
    """What was found, the words that the machine got, and what became of each change."""
    given = replace(given, options=replace(given.options, tries=tries))
    found = given.trace()
    fitted = kernel_repair.fit_kernel(found)
    best, tuned = named_changes.chosen(given, found, fitted)
    assert best.verification.passed
    return found, tuple(word for word in best.machine.words if word not in fitted.machine.words), tuned


def test_what_is_faster_stays_and_what_is_not_is_told(given: SystemSubject, stages: Stages) -> None:
    seen = stages(system)
    found, words, tuned = chosen(given, "console-quiet", "audit", "cron")
    assert words == ("quiet", "loglevel=1", "systemd.show_status=0")
    assert {one.id: one.verdict for one in tuned.others} == {"audit": Verdict.SAME, "cron": Verdict.WORSE}
    alone = [trial for trial in found.trials if trial.purpose is Purpose.ALONE]
    (last,) = [trial for trial in found.trials if trial.purpose is Purpose.TOGETHER]
    assert len(alone) == 3 and last.passed and last.changes[0].id == "console-quiet"
    expected, measured = last.changes[0].expects(Figure.READY), last.changes[0].measures(Figure.READY)
    assert expected is not None and measured is not None and expected.value == measured.value == -2.0
    # The fit; as it is, and with words that mean nothing; each alone; the exercise without and with.
    assert len(seen) == 2 + 3 + 3 + 2
    kept, vain = named_changes.warnings(tuned)
    assert "console-quiet (quiet, loglevel=1" in kept.text and "audit (no difference); cron (slower)" in vain.text


def loaded(target: SystemTarget) -> SystemRun:
    """A word that shortens the boot and makes a request of the load dearer; one that does the opposite."""
    words = target.machine.words
    kernel = 90_000 + 5_000 * ("quiet" in words) - 4_000 * ("audit=0" in words)
    phases = (PhaseCounts(Phase.KERNEL, 7, 0), PhaseCounts(Phase.LOAD, 2 * kernel, 2 * 3_000))
    found = system(target)
    return replace(found, boot=replace(found.boot, phases=phases, container=ContainerRun(requests=2)))


@pytest.mark.parametrize(
    ("under", "judge", "kept"),
    [
        (Under.LOAD, None, "audit"),
        (Under.LOAD, JudgedBy.REQUEST, "audit"),
        (Under.BOTH, None, "audit"),
        (Under.BOOT, None, "console-quiet"),
    ],
)
def test_a_systems_changes_are_judged_by_its_load(
    given: SystemSubject,
    stages: Stages,
    monkeypatch: pytest.MonkeyPatch,
    under: Under,
    judge: JudgedBy | None,
    kept: str,
) -> None:
    stages(loaded)
    counted: list[object] = []
    run = system_verify.run

    def seen(target: SystemTarget, scratch: Path, *more: Any, counts: Any = None, **named: Any) -> SystemRun:
        counted.append(counts and counts.table)
        return run(target, scratch, *more, counts=counts, **named)

    monkeypatch.setattr(system_verify, "run", seen)
    monkeypatch.setattr(fit_sides, "table_of", lambda fitted: "table")
    given = replace(given, options=replace(given.options, under=under, judged_by=judge))
    _, _, tuned = chosen(given, "console-quiet", "audit")
    assert [one.id for one in tuned.kept] == [kept]
    # As it is, twice with meaningless words, and each change: counted through the exercise where the load decides.
    assert counted.count("table") == (0 if under is Under.BOOT else 5)
    if under is not Under.BOOT:
        (lower,) = (one for one in tuned.kept[0].measured if one.figure is Figure.REQUEST_KERNEL)
        assert lower.value == -4_000


def test_figures_that_a_systems_fit_does_not_measure_are_refused(given: SystemSubject) -> None:
    def judged(exercise: SystemExercise = given.exercise, **asked: Any) -> None:
        judged_changes.of_system(replace(given.options, **asked), exercise)

    with pytest.raises(UserInputError, match="--judge p99 is not measured of a system"):
        judged(under=Under.LOAD, judged_by=JudgedBy.P99)
    with pytest.raises(UserInputError, match="asks for something"):
        judged(replace(given.exercise, load=()), under=Under.LOAD)
    outside = replace(given.exercise.load[0], kind=StepKind.HOST_COMMAND)
    with pytest.raises(UserInputError, match="asked from outside"):
        judged(replace(given.exercise, load=(outside,)), under=Under.BOTH)
    with pytest.raises(UserInputError, match="--under says how changes are judged, and none is tried"):
        judged_changes.require_tried(replace(given.options, under=Under.LOAD))
    judged_changes.require_tried(replace(given.options, under=Under.LOAD, files=(("/etc/x", None),)))


def test_what_fails_together_is_halved(given: SystemSubject, stages: Stages) -> None:
    stages(lambda target: failing("step 1: no") if set(target.machine.words) >= FATAL else system(target))
    found, words, tuned = chosen(given, "console-quiet", "rsyslog")
    assert words == ("quiet", "loglevel=1", "systemd.show_status=0")
    assert [one.id for one in tuned.others] == ["rsyslog"]
    assert "faster alone, and the trial with it failed" in named_changes.warnings(tuned)[1].text
    assert [trial.passed for trial in found.trials if trial.purpose is Purpose.TOGETHER] == [False, True, False]


def test_a_machine_that_never_gets_ready_is_a_result(given: SystemSubject, stages: Stages) -> None:
    def run(target: SystemTarget) -> SystemRun:
        found = system(target)
        if "audit=0" not in target.machine.words:
            return found
        return replace(
            found, boot=replace(found.boot, outcome=Outcome.TIMEOUT, failures=("nothing came",), milestones=())
        )

    stages(run)
    _, words, tuned = chosen(given, "audit")
    assert not words and "nothing came" in tuned.others[0].problem and tuned.others[0].verdict is Verdict.WORSE


def test_a_second_time_nothing_boots(given: SystemSubject, stages: Stages) -> None:
    stages(system)
    _, words, _ = chosen(given, "console-quiet", "cron")
    seen = stages(system)
    assert chosen(given, "console-quiet", "cron")[1] == words and not seen


def test_what_is_expected_is_read_from_a_boot_that_is_asked_once(
    given: SystemSubject, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages(system)
    asked: list[Machine] = []

    def shown(machine: Machine, *_: object, **__: object) -> Shown:
        asked.append(machine)
        console = ConsoleCost(100, 5000, 0.3, 1_500_000, "log")
        return Shown(Timeline(KernelInfo(), console=console), 1.0)

    monkeypatch.setattr(boot_trials, "shown", shown)
    for _ in range(2):
        found, _, tuned = chosen(given, "console-quiet", "audit")
        (kept,), (other,) = tuned.kept, tuned.others
        expected = kept.expects(Figure.READY)
        assert expected is not None and expected.value == -1.5 and other.expected == ()
    assert len(asked) == 1 and len([one for one in found.trials if one.purpose is Purpose.ALONE]) == 2


def test_units_of_systemd_are_not_for_another_init(given: SystemSubject, stages: Stages) -> None:
    stages(system)
    subject = replace(given.system, init=Init("/sbin/init", "/sbin/openrc-init", InitKind.OPENRC))
    found: Any = given.found
    found.subject = subject
    _, words, tuned = chosen(given, "rsyslog", "console-quiet")
    assert words[0] == "quiet" and "a unit of systemd" in tuned.others[0].problem


def test_what_is_no_word_and_no_unit_is_refused_at_the_door() -> None:
    assert [one.change.id for one in choice.for_system(("audit+cron", "rsyslog"))] == ["audit+cron", "rsyslog"]
    (setting,) = choice.for_system(("sysctl.vm.swappiness=10",))[0].change.settings
    assert (setting.kind, setting.name, setting.value) == (ChangeKind.COMMAND_LINE, "sysctl.vm.swappiness", "10")
    for wrong in ("sysctl.vm.swappiness", "sysctl.=1", "sysctl.x=1 init=/bin/sh", "systemd.unit=x"):
        with pytest.raises(UserInputError, match="no change"):
            choice.for_system((wrong,))
    for wanted, words in (
        ("initrd-small", "root file system"),
        ("memory", "machine"),
        ("all", "`all` cannot"),
    ):
        with pytest.raises(UserInputError, match=words):
            choice.for_system((wanted,))
    with pytest.raises(UserInputError, match="no change 'nothing'"):
        choice.for_system(("nothing",))


def test_files_are_tried_on_systems_only(start: Start, tmp_path: Path) -> None:
    tree = tmp_path / "no-system"
    (tree / "bin").mkdir(parents=True)
    code, _, err = start("fit", f"rootfs:{tree}", "--try-file", "/etc/x=")
    assert code == 2 and "--try-file does not go with the image rootfs:" in " ".join(err.split())


def test_a_file_of_the_disk_is_tried_as_a_word_is_and_known_by_its_path(
    given: SystemSubject, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, path = str(Path(given.baseline.disks[0].path).with_name("other.raw")), "/etc/engine.json"

    def written(_: object, machine: Machine, files: dict[str, str | None]) -> tuple[Machine, dict[str, str | None]]:
        assert files == {path: "{}"}
        return replace(machine, disks=(replace(machine.disks[0], path=other),)), {path: "old"}

    def run(target: SystemTarget) -> SystemRun:
        took = 20.0 - (target.machine.disks[0].path == other)
        return replace(
            RIGHT, boot=replace(RIGHT.boot, milestones=(Milestone("ready", None, int(took * 1e9), took, "mark"),))
        )

    monkeypatch.setattr(disk_files, "written", written)
    stages(run)
    given = replace(given, options=replace(given.options, files=((path, "{}"),)))
    found = given.trace()
    best, tuned = named_changes.chosen(given, found, kernel_repair.fit_kernel(found))
    assert best.machine.disks[0].path == other and tuned.files == {path: "{}"}
    assert (
        tuned.kept[0].settings[0].before == "old"
        and "/etc/engine.json, of 2 bytes" in named_changes.warnings(tuned)[0].text
    )
    told = explaining.word_answer(fit_run(trials=tuple(found.trials), tuned=tuned), f"file:{path}")
    assert told is not None and told.standing is Standing.IN and f"--try-file {path}" in told.brings_in[0]


def test_one_file_has_one_content() -> None:
    (gone,) = choice.for_system((), (("/etc/x", None),))
    assert gone.change.id == "file:/etc/x" and str(gone.change.settings[0]) == "without /etc/x"
    with pytest.raises(UserInputError, match="/etc/x is given twice"):
        choice.for_system(("audit",), (("/etc/x", "1"), ("/etc/x", None)))


def test_what_a_file_is_to_have_is_read_at_the_door(start: Start, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\0")
    for text, said in (
        ("/etc/x", "no file follows"),
        (f"/etc/x={tmp_path / 'none'}", "cannot be read"),
        (f"/etc/x={tmp_path / 'bytes'}", "not a text of at most 64 KiB"),
    ):
        code, _, err = start("fit", "disk:none.raw", "-x", "none.toml", "--try-file", text)
        assert code == 2 and said in " ".join(err.split())


def record(given: SystemSubject) -> FitRun:
    found, _, tuned = chosen(given, "console-quiet", "audit")
    return fit_run(trials=tuple(found.trials), tuned=tuned)


def test_report_and_document_have_a_row_for_each(given: SystemSubject, stages: Stages) -> None:
    stages(system)
    run = record(given)
    console = TerminalConsole(width=200, record=True)
    report_tables.show(run, console, verbose=True)
    shown = console.export_text()
    assert (
        "Beside the kernel" in shown and "−2.000" in shown and "no difference" in shown and "quiet, loglevel=1" in shown
    )
    text = page(run)
    assert 'id="beside"' in text and 'href="#beside"' in text and "no difference" in text
    assert 'id="beside"' not in page(fit_run())
    (kept, other), none = fit_document(run)["tuned"], fit_document(fit_run())["tuned"]
    assert kept["change"] == "console-quiet" and kept["kept"] and kept["measured_s"] == -2.0 and none is None
    assert kept["settings"] == ["quiet", "loglevel=1", "systemd.show_status=0"] and kept["expected_s"] is None
    assert not other["kept"] and other["outcome"] == "no difference"
    assert records.from_bytes(FitRun, records.to_bytes(run)).tuned == run.tuned


@pytest.mark.parametrize("asked", ["console-quiet", "quiet"])
def test_explain_answers_for_a_change_and_for_its_words(given: SystemSubject, stages: Stages, asked: str) -> None:
    stages(system)
    found = explaining.word_answer(record(given), asked)
    assert found is not None and found.standing is Standing.IN and found.what == "console-quiet"
    assert [said for _, said in found.facts] == ["ready -2.000 s"] * 2
    assert "--try console-quiet" in found.brings_in[0]


def test_explain_says_why_one_was_not_kept(given: SystemSubject, stages: Stages) -> None:
    stages(system)
    run = record(given)
    found = explaining.word_answer(run, "audit")
    assert found is not None and found.standing is Standing.OUT and "no difference" in found.summary
    assert explaining.word_answer(run, "lsm") is None and explaining.word_answer(fit_run(), "audit") is None
