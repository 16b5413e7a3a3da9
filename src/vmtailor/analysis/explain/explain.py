# SPDX-License-Identifier: Apache-2.0
"""Why a symbol is in or out, what would bring it in, and which symbols stand nearest to a failure."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.analysis.demands.demand_rules import Rules
from vmtailor.analysis.ksource.closure import close
from vmtailor.analysis.ksource.expr import symbols
from vmtailor.analysis.ksource.expr_text import parse
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.model.change import Change, Figure, Reason
from vmtailor.model.plan import Plan
from vmtailor.model.syscalls import FailedCall, SyscallEvent


@dataclass(frozen=True)
class Explanation:
    """All about one symbol. `value` is the plan's, `n` when it is left out.

    For one that is in: `reasons`, and `needed_by`, kept symbols with a reason that names it. For one that is out:
    `dependency` as the tree states it, `would_add`, what keeping it would bring along (itself first), `brought_in_by`,
    the calls, families and paths that ask for it, and `ran`, its instructions in the trace.
    """

    name: str
    known: bool
    value: str
    prompt: str
    help: str
    places: tuple[str, ...]
    reasons: tuple[Reason, ...] = ()
    needed_by: tuple[str, ...] = ()
    dependency: str = ""
    would_add: tuple[str, ...] = ()
    brought_in_by: tuple[str, ...] = ()
    ran: int = 0


def explain(name: str, plan: Plan, facts: Facts, kconfig: Kconfig, rules: Rules) -> Explanation:
    """Explain one symbol against a plan. An unknown name gives an explanation with `known` False."""
    name = name.removeprefix("CONFIG_")
    if not kconfig.known(name):
        return Explanation(name, False, "n", "", "", ())
    symbol = plan.symbol(name)
    value = symbol.value if symbol is not None else "n"
    inside = value not in ("n", "")
    gone = next((row for row in plan.gone if row.id == name), None)
    return Explanation(
        name, True, value, kconfig.prompt(name), kconfig.help(name), kconfig.places(name),
        reasons=symbol.reasons if symbol is not None else (),
        needed_by=needed_by(name, plan) if inside else (),
        dependency=kconfig.dependency(name),
        would_add=() if inside else would_add(name, plan, kconfig),
        brought_in_by=triggers(name, facts, rules),
        ran=gone.saves(Figure.TRACE_INSTRUCTIONS) if gone is not None else 0,
    )  # fmt: skip


def needed_by(name: str, plan: Plan) -> tuple[str, ...]:
    """Kept symbols whose reasons name this one."""
    return tuple(c.id for c in plan.symbols if any(r.reference == f"symbol:{name}" for r in c.reasons))


def would_add(name: str, plan: Plan, kconfig: Kconfig) -> tuple[str, ...]:
    """What would be set in addition if the symbol were kept, itself first. Empty when this tree cannot have it."""
    closure = close(kconfig, [*plan.fragment, (name, "y")])
    if any(item.name == name for item in closure.lost):
        return ()
    more = kconfig.resolve(closure.fragment).enabled - {c.id for c in plan.symbols if c.setting.value in ("y", "m")}
    return (name, *sorted(more - {name})) if name in more else ()


def triggers(name: str, facts: Facts, rules: Rules, limit: int = 40) -> tuple[str, ...]:
    """What a program would have to do to demand the symbol: `system call epoll_create1`, `socket AF_INET6` …"""
    words = {
        "family": "socket AF_{}", "netlink": "socket AF_NETLINK NETLINK_{}", "protocol": "socket of protocol {}",
        "filesystem": "mount of {}", "proc": "/proc/{}", "sysctl": "/proc/sys/{}", "device": "/dev/{}",
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
    return tuple(dict.fromkeys(found))[:limit]


def nearest(
    failed: Sequence[FailedCall], left_out: Sequence[Change], facts: Facts, rules: Rules, kconfig: Kconfig
) -> tuple[str, ...]:
    """All symbols left out, those nearest to the failing calls first: the order in which repair tries them.

    First what the call itself, its family or a rule asks for; then what makes up the folder, then the subsystem in
    which the call is defined; then what ran, by instructions. Without failing calls only the last counts.
    """
    candidates = [row.id for row in left_out]
    distance: dict[str, int] = {}

    def near(names: Sequence[str], step: int) -> None:
        for name in names:
            if kconfig.known(name):
                distance[name] = min(distance.get(name, step), step)

    for call in failed:
        for step, names in enumerate(_asked_by(call, facts, rules)):
            near(names, step)
    ordered = sorted(enumerate(candidates), key=lambda item: (distance.get(item[1], 99), item[0]))
    return tuple(name for _, name in ordered)


def _asked_by(call: FailedCall, facts: Facts, rules: Rules) -> tuple[list[str], list[str], list[str]]:
    """Symbols that a failed call asks for, those of the folders where that is defined, and those of their
    subsystems."""
    words = call.arguments.split(", ")
    event = SyscallEvent(0, 0, "", call.name, tuple(words), 0, "", 0.0)
    direct = [s for rule in rules.for_call(call.name) if rule.match(event) is not None for s in rule.symbols]
    files: list[str] = []
    for kind, name in _named(call.name, words):
        direct += _symbols_of(facts, kind, name)
        files += [place.path for place in facts.places(kind, name)]
    for word in words:
        if word.startswith("/"):
            direct += [s for rule in rules.paths if rule.match(word) for s in rule.symbols]
    known = facts.syscall(call.name)
    if known is not None:
        direct += sorted(symbols(known[0]))
        files += [place.path for place in known[1]]
    folders = {posixpath.dirname(path) for path in files}
    subsystems = {subsystem(path) for path in files} - {""}
    around = [
        s for path, text in facts.files.items() if posixpath.dirname(path) in folders for s in symbols(parse(text))
    ]
    further = [s for path, text in facts.files.items() if subsystem(path) in subsystems for s in symbols(parse(text))]
    return direct, around, further


def subsystem(path: str) -> str:
    """The part of the source tree that a file belongs to: its top folder, of drivers and architectures the one below;
    empty for a file at the top."""
    parts = posixpath.dirname(path).split("/")
    return "/".join(parts[:2] if parts[0] in ("arch", "drivers") else parts[:1])


def _named(call: str, words: Sequence[str]) -> list[tuple[str, str]]:
    """What a call names that the source defines by name: kind and name as the facts have them."""
    found = []
    for word in words:
        if word.startswith(("AF_", "PF_")):
            found.append(("family", word[3:]))
        elif word.startswith("NETLINK_"):
            found.append(("netlink", word[8:]))
        elif word.startswith("/"):
            found += _named_by_path(word)
    if call in ("mount", "fsopen"):
        found += [("filesystem", word) for word in words]
    return found


def _symbols_of(facts: Facts, kind: str, name: str) -> list[str]:
    condition = facts.condition(kind, name)
    return sorted(symbols(condition)) if condition is not None else []


def _named_by_path(path: str) -> list[tuple[str, str]]:
    parts = path.strip("/").split("/")
    rest = "/".join(parts[1:])
    if parts[0] == "dev":
        return [("device", rest)]
    if parts[:2] == ["proc", "sys"]:
        return [("sysctl", "/".join(parts[2:]))]
    return [("proc", rest.replace("PID/", "self/", 1))] if parts[0] == "proc" else []
