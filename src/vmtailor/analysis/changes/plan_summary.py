# SPDX-License-Identifier: Apache-2.0
"""Plans summarised: symbols counted by cause, and the difference between two plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from vmtailor.model.change import Cause, Change
from vmtailor.model.plan import Plan

#: A symbol with several reasons counts under the first of these. A symbol that something asked for directly is no mere
#: dependency, and one that is kept for the container or the machine anyway is not put down to policy.
ORDER = (Cause.DEMANDED, Cause.PLATFORM, Cause.REPAIR, Cause.POLICY, Cause.MARGIN, Cause.DEPENDENCY)

#: Meaning of each cause, in a sentence.
MEANING = {
    Cause.DEMANDED: "the container asked for it by name, and got it",
    Cause.PLATFORM: "the machine or our init needs it, whatever the container is",
    Cause.REPAIR: "verification failed without it",
    Cause.POLICY: "a written rule asks for it: protection, speed, what the user keeps",
    Cause.MARGIN: "not seen, but the image could ask for it, or servers usually do: the margin that the user chose",
    Cause.DEPENDENCY: "another kept symbol depends on it or selects it",
}


def cause_of(symbol: Change) -> Cause | None:
    """Return the cause that a symbol counts under; None where no reason is on record."""
    found = {reason.cause for reason in symbol.reasons}
    return next((cause for cause in ORDER if cause in found), None)


def counts(symbols: Iterable[Change]) -> dict[Cause, int]:
    """Return how many kept symbols with a prompt each cause has; every cause is there."""
    found = Counter(cause_of(symbol) for symbol in symbols if symbol.is_kept and symbol.setting.chosen)
    return {cause: found[cause] for cause in ORDER}


@dataclass(frozen=True)
class Altered:
    """A symbol or word that both have, with other values."""

    name: str
    before: str
    after: Change


@dataclass(frozen=True)
class PlanDifference:
    """`comes` with the reasons of the plan after, `goes` with those that it had before. `prompted`: how many symbols
    with a prompt each plan has, before and after."""

    comes: tuple[Change, ...]
    goes: tuple[Change, ...]
    altered: tuple[Altered, ...]
    words_come: tuple[Change, ...]
    words_go: tuple[Change, ...]
    prompted: tuple[int, int]

    def __bool__(self) -> bool:
        return any((self.comes, self.goes, self.altered, self.words_come, self.words_go))


def between(before: Plan, after: Plan) -> PlanDifference:
    """Return the changes that turn the first plan into the second. Symbols with a prompt come first, by name."""
    old, new = _set(before), _set(after)
    words_old, words_new = {w.id: w for w in before.words}, {w.id: w for w in after.words}
    return PlanDifference(
        comes=_ordered([new[name] for name in new.keys() - old.keys()]),
        goes=_ordered([old[name] for name in old.keys() - new.keys()]),
        altered=tuple(
            Altered(name, old[name].value, new[name])
            for name in sorted(new.keys() & old.keys())
            if old[name].value != new[name].value
        ),
        words_come=tuple(word for name, word in words_new.items() if name not in words_old),
        words_go=tuple(word for name, word in words_old.items() if name not in words_new),
        prompted=(before.prompted_y, after.prompted_y),
    )


def _set(plan: Plan) -> dict[str, Change]:
    return {change.id: change for change in plan.symbols if change.value != "n"}


def _ordered(changes: list[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: (not change.setting.chosen, change.id)))
