# SPDX-License-Identifier: Apache-2.0
"""Why a unit of a fitted system starts, or is masked: from the record of the fit."""

from __future__ import annotations

from vmtailor.analysis.explain.answers import Explained, NameKind, Standing
from vmtailor.base.words.text import plural
from vmtailor.model.change import Cause, ChangeKind, Figure, Reason
from vmtailor.model.fit import FitRun
from vmtailor.model.systems.units import UnitFate
from vmtailor.model.trial import Trial

_SUMMARIES = {
    UnitFate.KEPT: "it starts as ever, and is masked only where --mask names it",
    UnitFate.WANTED: "it starts as ever: the exercise wants it",
    UnitFate.CANDIDATE: "it starts as ever, though nobody wanted it",
    UnitFate.MASKED: "it is masked on the command line",
    UnitFate.NEEDED: "it starts as ever: the exercise fails without it",
    UnitFate.NO_ROOM: "it starts as ever, though nobody wanted it: its mask had no room",
}
_BRINGS = (
    "fit without masking it (--units keep, no --mask, no --try), or run without systemd.mask={} on the command line"
)


def answer(run: FitRun, what: str) -> Explained | None:
    """Explain one unit, with the trials that were about it; None where the record has none of that name."""
    rows = run.units.units if run.units is not None else ()
    found = next((one for one in rows if what in (one.name, one.name.removesuffix(".service"))), None)
    if found is None:
        return None
    masked = found.fate is UnitFate.MASKED
    facts = [] if found.start_s is None else [("its start took, on the system's own kernel", f"{found.start_s:.3f} s")]
    facts += [_tried(trial, found.name) for trial in run.trials if _is_about(trial, found.name)]
    reason = Reason(Cause.USER, "user:units", found.reason)
    return Explained(
        found.name, NameKind.UNIT, Standing.OFF if masked else Standing.IN, _SUMMARIES[found.fate], (reason,),
        brings_in=(_BRINGS.format(found.name),) if masked else (), facts=tuple(facts),
    )  # fmt: skip


def _is_about(trial: Trial, name: str) -> bool:
    settings = [setting for change in trial.changes for setting in change.settings]
    return any(one.kind is ChangeKind.UNIT and one.name == name for one in settings)


def _tried(trial: Trial, name: str) -> tuple[str, str]:
    """One trial in a line: with what, and what came of it."""
    change = next(one for one in trial.changes if any(setting.name == name for setting in one.settings))
    others = len(change.settings) - 1
    beside = f" with {plural(others, 'other', 'others')}" if others else ""
    measured = change.measures(Figure.READY)
    ready = f", ready {measured.value:+.3f} s" if measured is not None else ""
    outcome = f"passed{ready}" if trial.passed else f"failed: {'; '.join(trial.failures[:2])}"
    return f"trial {trial.number}, masked{beside}", outcome
