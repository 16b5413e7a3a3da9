# SPDX-License-Identifier: Apache-2.0
"""Units masked while the exercise passes: which are tried, what is measured, what is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.started import Start
from tests.unit.systems.test_system_fitting import RIGHT, Runs, failing, given, stages
from tests.unit.systems.test_unit_choice import TEXT

from vmtailor.analysis.explain import system_answers as explaining
from vmtailor.analysis.explain.answers import Standing
from vmtailor.analysis.guests.machine_variants import USUAL
from vmtailor.model.boots.boot import Milestone
from vmtailor.model.change import ChangeKind, Figure
from vmtailor.model.fit_run import FitRun
from vmtailor.model.guest import GuestReport
from vmtailor.model.systems.units import UnitChoice, UnitFate, UnitsMode, UnitStanding
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.pipeline import kernel_repair
from vmtailor.pipeline.subject import AskUnits, Findings
from vmtailor.pipeline.systems import unit_masks
from vmtailor.pipeline.systems.driven_system import SystemSeen
from vmtailor.pipeline.systems.system_subject import SystemSubject
from vmtailor.stages.system_verify import SystemTarget

__all__ = ["given", "stages"]

#: Without it, the exercise fails.
NEEDED = "helper.service"


def run_of(target: SystemTarget) -> SystemRun:
    """A system that takes a second less for each unit that is masked, and fails without one of them."""
    masks = [word.partition("=")[2] for word in target.machine.words if word.startswith("systemd.mask=")]
    ready = Milestone("ready", None, int((20 - len(masks)) * 1e9), 1.0, "mark")
    found = failing("step 1: no") if NEEDED in masks else RIGHT
    report = GuestReport(files=(("units", TEXT),))
    return replace(found, boot=replace(found.boot, milestones=(ready,)), report=report)


def chosen(
    given: SystemSubject, mode: UnitsMode, ask: AskUnits | None = None, mask: tuple[str, ...] = ()
) -> tuple[Findings[SystemSeen], tuple[str, ...], UnitChoice]:
    """What was found, the masks of the machine, and the choice."""
    given = replace(given, options=replace(given.options, units=mode, mask=mask))
    found = given.trace()
    fitted, choice = unit_masks.chosen(given, found, kernel_repair.fit_kernel(found), ask)
    assert fitted.verification.passed
    return found, tuple(w for w in fitted.machine.words if w.startswith("systemd.mask=")), choice


Stages = Callable[[Runs], list[SystemTarget]]


def test_keep_touches_nothing_and_names_what_could_go(given: SystemSubject, stages: Stages) -> None:
    seen = stages(run_of)
    found, masks, choice = chosen(given, UnitsMode.KEEP)
    assert not masks and len(seen) == 2 and len(found.trials) == 1
    (told,) = unit_masks.warnings(choice)
    assert told.code == "units" and "late.service, engine.service" in told.text and "nothing was done" in told.text


def test_trim_masks_what_the_exercise_does_without(given: SystemSubject, stages: Stages) -> None:
    stages(run_of)
    found, masks, choice = chosen(given, UnitsMode.TRIM)
    assert choice.of(UnitFate.NEEDED) == (NEEDED,) and choice.of(UnitFate.CANDIDATE) == ()
    assert set(masks) == {f"systemd.mask={name}" for name in choice.of(UnitFate.MASKED)} and len(masks) >= 4
    assert choice.of(UnitFate.KEPT) == ("chrony.service",)
    # Each trial is on the one record, with what it was said to gain, and what it did.
    tried = [trial for trial in found.trials if trial.changes and trial.changes[0].settings[0].kind is ChangeKind.UNIT]
    assert len(tried) == len(found.trials) - 1 and {trial.passed for trial in tried} == {True, False}
    for trial in tried:
        (change,) = trial.changes
        expected, measured = change.expects(Figure.READY), change.measures(Figure.READY)
        assert expected is not None and expected.value <= 0 and measured is not None
        assert not trial.passed or measured.value == -len(change.settings)
    assert any("masked on the command line" in one.text for one in unit_masks.warnings(choice))


def test_units_that_are_named_are_masked_though_a_list_keeps_them(given: SystemSubject, stages: Stages) -> None:
    stages(run_of)
    found, masks, choice = chosen(given, UnitsMode.KEEP, mask=("chrony*", "late.service", "base.target", "nothing*"))
    assert set(masks) == {"systemd.mask=chrony.service", "systemd.mask=late.service"}
    assert choice.of(UnitFate.CANDIDATE) and choice.unmatched == ("base.target", "nothing*")
    (row,) = [one for one in choice.units if one.name == "chrony.service"]
    assert row.reason == "whoever fitted the system does without it, and the exercise passes without it"
    told = [one.text for one in unit_masks.warnings(choice)]
    assert any("--mask base.target, nothing*: no unit" in text for text in told)
    assert len(found.trials) == 2


def test_what_the_exercise_wants_is_not_masked_though_it_is_named(given: SystemSubject, stages: Stages) -> None:
    stages(run_of)
    exercise = replace(given.exercise, ready=replace(given.exercise.ready, unit="late.service"))
    _, masks, choice = chosen(replace(given, exercise=exercise), UnitsMode.TRIM, mask=("l*", NEEDED))
    assert "systemd.mask=late.service" not in masks and choice.of(UnitFate.NEEDED) == (NEEDED,)
    told = [one.text for one in unit_masks.warnings(choice)]
    assert any(text.startswith("--mask late.service: it stays, since ") for text in told)


def test_a_unit_that_a_named_change_masks_is_told_as_masked(given: SystemSubject, stages: Stages) -> None:
    stages(run_of)
    _, _, choice = chosen(given, UnitsMode.KEEP)
    (late,) = [one for one in choice.units if one.name == "late.service"]
    change = replace(unit_masks.change_of([late]), id="lateness")
    told = unit_masks.with_tuned(choice, (change,))
    assert told.of(UnitFate.MASKED) == ("late.service",) and len(told.units) == len(choice.units)
    assert "late.service" not in told.of(UnitFate.CANDIDATE)
    (row,) = [one for one in told.units if one.name == "late.service"]
    assert row.reason == "--try lateness, and the exercise passes without it"
    assert unit_masks.with_tuned(choice, ()) == choice


def test_a_second_time_nothing_boots(given: SystemSubject, stages: Stages) -> None:
    stages(run_of)
    _, masks, _ = chosen(given, UnitsMode.TRIM)
    seen = stages(run_of)
    assert chosen(given, UnitsMode.TRIM)[1] == masks
    assert all(f"systemd.mask={NEEDED}" in target.machine.words for target in seen)  # a failure is asked again


@pytest.mark.parametrize(("answer", "any_masked"), [(True, True), (False, False)])
def test_ask_does_as_it_is_told(given: SystemSubject, stages: Stages, answer: bool, any_masked: bool) -> None:
    stages(run_of)
    listed: list[str] = []

    def ask(units: object) -> bool:
        listed.extend(one.name for one in units)  # type: ignore[attr-defined]
        return answer

    _, masks, _ = chosen(given, UnitsMode.ASK, ask)
    assert bool(masks) is any_masked and "late.service" in listed and "chrony.service" not in listed


def test_what_has_no_room_on_the_command_line_stays_and_is_told(
    given: SystemSubject, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages(run_of)
    words = len(" ".join(given.trace().subject.baseline.words)) + 400
    monkeypatch.setattr(unit_masks, "COMMAND_LINE_BYTES", words)
    names = [f"unit-{number:03}.service" for number in range(40)]
    fits = unit_masks.with_room(("quiet", "ro"), names)
    used = len(" ".join(("quiet", "ro", *(f"systemd.mask={name}" for name in fits))))
    assert 0 < len(fits) < 40 and words - 40 < used <= words and fits == tuple(names[: len(fits)])
    monkeypatch.setattr(unit_masks, "with_room", lambda append, wanted: tuple(wanted)[:1])
    _, masks, choice = chosen(given, UnitsMode.TRIM)
    assert masks == ("systemd.mask=late.service",) and len(choice.of(UnitFate.NO_ROOM)) == 5
    assert any("no room" in one.text for one in unit_masks.warnings(choice))


def test_a_system_without_systemd_has_no_candidates(given: SystemSubject, stages: Stages) -> None:
    stages(lambda target: RIGHT)
    _, masks, choice = chosen(given, UnitsMode.TRIM)
    assert not masks and choice.units == () and unit_masks.warnings(choice) == ()


def test_what_a_system_masks_itself_stays_masked() -> None:
    own = replace(USUAL, words=("quiet", "systemd.mask=apt-daily.timer"))
    assert unit_masks.masked(own, ["a.service", "apt-daily.timer"]).words == (*own.words, "systemd.mask=a.service")


def test_a_change_is_named_after_its_units() -> None:
    rows = [UnitStanding(name, UnitFate.CANDIDATE, "nobody", 0.5) for name in ("a.service", "b.socket")]
    change = unit_masks.change_of(rows)
    assert change.id == "a.service, b.socket" and change.expected[0].value == -1.0 and change.expected[0].high == 0.0
    assert change.takes_away


def test_explain_answers_for_a_unit(given: SystemSubject, stages: Stages) -> None:
    stages(run_of)
    found, _, choice = chosen(given, UnitsMode.TRIM)
    run = FitRun.__new__(FitRun)
    object.__setattr__(run, "units", choice)
    object.__setattr__(run, "trials", tuple(found.trials))
    late, helper = explaining.unit_answer(run, "late"), explaining.unit_answer(run, NEEDED)
    assert late is not None and late.standing is Standing.OFF and late.brings_in
    assert dict(late.facts)["its start took, on the system's own kernel"] == "1.500 s"
    assert helper is not None and helper.standing is Standing.IN
    assert any(said.startswith("failed: step 1: no") for _, said in helper.facts)
    assert any(", ready -" in said for _, said in late.facts)
    assert explaining.unit_answer(run, "none.service") is None
    object.__setattr__(run, "units", None)
    assert explaining.unit_answer(run, "late") is None


def test_units_are_of_systems_and_asking_needs_somebody(start: Start, tmp_path: Path) -> None:
    tree = tmp_path / "no-system"
    (tree / "bin").mkdir(parents=True)
    for asked, words in (
        (("--units", "trim"), "--units trim does not go with the image"),
        (("--units", "ask"), "needs a terminal"),
        (("--mask", "ssh.service"), "--mask does not go with the image"),
        (("--mask", "ssh.service,a b"), "no unit is called 'a b'"),
    ):
        code, _, err = start("fit", f"rootfs:{tree}", *asked)
        assert code == 2 and words in " ".join(err.split())
