# SPDX-License-Identifier: Apache-2.0
"""Explain the command-line words and the units of a fitted system, from the record of its fit."""

from __future__ import annotations

from vmtailor.analysis.changes import machine_words
from vmtailor.analysis.explain.answers import Explained, NameKind, Standing
from vmtailor.base.text import plural
from vmtailor.model.change import Cause, Change, ChangeKind, Figure, Reason
from vmtailor.model.fit_run import FitRun
from vmtailor.model.systems.kept_changes import words_of
from vmtailor.model.systems.units import UnitFate
from vmtailor.model.trial import Purpose, Trial

_BRINGS = "fit with {}; it stays where it is faster and the exercise passes with it"
_TAKES = "fit without {}, or run with another command line"
_TAKES_FILE = "fit without {}"


def word_answer(run: FitRun, what: str) -> Explained | None:
    """Explain a change by its id, or by one of its words; None where none of that name was tried."""
    if run.tuned is None:
        return None
    for change in (*run.tuned.kept, *run.tuned.others):
        if what == change.id or what in words_of(change):
            return _explained(run, change)
    return None


def machine_word_answer(run: FitRun, what: str, words: tuple[str, ...]) -> Explained | None:
    """Explain a word of the machine's kernel command line, or its name. A word that other machines are told and this
    one is not is out; None for any other."""
    told = machine_words.explained(run.plan, words)
    found = next((one for one in told if what in (one.id, one.setting.name)), None)
    if found is not None:
        summary = f"{found.id} is on the kernel command line"
        return Explained(found.id, NameKind.WORD, Standing.IN, summary, reasons=found.reasons)
    if not words or not machine_words.is_known(what):
        return None
    ways = (f"run with --append {what}",)
    return Explained(
        what,
        NameKind.WORD,
        Standing.OUT,
        f"{what} is not on the kernel command line: {' '.join(words)}",
        brings_in=ways,
    )


def _explained(run: FitRun, change: Change) -> Explained:
    assert run.tuned is not None
    kept, words = change in run.tuned.kept, ", ".join(words_of(change))
    summary = f"{change.does} ({words}): {run.tuned.outcome(change)}"
    is_file = any(one.is_file for one in change.settings)
    asked = f"--try-file {change.id.removeprefix('file:')}" if is_file else f"--try {change.id}"
    ways = ((_TAKES_FILE if is_file else _TAKES) if kept else _BRINGS).format(asked)
    return Explained(
        what=change.id,
        kind=NameKind.CHANGE,
        standing=Standing.IN if kept else Standing.OUT,
        summary=summary,
        reasons=change.reasons,
        brings_in=(ways,),
        facts=tuple(_tried(trial) for trial in run.trials if _is_about(trial, change)),
    )


def _is_about(trial: Trial, change: Change) -> bool:
    if trial.purpose is Purpose.TOGETHER:
        return any(set(change.settings) <= set(one.settings) for one in trial.changes)
    return trial.purpose is Purpose.ALONE and any(one.id == change.id for one in trial.changes)


def _tried(trial: Trial) -> tuple[str, str]:
    """Return one trial in a line: with what, and what came of it."""
    measured = trial.changes[0].measures(Figure.READY)
    ready = f"ready {measured.value:+.3f} s" if measured is not None else "ready not measured"
    outcome = ready if trial.passed else f"failed: {'; '.join(trial.failures[:2])}"
    return f"trial {trial.number}, {trial.purpose}", outcome


_SUMMARIES = {
    UnitFate.KEPT: "it starts as ever, and is masked only where --mask names it",
    UnitFate.WANTED: "it starts as ever: the exercise wants it",
    UnitFate.CANDIDATE: "it starts as ever, though nobody wanted it",
    UnitFate.MASKED: "it is masked on the command line",
    UnitFate.NEEDED: "it starts as ever: the exercise fails without it",
    UnitFate.NO_ROOM: "it starts as ever, though nobody wanted it: its mask had no room",
}
_STARTS = (
    "fit without masking it (--units keep, no --mask, no --try), or run without systemd.mask={} on the command line"
)


def unit_answer(run: FitRun, what: str) -> Explained | None:
    """Explain one unit, with the trials that were about it; None where the record has none of that name."""
    rows = run.units.units if run.units is not None else ()
    found = next((one for one in rows if what in (one.name, one.name.removesuffix(".service"))), None)
    if found is None:
        return None
    masked = found.fate is UnitFate.MASKED
    facts = [] if found.start_s is None else [("its start took, on the system's own kernel", f"{found.start_s:.3f} s")]
    facts += [_tried_unit(trial, found.name) for trial in run.trials if _is_about_unit(trial, found.name)]
    reason = Reason(Cause.USER, "user:units", found.reason)
    return Explained(
        what=found.name,
        kind=NameKind.UNIT,
        standing=Standing.OFF if masked else Standing.IN,
        summary=_SUMMARIES[found.fate],
        reasons=(reason,),
        brings_in=(_STARTS.format(found.name),) if masked else (),
        facts=tuple(facts),
    )


def _is_about_unit(trial: Trial, name: str) -> bool:
    settings = [setting for change in trial.changes for setting in change.settings]
    return any(one.kind is ChangeKind.UNIT and one.name == name for one in settings)


def _tried_unit(trial: Trial, name: str) -> tuple[str, str]:
    """Return one trial in a line: with what, and what came of it."""
    change = next(one for one in trial.changes if any(setting.name == name for setting in one.settings))
    others = len(change.settings) - 1
    beside = f" with {plural(others, 'other', 'others')}" if others else ""
    measured = change.measures(Figure.READY)
    ready = f", ready {measured.value:+.3f} s" if measured is not None else ""
    outcome = f"passed{ready}" if trial.passed else f"failed: {'; '.join(trial.failures[:2])}"
    return f"trial {trial.number}, masked{beside}", outcome
