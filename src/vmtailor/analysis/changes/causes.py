# SPDX-License-Identifier: Apache-2.0
"""Symbols by their cause: one way to count them, for the report, `explain` and `fit --json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from vmtailor.model.change import Cause, Change

#: A symbol with several reasons counts under the first of these. A symbol that something asked for directly is no mere
#: dependency, and one that is kept for the container or the machine anyway is not put down to policy.
ORDER = (Cause.DEMANDED, Cause.PLATFORM, Cause.REPAIR, Cause.POLICY, Cause.MARGIN, Cause.DEPENDENCY)

#: What each cause means, in a sentence.
MEANING = {
    Cause.DEMANDED: "the container asked for it by name, and got it",
    Cause.PLATFORM: "the machine or our init needs it, whatever the container is",
    Cause.REPAIR: "verification failed without it",
    Cause.POLICY: "a written rule asks for it: protection, speed, what the user keeps",
    Cause.MARGIN: "not seen, but the image could ask for it, or servers usually do: the margin that the user chose",
    Cause.DEPENDENCY: "another kept symbol depends on it or selects it",
}


def cause_of(symbol: Change) -> Cause | None:
    """The cause that a symbol counts under; None where no reason is on record."""
    found = {reason.cause for reason in symbol.reasons}
    return next((cause for cause in ORDER if cause in found), None)


def counts(symbols: Iterable[Change]) -> dict[Cause, int]:
    """How many kept symbols with a prompt each cause has; every cause is there."""
    found = Counter(cause_of(symbol) for symbol in symbols if symbol.is_kept and symbol.setting.chosen)
    return {cause: found[cause] for cause in ORDER}
