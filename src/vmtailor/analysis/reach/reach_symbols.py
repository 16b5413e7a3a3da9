# SPDX-License-Identifier: Apache-2.0
"""The configuration symbols that an image's reach leads to, and those of them that a kernel lacks."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmtailor.analysis.demands.demand_rules import CallRule, Rules
from vmtailor.analysis.demands.request_symbols import AskedSymbols, family_name
from vmtailor.analysis.ksource.expr import Enabled
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.model.evidence import Evidence, EvidenceKind, Strength
from vmtailor.model.reach import NEARNESS, Ask, Lack, Reach, ReachedFile

if TYPE_CHECKING:  # it brings numpy
    from vmtailor.analysis.cost.attribution import SymbolCost

#: Key of a binary format or a credential → the symbols that it takes.
_FORMATS = {"#!": ("BINFMT_SCRIPT",), "ELF": ("BINFMT_ELF",)}
_OF_32_BITS = "ELF32"
_CREDENTIALS = {"setuid": ("MULTIUSER",), "file capabilities": ("MULTIUSER",)}


@dataclass(frozen=True)
class Reached:
    """One ask of one file, the symbols that it takes, and why, in a sentence: "python3.11 imports setitimer"."""

    file: ReachedFile
    ask: Ask
    symbols: tuple[str, ...]
    text: str

    @property
    def reference(self) -> str:
        """Return the reference of a reason in the plan: `image:/usr/bin/x`."""
        return f"image:{self.file.path}"

    @property
    def evidence(self) -> Evidence:
        return Evidence(
            kind=self.ask.kind,
            key=self.ask.key,
            strength=Strength.REACHABLE,
            where=self.reference,
            count=1,
            detail=self.ask.by,
        )


def of_reach(reach: Reach, facts: Facts, rules: Rules, baseline: Enabled) -> tuple[Reached, ...]:
    """Return the asks of an image that take symbols, in the order of its files: the nearest first."""
    asked = AskedSymbols(facts, rules.for_kernel(facts.kernel_version), baseline)
    known: dict[tuple[EvidenceKind, str, str, str], tuple[str, ...]] = {}
    found = []
    for file in reach.files:
        for ask in file.asks:
            key = (ask.kind, ask.key, ask.call, ask.argument)
            if key not in known:
                known[key] = _symbols(ask, asked)
            if known[key]:
                found.append(Reached(file, ask, known[key], sentence(file, ask)))
    return tuple(found)


def sentence(file: ReachedFile, ask: Ask) -> str:
    """Return why a file could ask for it: "python3.11 imports alarm, which leads to setitimer"."""
    said = f"{posixpath.basename(file.path)} {ask.by}" if ask.by else file.path
    verb, _, symbol = ask.by.partition(" ")
    if ask.kind in (EvidenceKind.BINARY_FORMAT, EvidenceKind.CREDENTIAL) and not ask.call:
        return said
    if verb == "imports" and symbol != ask.key:
        return f"{said}, which leads to {ask.key}"
    return said if ask.key in ask.by else f"{said}: {ask.key}"


def _symbols(ask: Ask, asked: AskedSymbols) -> tuple[str, ...]:
    wanted: list[str] = []
    for one in _ways(ask, asked):
        if all(symbol in asked.baseline for symbol in one):
            wanted += one
    return tuple(dict.fromkeys(wanted))


def _ways(ask: Ask, asked: AskedSymbols) -> Iterable[tuple[str, ...]]:
    """Yield the symbols by each way in which an ask is told."""
    if ask.kind is EvidenceKind.BINARY_FORMAT:
        yield _of_narrow(ask, asked.rules) if ask.key == _OF_32_BITS else _FORMATS.get(ask.key, ())
    elif ask.kind is EvidenceKind.PSEUDO_FILE and not _is_harmless(ask, asked.rules):
        yield from (symbols for _, symbols, _ in asked.path(ask.key))
    elif ask.kind is EvidenceKind.CREDENTIAL and not ask.call:
        yield _CREDENTIALS.get(ask.key, ())
    elif ask.kind is EvidenceKind.FILESYSTEM:
        yield asked.named("filesystem", ask.key)
    elif ask.kind is EvidenceKind.SOCKET and ask.key.startswith("AF_"):
        word, _, protocol = ask.key.partition("/")
        family = family_name(word)
        if not ask.by.startswith("names ") or _is_built_in(asked.family(family), asked.baseline):
            yield asked.protocol(family, protocol) if protocol else asked.family(family)
    elif not ask.argument and not _is_harmless(ask, asked.rules):
        yield asked.call(ask.call or ask.key)
    for rule in asked.rules.for_call(ask.call):
        if not rule.only_seen and _holds(rule, ask.argument):
            yield rule.symbols


def _of_narrow(ask: Ask, rules: Rules) -> tuple[str, ...]:
    machine, _, flags = ask.argument.partition(":")
    return rules.for_narrow(int(machine or 0), int(flags or 0))


def _is_harmless(ask: Ask, rules: Rules) -> bool:
    """Return whether a program that could make a call, or names a path, does without it."""
    if ask.kind is EvidenceKind.PSEUDO_FILE:
        return any(rule.named and rule.covers(ask.key) for rule in rules.harmless)
    return any((ask.call or ask.key) in rule.calls for rule in rules.harmless)


def _is_built_in(symbols: Iterable[str], baseline: Enabled) -> bool:
    """Return whether none of them is a module of the baseline. Interpreters name every family that there is: a mere
    name is no reason to build in code that the baseline would have had to load."""
    return not isinstance(baseline, Mapping) or all(baseline.get(symbol) != "m" for symbol in symbols)


def _holds(rule: CallRule, argument: str) -> bool:
    """Return whether a rule applies to the known arguments of a call. Its pattern over other arguments than strings
    cannot be checked, since too few of them are known: there the word alone decides."""
    words = argument.replace(",", " ").split()
    if not rule.words:
        return bool(rule.asks(argument)) if '"' in rule.text else not rule.text and not argument
    return any(word in words for word in rule.words) and ('"' not in rule.text or rule.asks(argument))


#: Calls and files that are named of one symbol, and symbols in all.
MOST_KEYS, MOST_FILES, MOST_LACKS = 12, 8, 200


def lacks(
    reached: Iterable[Reached], enabled: Set[str], ran: Mapping[str, SymbolCost], most: int = MOST_LACKS
) -> tuple[Lack, ...]:
    """Return the requests whose symbols are not all in `enabled`, by the first symbol that is missing. The nearest come
    first, then those that most files could make. `ran`: symbol → what its code cost on the baseline."""
    found: dict[str, list[Reached]] = {}
    for one in reached:
        gone = [name for name in one.symbols if name not in enabled]
        if gone:
            found.setdefault(gone[0], []).append(one)
    rows = [_lack(name, asks, enabled, ran) for name, asks in found.items()]
    rows.sort(key=lambda row: (NEARNESS.index(row.nearness), -len(row.files) - row.more_files, row.symbol))
    return tuple(rows[:most])


def _lack(name: str, asks: list[Reached], enabled: Set[str], ran: Mapping[str, SymbolCost]) -> Lack:
    asks = sorted(asks, key=lambda one: NEARNESS.index(one.file.nearness))  # stable: within it, as they were found
    keys = list(dict.fromkeys(one.ask.key for one in asks))
    files = list(dict.fromkeys(one.file.path for one in asks))
    symbols = tuple(dict.fromkeys(symbol for one in asks for symbol in one.symbols if symbol not in enabled))
    costs = [ran[symbol].to_init_net for symbol in symbols if symbol in ran]
    return Lack(
        symbol=name,
        symbols=symbols,
        nearness=asks[0].file.nearness,
        keys=tuple(keys[:MOST_KEYS]),
        files=tuple(files[:MOST_FILES]),
        text=asks[0].text,
        more_keys=max(0, len(keys) - MOST_KEYS),
        more_files=max(0, len(files) - MOST_FILES),
        to_init=sum(costs) if costs else None,
    )
