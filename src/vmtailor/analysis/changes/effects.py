# SPDX-License-Identifier: Apache-2.0
"""Effects of changes: expected before a trial, and judged from its samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from vmtailor.analysis.bootlog.silences import named_within
from vmtailor.analysis.changes.change_catalogue import Candidate
from vmtailor.analysis.statistics import boot_statistics
from vmtailor.model.boots.boot_cost import BootCost
from vmtailor.model.boots.timeline import PhaseName, Timeline
from vmtailor.model.change import UNITS, Change, Effect, Figure, Verdict, exact

#: Rows named for an expected effect, at most.
MOST_NAMED = 6
#: Instructions to look up one initcall's name: counted with a list that names none, 6.12 with 170,000 symbols.
NAME_LOOKUP = 3_200
BLACKLIST = "initcall_blacklist"

#: Returns the effects expected of a candidate; none if nothing tells.
Predict = Callable[[Candidate], tuple[Effect, ...]]


def expected_effects(figure: Figure, saving: float | None, source: str) -> tuple[Effect, ...]:
    """Return a saving as the effect that is expected."""
    return () if saving is None else (exact(figure, -saving, source),)


def expected_seconds(candidate: Candidate, timeline: Timeline) -> tuple[float | None, str]:
    """Return the saving to expect, in seconds of the timeline's clock, and its source; None where nothing tells."""
    return _sum([_seconds(one, timeline) for one in candidate.single])


def _seconds(candidate: Candidate, timeline: Timeline) -> tuple[float | None, str]:
    us, seen = 0, []
    signs = candidate.timeline
    rows: list[tuple[tuple[str, ...], Iterable[tuple[str, int | None]]]] = [
        (signs.processes, ((p.name, p.exclusive_us) for p in timeline.processes if not p.observer)),
        (signs.units, ((u.name, u.path_us if u.critical else u.exclusive_us) for u in timeline.units)),
        (signs.initcalls, ((c.name, c.exclusive_us) for c in timeline.initcalls if c.module is None)),
        (signs.modules, ((c.module or "", c.exclusive_us) for c in timeline.initcalls)),
    ]
    for patterns, items in rows:
        if not patterns:
            continue
        wanted = re.compile("|".join(patterns))
        for name, cost in items:
            if cost is not None and wanted.fullmatch(name):
                us += cost
                seen.append(name)
    if signs.console and timeline.console is not None and timeline.console.cost_us is not None:
        us += timeline.console.cost_us
        seen.append("console")
    if signs.initrd:
        phase = timeline.phase(PhaseName.INITRD)
        if phase is not None and phase.start_us is not None and phase.end_us is not None:
            us += phase.end_us - phase.start_us - named_within(timeline.gaps, phase.start_us, phase.end_us)
            seen.append("phase initrd")
    if signs.advice:
        for remedy in timeline.advice:
            if remedy.id == candidate.advice and remedy.applies and remedy.saving_us is not None:
                us += remedy.saving_us
                seen += list(remedy.seen)
    return (us / 1e6, ", ".join(dict.fromkeys(seen))) if seen else (None, "")


def _sum(parts: Sequence[tuple[float | None, str]]) -> tuple[float | None, str]:
    """Return the saving that parts are expected to give together; None when one of them has no figure."""
    known = [saving for saving, _ in parts if saving is not None]
    sources = ", ".join(dict.fromkeys(source for _, source in parts if source))
    return (sum(known) if len(known) == len(parts) else None), sources


def expected_instructions(candidate: Candidate, cost: BootCost) -> tuple[float | None, str]:
    """Return the saving to expect, in instructions from kernel entry to init, and its source; None where nothing tells.
    To leave initcalls out the kernel looks up the name of every one; that cost is taken off."""
    saving, source = _sum([_saved(part, cost) for part in candidate.single])
    if saving is not None and any(setting.name == BLACKLIST for setting in candidate.change.settings):
        saving -= NAME_LOOKUP * len(cost.initcalls)
    return saving, source


def _saved(candidate: Candidate, cost: BootCost) -> tuple[float | None, str]:
    wanted, total, seen = candidate.cost, 0, []
    for row in cost.functions:  # the most expensive first
        keys = ((wanted.symbols, row.symbol), (wanted.files, row.file), (wanted.functions, row.function))
        if any(patterns and re.fullmatch("|".join(patterns), key) for patterns, key in keys):
            total += row.instructions
            seen.append(row.function)
    for call in cost.initcalls:
        if wanted.initcalls and re.fullmatch("|".join(wanted.initcalls), call.name):
            total += call.instructions
            seen.append(call.name)
    helpers = {"": 0, "all": cost.helpers.count, "for tests": cost.helpers.for_tests}[wanted.helpers]
    if helpers:
        total += helpers * cost.helpers.each
        seen.insert(0, f"{helpers} helpers")
    named = list(dict.fromkeys(seen))
    rest = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return (total * wanted.share, ", ".join(named[:MOST_NAMED]) + rest) if seen else (None, "")


@dataclass(frozen=True)
class Samples:
    """One figure of what ran. `exact`: it hardly varies, as instructions do, so that few samples decide. `grain`: the
    share of a value that it is right to; what differs by less is the same."""

    figure: Figure
    values: tuple[float, ...]
    exact: bool = False
    grain: float = 0.0


@dataclass(frozen=True)
class TrialRun:
    """A run of a trial: why it did not work (empty, if it did), and its figures. The first of them, `deciding`, are
    judged by."""

    failures: tuple[str, ...] = ()
    samples: tuple[Samples, ...] = ()
    deciding: int = 1

    def values(self, figure: Figure) -> tuple[float, ...]:
        return next((one.values for one in self.samples if one.figure is figure), ())


#: Of the verdicts by several figures, the first of these counts.
_FIRST = (Verdict.WORSE, Verdict.UNDECIDED, Verdict.BETTER, Verdict.SAME)


#: An empty run: no failure and no figures.
NOTHING = TrialRun()


def judge(change: Change, before: TrialRun, after: TrialRun) -> Change:
    """Return the change with its measured effects, a verdict, and what no longer works.

    A change is worse if the machine works only without it, and better if only with it. If neither works, nothing is
    decided. Otherwise the deciding figures do: less is better, and of several one must be, and none worse."""
    measured = tuple(e for one in after.samples if (e := effect(one.figure, before.values(one.figure), one.values)))
    if after.failures:
        verdict = Verdict.UNDECIDED if before.failures else Verdict.WORSE
    elif before.failures:
        verdict = Verdict.BETTER
    elif after.samples:
        each = [
            boot_statistics.judge(before.values(one.figure), one.values, exact=one.exact, grain=one.grain)
            for one in after.samples[: after.deciding]
        ]
        verdict = next((one for one in _FIRST if one in each), Verdict.UNDECIDED)
    else:
        verdict = Verdict.UNDECIDED
    return replace(change, measured=measured, verdict=verdict, problem="; ".join(dict.fromkeys(after.failures)))


def effect(figure: Figure, before: Sequence[float], after: Sequence[float]) -> Effect | None:
    """Return the change of a figure's median; None when a side was not measured."""
    found = boot_statistics.difference(before, after)
    if found is None:
        return None
    saving, low, high = found
    return Effect(figure=figure, value=-saving, low=-high, high=-low, unit=UNITS[figure])
