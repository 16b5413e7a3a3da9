# SPDX-License-Identifier: Apache-2.0
"""A fit's kernel: the plan's own, and where that does not pass, with what was dropped put back, nearest first."""

from __future__ import annotations

from collections.abc import Sequence

from vmtailor.analysis.changes import repair
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.explain import explain
from vmtailor.analysis.ksource.closure import addable
from vmtailor.base.progress import step
from vmtailor.model.change import Cause, Change, Reason, symbol
from vmtailor.model.plan import Plan
from vmtailor.model.trial import Purpose
from vmtailor.pipeline import fitting
from vmtailor.pipeline.fitting import Findings, Fitted
from vmtailor.pipeline.trials import Asked


def fit_kernel(findings: Findings) -> Fitted:
    """Plan, build and verify; when that fails, repair within the budget."""
    first = fitting.required(fitting.trials(findings).attempt(Purpose.FIRST, ()))
    return first if first.verification.passed else repaired(findings, first)


def repaired(findings: Findings, failing: Fitted) -> Fitted:
    """Search what was dropped for what is missing. Gives the last trial back when the budget is spent, or nothing
    helped; every trial is on record."""
    tree = findings.tree
    candidates = explain.nearest(
        failing.verification.degraded, failing.plan.left_out, tree.facts, demand_rules.load(), tree.kconfig
    )
    needs = [name for name in failing.verification.needs if tree.kconfig.known(name)]
    with step("repair: what can be put back"):
        pool = addable(tree.kconfig, failing.plan.fragment, list(dict.fromkeys([*needs, *candidates])))
    text = "; ".join(failing.verification.failures[:2])
    last: dict[str, Change] = {}

    def ask(names: tuple[str, ...]) -> Asked:
        number = len(findings.trials) + 1
        reason = Reason(Cause.REPAIR, f"repair:trial:{number}", f"without it: {text}")
        now = {name: symbol(name, "y", reason, before="n") for name in names}
        about = (*(now[n] for n in sorted(now.keys() - last)), *(last[n].back for n in sorted(last.keys() - now)))
        last.clear()
        last.update(now)
        title = f"repair, trial {number}: {', '.join(names[:4])}{' …' if len(names) > 4 else ''}"
        return Asked(tuple(now.values()), about, title)

    trials = fitting.trials(findings, failing)
    found = trials.search(repair.search(pool), Purpose.REPAIR, ask, most=findings.inputs.options.budget)
    if found.answered and found.best is not None:
        return found.best
    return found.last or failing


def repairs_of(made: Plan) -> list[Change]:
    """The repairs that a plan holds: symbols that a trial put back."""
    return [
        symbol(one.id, "y", *(reason for reason in one.reasons if reason.cause is Cause.REPAIR), before="n")
        for one in made.symbols
        if one.is_kept and any(reason.cause is Cause.REPAIR for reason in one.reasons)
    ]


def without(findings: Findings, fitted: Fitted, names: Sequence[str]) -> Fitted:
    """The same plan without some symbols: built, verified, and on record as a trial."""
    about = [symbol(name, "n", before="y") for name in names]
    trials = fitting.trials(findings, fitted, drop=tuple(names))
    return fitting.required(trials.attempt(Purpose.UNNEEDED, repairs_of(fitted.plan), about))
