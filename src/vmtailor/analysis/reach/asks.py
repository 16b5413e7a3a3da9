# SPDX-License-Identifier: Apache-2.0
"""What each file asks for: what its imports lead to in the C library that it gets, its own code, its own strings."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from vmtailor.analysis.demands.asked_symbols import CREDENTIALS
from vmtailor.analysis.demands.demand_rules import CallRule, Rules
from vmtailor.analysis.reach.contents import Called, Contents, FileKind, Given, Wanted
from vmtailor.analysis.reach.linking import Links
from vmtailor.model.evidence import EvidenceKind
from vmtailor.model.reach import Ask

_SOCKETS = frozenset({"socket", "socketpair"})
#: Constants that are bits of an argument, by how they begin.
_BITS = ("CLONE_", "MAP_", "SHM_", "MFD_")
_SOCKET_TYPE = 0xF
_SHARED = 0o6000
_DEEPEST = 8


@dataclass(frozen=True)
class KernelNames:
    """What the kernel's source calls things: `calls`: number → name of a system call; `constants`: word → value;
    `families`: of sockets, with AF_; `protocols`: as facts have them (`STREAM/TCP`); `netlink`: without NETLINK_."""

    calls: Mapping[int, str]
    constants: Mapping[str, int]
    families: frozenset[str] = frozenset()
    protocols: frozenset[str] = frozenset()
    netlink: frozenset[str] = frozenset()


def wanted(rules: Rules, families: Iterable[str]) -> Wanted:
    """What to look for in files, by the rules that there are. `families`: with AF_."""
    words = {word for rule in rules.calls for word in rule.words}
    functions = {name for rule in rules.arguments for name in (*rule.functions, *rule.calls)}
    return Wanted(frozenset(words) | frozenset(families), frozenset(f for name in functions for f in _spelt(name)))


def _spelt(name: str) -> tuple[str, ...]:
    """How C libraries spell a function: with 64 for large files, with underscores for themselves. And the one that
    takes any call's number."""
    return name, f"{name}64", f"__{name}", "syscall"


def _plain(function: str) -> str:
    return function.strip("_").removesuffix("64")


@dataclass
class Asks:
    links: Links
    kernel: KernelNames
    rules: Rules
    _libraries: dict[tuple[str, ...], dict[str, Called]] = field(default_factory=dict)
    _leads: dict[tuple[tuple[str, ...], str], dict[int, None]] = field(default_factory=dict)

    def of(self, path: str) -> tuple[Ask, ...]:
        """All asks of a file, each once: the plainest way to it comes first."""
        one = self.links.contents[path]
        found: dict[tuple[EvidenceKind, str, str], Ask] = {}
        for ask in (*self._credentials(path), *self._of_kind(one), *self._calls(path, one), *self._strings(one)):
            found.setdefault((ask.kind, ask.key, ask.argument), ask)
        return tuple(found.values())

    def _credentials(self, path: str) -> Iterator[Ask]:
        mode = self.links.files.modes.get(path, 0)
        if mode & _SHARED and mode & 0o111:
            yield Ask(EvidenceKind.CREDENTIAL, "setuid", by=f"is set{'uid' if mode & 0o4000 else 'gid'}")
        if path in self.links.files.capable:
            yield Ask(EvidenceKind.CREDENTIAL, "file capabilities", by="has file capabilities")

    def _of_kind(self, one: Contents) -> Iterator[Ask]:
        if one.kind is FileKind.SCRIPT:
            yield Ask(EvidenceKind.BINARY_FORMAT, "#!", by="is a script")
        elif one.kind is FileKind.ELF32:
            yield Ask(EvidenceKind.BINARY_FORMAT, "ELF32", by="is a 32-bit program")

    # ---- system calls

    def _calls(self, path: str, one: Contents) -> Iterator[Ask]:
        if one.kind is not FileKind.ELF:
            return
        scope = self._scope(path)
        ways = [(name, self._numbers(scope, name)) for name in one.imports] if one.functions is None else []
        for name, numbers in sorted(ways, key=lambda way: (len(way[1]), way[0])):
            for number in numbers:
                yield from self._call(number, f"imports {name}")
        for name in one.own.names:
            for number in self._numbers(scope, name):
                yield from self._call(number, f"imports {name}")
        for number, address in one.own.numbers:
            yield from self._call(number, f"has code at {address:#x}")
        takers = {name: place for other in scope for name, place in self.links.contents[other].takers}
        for given in one.given:
            constants = dict(given.constants)
            if given.name in takers and takers[given.name] in constants:
                by = f"calls {given.name} at {given.address:#x}"
                yield from self._call(constants[takers[given.name]] & 0xFFFFFFFF, by)
            yield from self._told(given)

    def _call(self, number: int, by: str) -> Iterator[Ask]:
        name = self.kernel.calls.get(number)
        if name is not None:
            kind = EvidenceKind.CREDENTIAL if name in CREDENTIALS else EvidenceKind.SYSCALL
            yield Ask(kind, name, name, by=by)

    def _scope(self, path: str) -> tuple[str, ...]:
        """The C libraries that a file's imports are found in: those of what it needs, and for what needs none (it is
        loaded into a program that does) all of the image."""
        contents = self.links.contents
        own = tuple(p for p in self.links.scope(path) if contents[p].functions is not None)
        if any(p != path for p in own) or contents[path].functions is not None or not contents[path].imports:
            return own
        return tuple(p for p, one in contents.items() if one.functions is not None)

    def _numbers(self, scope: tuple[str, ...], name: str) -> dict[int, None]:
        """The system calls that a function of the C libraries leads to."""
        key = (scope, name)
        if key not in self._leads:
            table = self._table(scope)
            found: dict[int, None] = {}
            seen, fresh = {name}, [name]
            for _ in range(_DEEPEST):
                reached = [table[one] for one in fresh if one in table]
                found.update(dict.fromkeys(number for one in reached for number, _ in one.numbers))
                fresh = [other for one in reached for other in one.names if other not in seen]
                seen.update(fresh)
            self._leads[key] = found
        return self._leads[key]

    def _table(self, scope: tuple[str, ...]) -> dict[str, Called]:
        if scope not in self._libraries:
            table: dict[str, Called] = {}
            for path in scope:
                one = self.links.contents[path]
                for name, place in (one.functions or {}).items():
                    table.setdefault(name, one.called[place])
            self._libraries[scope] = table
        return self._libraries[scope]

    # ---- arguments

    def _told(self, given: Given) -> Iterator[Ask]:
        """What the constants of one call mean."""
        constants, by = dict(given.constants), f"calls {given.name} at {given.address:#x}"
        plain = _plain(given.name)
        if plain in _SOCKETS:
            yield from self._socket(plain, constants, by)
        for rule in self.rules.arguments:
            if plain not in (rule.functions or rule.calls):
                continue
            value = constants.get(rule.position)
            for call in rule.calls if value is not None else ():
                if rule.functions or call == plain:
                    yield from self._words(
                        call, value or 0, constants.get(rule.level or -1), rule.level is not None, by
                    )

    def _words(self, call: str, value: int, level: int | None, levelled: bool, by: str) -> Iterator[Ask]:
        for rule in self.rules.for_call(call):
            for word in rule.words:
                known = self.kernel.constants.get(word)
                if known is None or not _is(word, known, value):
                    continue
                if not levelled or level is None or self._level(word) in (None, level & 0xFFFFFFFF):
                    yield _flag(rule, call, word, by)

    def _level(self, word: str) -> int | None:
        """Whose option a word is, where the headers have a level of that name."""
        prefix = word.partition("_")[0]
        named = ("SOL_SOCKET",) if prefix == "SO" else (f"IPPROTO_{prefix}", f"SOL_{prefix}")
        return next((self.kernel.constants[name] for name in named if name in self.kernel.constants), None)

    def _socket(self, call: str, constants: Mapping[int, int], by: str) -> Iterator[Ask]:
        kernel = self.kernel
        family = next((f for f in sorted(kernel.families) if kernel.constants.get(f) == constants.get(0)), "")
        if not family:
            return
        yield Ask(EvidenceKind.SOCKET, family, call, family, by)
        kind, protocol = constants.get(1), constants.get(2)
        if family == "AF_NETLINK":
            names = (n for n in sorted(kernel.netlink) if kernel.constants.get(f"NETLINK_{n}") == protocol)
        elif kind is None or protocol is None:
            return
        else:
            names = (p for p in sorted(kernel.protocols) if self._is_protocol(p, kind & _SOCKET_TYPE, protocol))
        for name in names:
            yield Ask(EvidenceKind.SOCKET, f"{family}/{name}", call, f"{family}, {name}", by)

    def _is_protocol(self, name: str, kind: int, protocol: int) -> bool:
        style, _, word = name.partition("/")
        constants = self.kernel.constants
        return constants.get(f"SOCK_{style}") == kind and constants.get(f"IPPROTO_{word}") == protocol

    # ---- strings

    def _strings(self, one: Contents) -> Iterator[Ask]:
        if one.functions is None:
            for name in one.paths:
                yield Ask(EvidenceKind.PSEUDO_FILE, posixpath.normpath(name), by=f'names "{name}"')
        called = {_plain(name) for name in (*one.imports, *(given.name for given in one.given))}
        if called & _SOCKETS:
            for word in one.words:
                if word in self.kernel.families:
                    yield Ask(EvidenceKind.SOCKET, word, "socket", word, f'names "{word}"')
        for place in self.rules.arguments:
            if called & set(place.functions):
                called |= set(place.calls)
        for rule in self.rules.calls:
            call = next((name for name in rule.calls if name in called), "")
            if call:
                yield from self._by_name(rule, call, one)

    @staticmethod
    def _by_name(rule: CallRule, call: str, one: Contents) -> Iterator[Ask]:
        """A rule's words, and strings of its pattern, in a file that makes the call: interpreters name them so."""
        strings = [name for name in one.names if '"' in rule.text and rule.asks(f'"{name}"')]
        if not rule.words:
            for name in strings:
                yield _flag(rule, call, f'"{name}"', f'names "{name}"')
        for word in rule.words:
            if word in one.words:
                yield _flag(rule, call, ", ".join([word, *(f'"{name}"' for name in strings[:1])]), f'names "{word}"')


def _is(word: str, known: int, value: int) -> bool:
    known, value = known & 0xFFFFFFFF, value & 0xFFFFFFFF
    return known & value == known and known > 0 if word.startswith(_BITS) else known == value


def _flag(rule: CallRule, call: str, argument: str, by: str) -> Ask:
    return Ask(rule.kind, f"{call}({argument})", call, argument, by)
