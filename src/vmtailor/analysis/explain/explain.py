# SPDX-License-Identifier: Apache-2.0
"""Why a symbol is in or out, and what would bring it in."""

from __future__ import annotations

from dataclasses import dataclass

from vmtailor.analysis.demands.demand_rules import Rules
from vmtailor.analysis.ksource.closure import close
from vmtailor.analysis.ksource.expr import symbols
from vmtailor.analysis.ksource.expr_text import parse
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.model.plan import Plan

#: How many ways to ask for a symbol are told.
MOST_TRIGGERS = 40


@dataclass(frozen=True)
class Explanation:
    """What the tree knows of one symbol: `dependency` as it is stated; `brought_in_by`, the calls, families and paths
    that ask for it; for one that is out, `would_add`, what keeping it would bring along (itself first)."""

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
    """What would be set in addition if the symbol were kept, itself first. Empty when this tree cannot have it."""
    closure = close(kconfig, [*plan.fragment, (name, "y")], baseline=plan.baseline)
    if any(item.name == name for item in closure.lost):
        return ()
    more = kconfig.resolve(closure.fragment).enabled - {c.id for c in plan.symbols if c.setting.value in ("y", "m")}
    return (name, *sorted(more - {name})) if name in more else ()


def triggers(name: str, facts: Facts, rules: Rules) -> tuple[str, ...]:
    """What a program would have to do to demand the symbol: `system call epoll_create1`, `socket AF_INET6` …"""
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
