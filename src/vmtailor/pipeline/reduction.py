# SPDX-License-Identifier: Apache-2.0
"""Thorough effort: leave out demanded symbols in groups, with the exercise as judge."""

from __future__ import annotations

from typing import Any

from vmtailor.analysis.changes import plan_summary
from vmtailor.analysis.changes.repair import minimise
from vmtailor.base.errors import BuildError
from vmtailor.model.change import Cause, Change, Reason, symbol
from vmtailor.model.plan import Plan
from vmtailor.model.trial import Purpose
from vmtailor.pipeline import kernel_trials
from vmtailor.pipeline.kernel_repair import repairs_of
from vmtailor.pipeline.kernel_trials import FitTestbed
from vmtailor.pipeline.subject import Findings, Fitted
from vmtailor.pipeline.trials import TrialRequest, Trials

#: Number of symbols left out together at first.
GROUP = 4


def reduce(findings: Findings[Any], fitted: Fitted) -> Fitted:
    """Leave out symbols until no more can go. Every machine that is tried is on record.

    A symbol that stayed because something else needs it is tried again when that is gone."""
    best = fitted
    gone: dict[str, int] = {}  # with the trial that it was left out in
    needed: set[str] = set()
    testbed = FitTestbed(findings, kernel_trials.run_of(fitted))

    def new(names: tuple[str, ...]) -> list[str]:
        return [name for name in names if name not in gone]

    def ask(names: tuple[str, ...]) -> TrialRequest | None:
        number = len(findings.trials) + 1
        changes = left_out(fitted.plan, {**gone, **dict.fromkeys(new(names), number)})
        if not worth_trying(testbed, fitted.plan, changes):
            return None
        about = tuple(change for change in changes if change.id in new(names))
        title = f"thorough, trial {number}: without {', '.join(new(names))} ({len(gone)} gone, {len(needed)} needed)"
        return TrialRequest(changes, about, title)

    def passed(result: Fitted, names: tuple[str, ...]) -> None:
        nonlocal best
        best = result
        gone.update(dict.fromkeys(new(names), len(findings.trials)))

    def failed(_: Fitted | None, names: tuple[str, ...]) -> None:
        if len(new(names)) == 1:
            needed.update(new(names))

    while True:
        before = len(gone)
        open_ = [name for name in removable(best.plan) if name not in needed]
        waiting = [
            name for name in open_ if worth_trying(testbed, fitted.plan, left_out(fitted.plan, {**gone, name: 0}))
        ]
        testbed.before = kernel_trials.run_of(best)
        Trials(testbed, findings.trials).search(
            minimise(waiting, GROUP), Purpose.UNNEEDED, ask, on_passed=passed, on_failed=failed
        )
        if len(gone) == before:
            return best


def removable(plan: Plan) -> list[str]:
    """Return symbols that may turn out to be unneeded: the container demanded them, or repair put them back.

    Symbols of the machine, our init, a policy or a margin are left out: the exercise says nothing of terminals,
    protections, or things that it did not use."""
    return [
        one.id
        for one in plan.symbols
        if one.setting.chosen
        and one.is_kept
        and any(reason.cause in (Cause.DEMANDED, Cause.REPAIR) for reason in one.reasons)
        and not any(reason.cause in (Cause.PLATFORM, Cause.POLICY, Cause.MARGIN) for reason in one.reasons)
    ]


def left_out(plan: Plan, gone: dict[str, int]) -> tuple[Change, ...]:
    """Return the plan's repairs, and the symbols that trials left out, each with its trial."""
    text = "the exercise passes without it"
    unneeded = (
        symbol(name, "n", Reason(Cause.REPAIR, f"repair:trial:{trial}", text), before="y")
        for name, trial in gone.items()
    )
    return (*repairs_of(plan), *unneeded)


def worth_trying(testbed: FitTestbed, plan: Plan, changes: tuple[Change, ...]) -> bool:
    """Return whether the trial is worth making. It is not when a symbol to leave out stays because something selects
    it, or when another demanded symbol falls with it."""
    gone = {change.id for change in changes if change.setting.value == "n"}
    try:
        made = testbed.plan(changes)
    except BuildError:
        return False
    asked_for = {c.id for c in plan.symbols if c.is_kept and plan_summary.cause_of(c) is not Cause.DEPENDENCY}
    kept = {c.id for c in made.symbols if c.is_kept}
    return not gone & kept and asked_for - gone <= kept
