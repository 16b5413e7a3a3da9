# SPDX-License-Identifier: Apache-2.0
"""Thorough effort: kept symbols are removed in groups, and the exercise decides."""

from __future__ import annotations

from vmtailor.analysis.repair import minimise
from vmtailor.base.errors import BuildError
from vmtailor.model.plan import Cause, Plan
from vmtailor.pipeline import fitting
from vmtailor.pipeline.fitting import Findings, Fitted

#: How many symbols are left out together at first.
GROUP = 8


def removable(plan: Plan) -> list[str]:
    """Symbols that somebody chose and no policy asks for: what may turn out to be unneeded."""
    return [
        choice.name
        for choice in plan.choices
        if choice.prompted
        and choice.value == "y"
        and any(reason.cause in (Cause.DEMANDED, Cause.PLATFORM, Cause.REPAIR) for reason in choice.reasons)
        and all(reason.cause is not Cause.POLICY for reason in choice.reasons)
    ]


def reduce(findings: Findings, fitted: Fitted) -> Fitted:
    """Leave out whatever can go, within the budget. Every trial is on record."""
    search = minimise(removable(fitted.plan), GROUP)
    best, answer = fitted, None
    while len(findings.trials) < findings.ground.options.budget:
        try:
            tried = search.send(answer)  # type: ignore[arg-type]
        except StopIteration:
            break
        try:
            trial = fitting.without(findings, fitted, tried)
        except BuildError:
            answer = False
            continue
        answer = trial.verification.passed
        if answer:
            best = trial
    return best
