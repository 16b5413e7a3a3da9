# SPDX-License-Identifier: Apache-2.0
"""Order the symbols left out by how near they are to a failing call: repair tries them in this order.

The error of a call tells first what it lacks. A path that is gone asks for its provider, an unsupported family or
protocol for that family. A call that is not implemented asks for itself. Other symbols that the call could ask for come
next, then those compiled beside it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtailor.analysis.demands.degradation import GONE
from vmtailor.analysis.demands.demand_rules import Rules
from vmtailor.analysis.ksource.expr import Expr, asked_for, disjunction, symbols
from vmtailor.analysis.ksource.expr_text import parse
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.base.text import is_number
from vmtailor.model.change import Change
from vmtailor.model.syscalls import FailedCall, SyscallEvent

#: Errors of a kernel that lacks the family, type or protocol of a socket.
FAMILY = frozenset({"EAFNOSUPPORT", "EPFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EPROTOTYPE"})
#: Kinds of names in the facts that a socket is asked for by.
_OF_SOCKETS = ("family", "netlink", "protocol")
_FAR = 99


@dataclass(frozen=True)
class Nearest:
    """All symbols left out, the nearest first. `asked`: so many of them, the first, are what the errors of the failing
    calls ask for by name."""

    order: tuple[str, ...]
    asked: int = 0


@dataclass(frozen=True)
class _Named:
    """Something that a call names and the source or a rule knows: how much of the path it is, the symbols that provide
    it, and the files where it is defined."""

    kind: str
    length: int
    symbols: tuple[str, ...]
    files: tuple[str, ...] = ()


def nearest(
    failed: Sequence[FailedCall], left_out: Sequence[Change], facts: Facts, rules: Rules, kconfig: Kconfig
) -> Nearest:
    """Return all symbols left out, those nearest to the failing calls first: the order in which repair tries them.

    First what the error asks for, of a path the longest part that is known by name; then what else the call, its family
    or a rule asks for; then what makes up the folder, then the subsystem in which the call is defined; then what ran,
    by instructions. Without failing calls only the last counts."""
    candidates = [row.id for row in left_out]
    out = frozenset(candidates)
    distance: dict[str, tuple[int, int]] = {}
    for call in failed:
        for step, found in enumerate(_steps(call, out, facts, rules)):
            for name, further in found:
                if kconfig.known(name):
                    distance[name] = min(distance.get(name, (_FAR, 0)), (step, further))
    ordered = sorted(enumerate(candidates), key=lambda item: (distance.get(item[1], (_FAR, 0)), item[0]))
    asked = sum(1 for name in candidates if distance.get(name, (_FAR, 0))[0] == 0)
    return Nearest(tuple(name for _, name in ordered), asked)


#: A symbol, and how far it is among those of the same step.
_Far = tuple[str, int]


def _steps(call: FailedCall, out: frozenset[str], facts: Facts, rules: Rules) -> tuple[list[_Far], ...]:
    """Return steps from the error of a failed call outwards. First comes what the error asks for, then what else the
    call asks for, then the folders where that is defined, then their subsystems."""
    words = [word for word in call.arguments.split(", ") if word]
    named = [*_by_source(call.name, words, out, facts), *_by_path_rules(words, rules)]
    own = facts.syscall(call.name)
    of_call = _Named("call", 0, _wanted(own[0], out), tuple(p.path for p in own[1])) if own is not None else None
    event = SyscallEvent(line=0, pid=0, task="", name=call.name, args=tuple(words), result=0, error="", seconds=0.0)
    of_rules = [_Named("rule", 0, rule.symbols) for rule in rules.for_call(call.name) if rule.match(event) is not None]
    everything = [*named, *of_rules, *([of_call] if of_call is not None else [])]
    first = [one for one in everything if _answers(one, call, words)] or everything
    longest = max((one.length for one in first), default=0)
    asked = [(name, longest - one.length) for one in first for name in one.symbols]
    other = [(name, 0) for one in everything for name in one.symbols]
    files = [path for one in everything for path in one.files]
    folders = {posixpath.dirname(path) for path in files}
    subsystems = {subsystem(path) for path in files} - {""}
    around = [(s, 0) for path, text in facts.files.items() if posixpath.dirname(path) in folders for s in _all(text)]
    further = [(s, 0) for path, text in facts.files.items() if subsystem(path) in subsystems for s in _all(text)]
    return asked, other, around, further


def _answers(one: _Named, call: FailedCall, words: Sequence[str]) -> bool:
    """Return whether the error of a call is about this."""
    if call.error in GONE and any(word.startswith("/") for word in words):
        return one.kind in ("path", "filesystem")
    if call.error in FAMILY:
        return one.kind in _OF_SOCKETS
    if call.error == "ENOSYS":
        return one.kind in ("call", "rule")
    return True


def _wanted(condition: Expr, out: frozenset[str]) -> tuple[str, ...]:
    """Return the left-out symbols that a condition asks for. Other symbols that it names are in already, or never
    were."""
    named = symbols(condition)
    least = [name for name in asked_for(condition, dict.fromkeys(named, "y")) if name in out]
    return tuple(least or sorted(named & out))


def _all(condition: str) -> set[str]:
    return set(symbols(parse(condition)))


def _by_source(call: str, words: Sequence[str], out: frozenset[str], facts: Facts) -> Iterator[_Named]:
    """Return the things that a call names and the source defines by name."""
    for word in words:
        if word.startswith(("AF_", "PF_")):
            yield from _of_facts("family", word[3:], 0, out, facts)
        elif word.startswith("NETLINK_"):
            yield from _of_facts("netlink", word[8:], 0, out, facts)
        elif word.startswith("IPPROTO_") and len(words) > 1:
            style = words[1].partition("|")[0].removeprefix("SOCK_")
            yield from _of_facts("protocol", f"{style}/{word[8:]}", 0, out, facts)
        elif word.startswith("/"):
            for kind, name, length in named_by_path(word):
                yield from _of_facts(kind, name, length, out, facts, "path")
    if call in ("mount", "fsopen"):
        for word in words:
            yield from _of_facts("filesystem", word, 0, out, facts)


def _of_facts(
    kind: str, name: str, length: int, out: frozenset[str], facts: Facts, as_kind: str = ""
) -> Iterator[_Named]:
    places = facts.places(kind, name)
    if places:
        condition = disjunction(*(parse(place.condition) for place in places))
        yield _Named(as_kind or kind, length, _wanted(condition, out), tuple(place.path for place in places))


def _by_path_rules(words: Sequence[str], rules: Rules) -> Iterator[_Named]:
    for word in words:
        if word.startswith("/"):
            for rule in rules.paths:
                length = rule.length(word)
                if length:
                    yield _Named("path", length, rule.symbols)


def named_by_path(path: str) -> Iterator[tuple[str, str, int]]:
    """Return the names that a path may have in the facts, the whole of it first: kind, name, and how many parts of the
    path it covers."""
    parts = path.strip("/").split("/")
    if parts[0] == "dev" and len(parts) > 1:
        yield "device", "/".join(parts[1:]), len(parts)
    elif parts[:2] == ["proc", "sys"]:
        if len(parts) > 2:
            yield "sysctl", "/".join(parts[2:]), len(parts)
            yield "sysctl", f"*/{parts[-1]}", len(parts)
    elif parts[0] == "proc":
        # /proc/PID and /proc/self are one in the source
        rest = ["self" if part == "PID" or is_number(part) else part for part in parts[1:]]
        for length in range(len(rest), 0, -1):
            yield "proc", "/".join(rest[:length]), length + 1
        if rest[:2] == ["self", "net"]:
            yield "proc", "/".join(rest[1:]), len(parts)
    elif parts[0] == "sys":
        for length in range(len(parts), 1, -1):
            yield "sysfs", "/".join(parts[1:length]), length


def subsystem(path: str) -> str:
    """Return the part of the source tree that a file belongs to: its top folder, and of drivers and architectures the
    one below. It is empty for a file at the top."""
    parts = posixpath.dirname(path).split("/")
    return "/".join(parts[:2] if parts[0] in ("arch", "drivers") else parts[:1])
