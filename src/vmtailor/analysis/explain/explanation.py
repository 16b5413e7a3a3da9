# SPDX-License-Identifier: Apache-2.0
"""Explain why a symbol is in or out, what would bring it in, and what the source tree says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vmtailor.analysis.demands.demand_rules import Rules
from vmtailor.analysis.explain.answers import Explained, NameKind, Standing
from vmtailor.analysis.ksource.closure import close
from vmtailor.analysis.ksource.expr import symbols
from vmtailor.analysis.ksource.expr_text import parse
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.model.plan import Plan

#: Number of ways to ask for a symbol that are reported.
MOST_TRIGGERS = 40


@dataclass(frozen=True)
class Explanation:
    """The tree's knowledge of one symbol. `dependency` is as stated; `brought_in_by` has the calls, families and paths
    that ask for it. `would_add`, for one that is out, has the symbols that keeping it would set (itself first)."""

    name: str
    known: bool
    prompt: str
    places: tuple[str, ...]
    dependency: str = ""
    would_add: tuple[str, ...] = ()
    brought_in_by: tuple[str, ...] = ()


def explain(name: str, plan: Plan, facts: Facts, kconfig: Kconfig, rules: Rules) -> Explanation:
    """Explain one symbol against a plan. An unknown name gives an explanation with `known` False."""
    name = name.removeprefix("CONFIG_")
    if not kconfig.known(name):
        return Explanation(name, False, "", ())
    symbol = plan.symbol(name)
    inside = symbol is not None and symbol.value not in ("n", "")
    return Explanation(
        name, True, kconfig.prompt(name), kconfig.places(name),
        dependency=kconfig.dependency(name),
        would_add=() if inside else would_add(name, plan, kconfig),
        brought_in_by=triggers(name, facts, rules),
    )  # fmt: skip


def would_add(name: str, plan: Plan, kconfig: Kconfig) -> tuple[str, ...]:
    """Return the symbols that would be set in addition if the symbol were kept, itself first. Empty when this tree
    cannot have it."""
    closure = close(kconfig, [*plan.fragment, (name, "y")], baseline=plan.baseline)
    if any(item.name == name for item in closure.lost):
        return ()
    more = kconfig.resolve(closure.fragment).enabled - {c.id for c in plan.symbols if c.setting.value in ("y", "m")}
    return (name, *sorted(more - {name})) if name in more else ()


def triggers(name: str, facts: Facts, rules: Rules) -> tuple[str, ...]:
    """Return what a program would have to do to demand the symbol: `system call epoll_create1`, `socket AF_INET6` …"""
    words = {
        "family": "socket AF_{}", "netlink": "socket AF_NETLINK NETLINK_{}", "protocol": "socket of protocol {}",
        "filesystem": "mount of {}", "proc": "/proc/{}", "sysctl": "/proc/sys/{}", "device": "/dev/{}",
        "sysfs": "/sys/{}",
    }  # fmt: skip
    found = []
    for call in facts.table:
        known = facts.syscall(call)
        if known is not None and name in symbols(known[0]):
            found.append(f"system call {call}")
    for kind, text in words.items():
        for entry, places in facts.names.get(kind, {}).items():
            if any(name in symbols(parse(p.condition)) for p in places):
                found.append(text.format(entry))
    for rule in rules.calls:
        if name in rule.symbols:
            found.append(f"{'/'.join(rule.calls)} {' '.join(rule.words)}".strip())
    for path_rule in rules.paths:
        if name in path_rule.symbols:
            found += path_rule.paths
    return tuple(dict.fromkeys(found))[:MOST_TRIGGERS]


#: Number of names given before the rest is counted.
MOST_NAMES = 8


def with_tree(found: Explained, known: Explanation) -> Explained:
    """Return the answer with the tree's knowledge of the symbol. Ways in become exact: the very calls, families and
    paths."""
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
    """Return the answer for a symbol of the tree that is neither kept nor part of the baseline."""
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
