# SPDX-License-Identifier: Apache-2.0
"""Why a fitted system has a word on its command line that a change beside the kernel set, or has it not: from the
record of the fit."""

from __future__ import annotations

from vmtailor.analysis.explain.answers import Explained, NameKind, Standing
from vmtailor.model.change import Change, Figure
from vmtailor.model.fit import FitRun
from vmtailor.model.systems.tuning import words_of
from vmtailor.model.trial import Purpose, Trial

_BRINGS = "fit with {}; it stays where it is faster and the exercise passes with it"
_TAKES = "fit without {}, or run with another command line"
_TAKES_FILE = "fit without {}"


def answer(run: FitRun, what: str) -> Explained | None:
    """Explain a change by its id, or by one of its words; None where none of that name was tried."""
    if run.tuned is None:
        return None
    for change in (*run.tuned.kept, *run.tuned.others):
        if what == change.id or what in words_of(change):
            return _explained(run, change)
    return None


def _explained(run: FitRun, change: Change) -> Explained:
    assert run.tuned is not None
    kept, words = change in run.tuned.kept, ", ".join(words_of(change))
    summary = f"{change.does} ({words}): {run.tuned.outcome(change)}"
    is_file = any(one.is_file for one in change.settings)
    asked = f"--try-file {change.id.removeprefix('file:')}" if is_file else f"--try {change.id}"
    ways = ((_TAKES_FILE if is_file else _TAKES) if kept else _BRINGS).format(asked)
    return Explained(
        change.id, NameKind.CHANGE, Standing.IN if kept else Standing.OUT, summary, change.reasons,
        brings_in=(ways,), facts=tuple(_tried(trial) for trial in run.trials if _is_about(trial, change)),
    )  # fmt: skip


def _is_about(trial: Trial, change: Change) -> bool:
    if trial.purpose is Purpose.TOGETHER:
        return any(set(change.settings) <= set(one.settings) for one in trial.changes)
    return trial.purpose is Purpose.ALONE and any(one.id == change.id for one in trial.changes)


def _tried(trial: Trial) -> tuple[str, str]:
    """One trial in a line: with what, and what came of it."""
    measured = trial.changes[0].measures(Figure.READY)
    ready = f"ready {measured.value:+.3f} s" if measured is not None else "ready not measured"
    outcome = ready if trial.passed else f"failed: {'; '.join(trial.failures[:2])}"
    return f"trial {trial.number}, {trial.purpose}", outcome
