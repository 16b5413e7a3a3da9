# SPDX-License-Identifier: Apache-2.0
"""Thorough effort: what the container demanded is left out in groups, and the exercise decides."""

from __future__ import annotations

from collections.abc import Sequence

from vmtailor.analysis.changes import causes
from vmtailor.analysis.changes.repair import minimise
from vmtailor.base.errors import BuildError
from vmtailor.base.progress import step
from vmtailor.model.plan import Cause, Plan
from vmtailor.pipeline import fitting
from vmtailor.pipeline.fitting import Findings, Fitted
from vmtailor.stages.plan import Repair

#: How many symbols are left out together at first.
GROUP = 4


def reduce(findings: Findings, fitted: Fitted) -> Fitted:
    """Leave out whatever can go, until nothing more can. Every machine that is tried is on record.

    What could not be left out because something else needs it is asked again when that is gone."""
    best = fitted
    gone: dict[str, int] = {}  # with the trial that it was left out in
    needed: set[str] = set()
    while True:
        open_ = [name for name in removable(best.plan) if name not in needed]
        waiting = [name for name in open_ if without(findings, fitted.plan, {**gone, name: 0}) is not None]
        before = dict(gone)
        search = minimise(waiting, GROUP)
        answer: bool | None = None
        while True:
            try:
                tried = search.send(answer)  # type: ignore[arg-type]
            except StopIteration:
                break
            number = len(findings.trials) + 1
            new = [name for name in tried if name not in gone]
            asked = {**gone, **dict.fromkeys(new, number)}
            made = without(findings, fitted.plan, asked)
            answer = False
            if made is None:
                continue
            with step(f"thorough, trial {number}: without {', '.join(new)} ({len(gone)} gone, {len(needed)} needed)"):
                trial = _tried(findings, made, new)
            if trial is not None and trial.verification.passed:
                best, gone, answer = trial, asked, True
            elif len(new) == 1:
                needed |= set(new)
        if gone == before:
            return best


def _tried(findings: Findings, made: Plan, names: Sequence[str]) -> Fitted | None:
    return fitting.attempt_or_not(findings, lambda: made, "unneeded?", (), names)


def removable(plan: Plan) -> list[str]:
    """Symbols that may turn out to be unneeded: the container demanded them, or repair put them back.

    Not what the machine or our init needs whatever the container is, nor policy: of a terminal or a protection, the
    exercise can say nothing."""
    return [
        choice.name
        for choice in plan.choices
        if choice.prompted
        and causes.is_kept(choice)
        and any(reason.cause in (Cause.DEMANDED, Cause.REPAIR) for reason in choice.reasons)
        and not any(reason.cause in (Cause.PLATFORM, Cause.POLICY) for reason in choice.reasons)
    ]


def without(findings: Findings, plan: Plan, gone: dict[str, int]) -> Plan | None:
    """The plan without some symbols, each with the trial that it is left out in. None when one of them stays, because
    something selects it, or when another that was asked for falls with them: then there is nothing to try."""
    unneeded = [Repair(name, f"trial:{trial}", "the exercise passes without it") for name, trial in gone.items()]
    try:
        made = fitting.planned(findings, fitting.repairs_of(plan), unneeded=unneeded)
    except BuildError:
        return None
    asked_for = {c.name for c in plan.choices if causes.is_kept(c) and causes.cause_of(c) is not Cause.DEPENDENCY}
    kept = {c.name for c in made.choices if causes.is_kept(c)}
    return made if not gone.keys() & kept and asked_for - gone.keys() <= kept else None
