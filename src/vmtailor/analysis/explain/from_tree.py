# SPDX-License-Identifier: Apache-2.0
"""What the kernel's source tree adds to an answer: what a symbol is, what it depends on, what asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vmtailor.analysis.explain.answers import Explained, NameKind, Standing
from vmtailor.analysis.explain.explain import Explanation

#: How many names are given before the rest is counted.
MOST_NAMES = 8


def with_tree(found: Explained, known: Explanation) -> Explained:
    """The answer with what the tree knows of the symbol. Ways in become exact: the very calls, families and paths."""
    facts = [*found.facts]
    if known.prompt:
        facts.append(("prompt", known.prompt))
    if known.dependency and known.dependency != "y":
        facts.append(("depends on", known.dependency))
    if known.places:
        facts.append(("defined in", known.places[0]))
    if found.standing is Standing.IN:
        return replace(found, facts=tuple(facts))
    return replace(found, facts=tuple(facts), brings_in=_ways(found, known))


def outside_baseline(known: Explanation) -> Explained:
    """The answer for a symbol of the tree that is neither kept nor part of the baseline."""
    summary = f"{known.name} is out: it is not in the baseline either, so nothing there can have used it"
    by_hand = f"your word: vmtailor fit … --keep {known.name}"
    return with_tree(Explained(known.name, NameKind.SYMBOL, Standing.OUT, summary, brings_in=(by_hand,)), known)


def _ways(found: Explained, known: Explanation) -> tuple[str, ...]:
    asked = known.brought_in_by
    ways = [f"the container asks for any of: {_some(asked)}"] if asked else []
    for way in found.brings_in:
        if way.endswith(f"--keep {known.name}"):
            ways.append(way + _price(known))
        elif not (asked and way.startswith(("the container ", "an exercise "))):
            ways.append(way)
    return tuple(ways)


def _price(known: Explanation) -> str:
    if not known.would_add:
        return " (this tree and machine cannot have it: see what it depends on)"
    with_it = known.would_add[1:]
    return f" (would also set {_some(with_it)})" if with_it else ""


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f", and {more} more" if more > 0 else "")
