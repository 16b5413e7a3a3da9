# SPDX-License-Identifier: Apache-2.0
"""One function judges a change, whatever kind it is of and whatever tried it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vmtailor.analysis.statistics import bootstats
from vmtailor.model.change import UNITS, Change, Effect, Figure
from vmtailor.model.verdict import Verdict


@dataclass(frozen=True)
class Samples:
    """One figure of what ran. `exact`: it hardly varies, as instructions do, so that few samples decide."""

    figure: Figure
    values: tuple[float, ...]
    exact: bool = False


@dataclass(frozen=True)
class TrialRun:
    """What ran: why it did not work (nothing, if it did), and its figures, the one that is judged by first."""

    failures: tuple[str, ...] = ()
    samples: tuple[Samples, ...] = ()

    def values(self, figure: Figure) -> tuple[float, ...]:
        return next((one.values for one in self.samples if one.figure is figure), ())


#: What ran where nothing was run: it failed at nothing, and has no figures.
NOTHING = TrialRun()


def judge(change: Change, before: TrialRun, after: TrialRun) -> Change:
    """The change with what was measured of it, a verdict, and what no longer works.

    What works only without it is worse, what works only with it is better; where neither works, nothing is decided.
    Otherwise the first figure of the run decides: less is better."""
    measured = tuple(e for one in after.samples if (e := effect(one.figure, before.values(one.figure), one.values)))
    if after.failures:
        verdict = Verdict.UNDECIDED if before.failures else Verdict.WORSE
    elif before.failures:
        verdict = Verdict.BETTER
    elif after.samples:
        first = after.samples[0]
        verdict = bootstats.judge(before.values(first.figure), first.values, exact=first.exact)
    else:
        verdict = Verdict.UNDECIDED
    return replace(change, measured=measured, verdict=verdict, problem="; ".join(dict.fromkeys(after.failures)))


def effect(figure: Figure, before: Sequence[float], after: Sequence[float]) -> Effect | None:
    """By how much the median of a figure is another one afterwards; None where a side was not measured."""
    found = bootstats.difference(before, after)
    if found is None:
        return None
    saving, low, high = found
    return Effect(figure, -saving, -high, -low, UNITS[figure])
