# SPDX-License-Identifier: Apache-2.0
"""The kernel of a fit: the plan's own, or, if that fails, one with dropped symbols put back, nearest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vmtailor.analysis.changes import repair
from vmtailor.analysis.changes.repair import Search
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.explain import nearest
from vmtailor.analysis.ksource.closure import addable
from vmtailor.base.progress import step, tell
from vmtailor.base.text import plural
from vmtailor.model.architecture import named
from vmtailor.model.change import Cause, Change, Reason, symbol
from vmtailor.model.plan import Plan
from vmtailor.model.trial import Purpose
from vmtailor.pipeline import kernel_trials
from vmtailor.pipeline.subject import Built, Findings, Fitted
from vmtailor.pipeline.trials import TrialRequest

#: Failures that are told before a trial; the record has all of them.
MOST_TOLD = 3


def fit_kernel(
    findings: Findings[Any],
    on_built: Callable[[Built], None] = lambda first: None,
    on_failed: Callable[[], None] = lambda: None,
) -> Fitted:
    """Plan, build and verify; on failure repair within the budget. `on_built` gets the first machine before it is
    verified; `on_failed` is called when that does not pass."""
    first = kernel_trials.required(kernel_trials.trials(findings, on_built=on_built).attempt(Purpose.FIRST, ()))
    if first.verification.passed:
        return first
    on_failed()
    return repaired(findings, first)


class _Repair:
    """The search for what is missing. Where a trial mended what failed, and something else fails now, what it put back
    stays, and the search goes on from the new failure."""

    def __init__(self, findings: Findings[Any], failing: Fitted) -> None:
        self._findings = findings
        self._failing = failing
        self._last = failing

    def failed(self, result: Fitted | None, _names: tuple[str, ...]) -> None:
        """Record a trial that did not pass; None for one that could not be built."""
        if result is not None:
            self._last = result

    def search(self) -> Search:
        """Yield all rounds as one search."""
        held: tuple[str, ...] = ()
        while True:
            pool, asked = self._pool(held)
            steps = repair.search(pool, asked)
            answer: bool | None = None
            while not (answer is False and self._went_on()):
                try:
                    names = (*held, *steps.send(answer))  # type: ignore[arg-type]
                except StopIteration as stop:
                    return None if stop.value is None else (*held, *stop.value)
                answer = yield names
            held = names
            self._failing = self._last

    def text(self) -> str:
        return "; ".join(self._failing.verification.failures[:2])

    def tell(self) -> None:
        """Print the last failure before the next trial."""
        failures = self._last.verification.failures
        for line in failures[:MOST_TOLD]:
            tell(f"  it fails: {line}")
        if len(failures) > MOST_TOLD:
            tell(f"  and {plural(len(failures) - MOST_TOLD, 'further failure')}")

    def _pool(self, held: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
        """Return the symbols that can be put back beside `held`, nearest first, and the number of those asked for by
        name."""
        tree, plan, found = self._findings.tree, self._failing.plan, self._failing.verification
        left_out = [row for row in plan.left_out if row.id not in held]
        rules = demand_rules.load(architecture=named(tree.architecture))
        near = nearest.nearest(found.degraded, left_out, tree.facts, rules, tree.kconfig)
        needs = [name for name in found.needs if tree.kconfig.known(name) and name not in held]
        with step("repair: what can be put back"):
            pool = addable(tree.kconfig, plan.fragment, list(dict.fromkeys([*needs, *near.order])))
        asked = {*needs, *near.order[: near.asked]}
        return pool, sum(1 for name in pool if name in asked)

    def _went_on(self) -> bool:
        """Return whether the last trial got past all the failing calls that were asked about, and fails in others
        instead."""
        before, now = self._failing.verification, self._last.verification
        if now is before:
            return False
        old = {(call.name, call.arguments, call.error) for call in before.degraded}
        new = {(call.name, call.arguments, call.error) for call in now.degraded}
        if before.needs and before.needs != now.needs:
            return bool(new or now.needs)
        return bool(old) and bool(new) and not old & new


def repaired(findings: Findings[Any], failing: Fitted) -> Fitted:
    """Search the dropped symbols for the missing ones. Returns the last trial when the budget is spent or nothing
    helped; every trial is on record."""
    looking = _Repair(findings, failing)
    last: dict[str, Change] = {}

    def ask(names: tuple[str, ...]) -> TrialRequest:
        number = len(findings.trials) + 1
        reason = Reason(Cause.REPAIR, f"repair:trial:{number}", f"without it: {looking.text()}")
        now = {name: symbol(name, "y", reason, before="n") for name in names}
        about = (*(now[n] for n in sorted(now.keys() - last)), *(last[n].back for n in sorted(last.keys() - now)))
        last.clear()
        last.update(now)
        looking.tell()
        title = f"repair, trial {number}: {', '.join(names[:4])}{' …' if len(names) > 4 else ''}"
        return TrialRequest(tuple(now.values()), about, title)

    trials = kernel_trials.trials(findings, failing)
    most = findings.options.budget
    found = trials.search(looking.search(), Purpose.REPAIR, ask, most=most, on_failed=looking.failed)
    if found.answered and found.best is not None:
        return found.best
    return found.last or failing


def repairs_of(made: Plan) -> list[Change]:
    """Return the repairs in a plan: symbols that a trial put back."""
    return [
        symbol(one.id, "y", *(reason for reason in one.reasons if reason.cause is Cause.REPAIR), before="n")
        for one in made.symbols
        if one.is_kept and any(reason.cause is Cause.REPAIR for reason in one.reasons)
    ]


def without(findings: Findings[Any], fitted: Fitted, names: Sequence[str]) -> Fitted:
    """Build and verify the plan without some symbols, and record it as a trial."""
    about = [symbol(name, "n", before="y") for name in names]
    trials = kernel_trials.trials(findings, fitted, drop=tuple(names))
    return kernel_trials.required(trials.attempt(Purpose.UNNEEDED, repairs_of(fitted.plan), about))
