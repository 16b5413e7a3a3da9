# SPDX-License-Identifier: Apache-2.0
"""Find the requests of each file: by its imports in the C library that it gets, by its own code, by its own strings."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vmtailor.analysis.demands.demand_rules import ArgumentRule, CallRule, Rules
from vmtailor.analysis.demands.request_symbols import CREDENTIALS
from vmtailor.analysis.reach.c_library import CLibraries
from vmtailor.analysis.reach.contents import Contents, FileKind, Given, WantedNames
from vmtailor.analysis.reach.file_links import Links
from vmtailor.model.evidence import EvidenceKind
from vmtailor.model.reach import Ask

_SOCKETS = frozenset({"socket", "socketpair"})
_EXECUTING = frozenset({"execve", "execveat"})
_PSEUDO = ("/proc/", "/sys/", "/dev/")
#: Parts that programs fill in when they run: a process of /proc, and any part of another path.
_PROCESS = re.compile(r"^/proc/%[a-z]+(?=/|\Z)")
_FILLED = re.compile(r"/[^/]*%.*")
#: Constants that are bits of an argument, by how they begin.
_BITS = ("CLONE_", "MAP_", "SHM_", "MFD_")
_SOCKET_TYPE = 0xF
_SHARED = 0o6000


@dataclass(frozen=True)
class KernelNames:
    """The names in the kernel's source. `calls`: number → name of a system call; `constants`: word → value; `families`:
    of sockets, with AF_; `protocols`: as facts have them (`STREAM/TCP`); `netlink`: without NETLINK_."""

    calls: Mapping[int, str]
    constants: Mapping[str, int]
    families: frozenset[str] = frozenset()
    protocols: frozenset[str] = frozenset()
    netlink: frozenset[str] = frozenset()


def wanted(rules: Rules, families: Iterable[str]) -> WantedNames:
    """Return the names to look for in files, by the rules. `families`: with AF_."""
    words = {word for rule in rules.calls for word in rule.words}
    functions = {name for rule in rules.arguments for name in (*rule.functions, *rule.calls)} | _SOCKETS
    return WantedNames(frozenset(words) | frozenset(families), frozenset(f for name in functions for f in _spelt(name)))


def _spelt(name: str) -> tuple[str, ...]:
    """Return the names that C libraries give a function: with 64 for large files, with underscores for internal use.
    The function that takes any call's number is one of them."""
    return name, f"{name}64", f"__{name}", "syscall"


def _plain(function: str) -> str:
    return function.strip("_").removesuffix("64")


@dataclass
class Asks:
    """`script`: a script of the image that can be executed, or empty."""

    libraries: CLibraries
    kernel: KernelNames
    rules: Rules
    script: str = ""

    @property
    def links(self) -> Links:
        return self.libraries.links

    def of(self, path: str) -> tuple[Ask, ...]:
        """Return all requests of a file, each once: the plainest way to it comes first."""
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
            numbers = f"{one.machine}:{one.flags}"
            yield Ask(EvidenceKind.BINARY_FORMAT, "ELF32", argument=numbers, by="is a 32-bit program")

    # ---- system calls

    def _calls(self, path: str, one: Contents) -> Iterator[Ask]:
        if one.kind is not FileKind.ELF:
            return
        for name, lead in self.libraries.ways(path):
            for number in lead.numbers:
                yield from self._call(number, f"imports {name}")
            for text in lead.strings:
                if not any(rule.covers(text) for rule in self.rules.harmless):
                    yield from _path(text, f"imports {name}")
        own = [(self.kernel.calls.get(number, ""), number, address) for number, address in one.own.numbers]
        alone = self._alone({name for name, _, _ in own}) if not one.imports and not one.needed else frozenset()
        for name, number, address in own:
            if name not in alone:
                yield from self._call(number, f"has code at {address:#x}")
        for text in one.own.strings:
            yield from _path(text, f'names "{text}"')
        scope = self.libraries.scope(path)
        takers = {name: place for other in scope for name, place in self.links.contents[other].takers}
        for given in one.given:
            constants = dict(given.constants)
            if given.name in takers and takers[given.name] in constants:
                by = f"calls {given.name} at {given.address:#x}"
                yield from self._call(constants[takers[given.name]] & 0xFFFFFFFF, by)
            yield from self._told(given)

    def _alone(self, calls: set[str]) -> frozenset[str]:
        """Return the calls that mean nothing in a program, read whole, that makes these."""
        found = (name for rule in self.rules.company if not calls & set(rule.others) for name in rule.calls)
        return frozenset(found)

    def _call(self, number: int, by: str) -> Iterator[Ask]:
        name = self.kernel.calls.get(number)
        if name is not None:
            kind = EvidenceKind.CREDENTIAL if name in CREDENTIALS else EvidenceKind.SYSCALL
            yield Ask(kind, name, name, by=by)
            if self.script and name in _EXECUTING:
                yield Ask(EvidenceKind.BINARY_FORMAT, "#!", by=f"{by}, and {self.script} is a script")

    # ---- arguments

    def _told(self, given: Given) -> Iterator[Ask]:
        """Return the meaning of the constants of one call."""
        constants, by = dict(given.constants), f"calls {given.name} at {given.address:#x}"
        plain = _plain(given.name)
        if plain in _SOCKETS:
            yield from self._socket(plain, constants, by)
        for rule in self.rules.arguments:
            if plain not in (rule.functions or rule.calls):
                continue
            for call in rule.calls if rule.position in constants else ():
                if rule.functions or call == plain:
                    yield from self._words(call, rule, constants, by)

    def _words(self, call: str, place: ArgumentRule, constants: Mapping[int, int], by: str) -> Iterator[Ask]:
        level = None if place.level is None else constants.get(place.level)
        for rule in self.rules.for_call(call):
            for word in filter(place.has, rule.words):
                known = self.kernel.constants.get(word)
                if known is None or not _is(word, known, constants[place.position]):
                    continue
                if level is None or self._level(word) in (None, level & 0xFFFFFFFF):
                    yield _flag(rule, call, word, by)

    def _level(self, word: str) -> int | None:
        """Return the level that a word is an option of, where the headers have a level of that name."""
        prefix = word.partition("_")[0]
        named = ("SOL_SOCKET",) if prefix == "SO" else (f"IPPROTO_{prefix}", f"SOL_{prefix}")
        return next((self.kernel.constants[name] for name in named if name in self.kernel.constants), None)

    def _socket(self, call: str, constants: Mapping[int, int], by: str) -> Iterator[Ask]:
        kernel = self.kernel
        if 0 not in constants:
            for word in dict.fromkeys(w for rule in self.rules.untold if call in rule.calls for w in rule.words):
                yield Ask(
                    kind=EvidenceKind.SOCKET, key=word, call=call, argument=word, by=f"{by}, the family is not told"
                )
        family = next((f for f in sorted(kernel.families) if kernel.constants.get(f) == constants.get(0)), "")
        if not family:
            return
        yield Ask(kind=EvidenceKind.SOCKET, key=family, call=call, argument=family, by=by)
        kind, protocol = constants.get(1), constants.get(2)
        if family == "AF_NETLINK":
            names = (n for n in sorted(kernel.netlink) if kernel.constants.get(f"NETLINK_{n}") == protocol)
        elif kind is None or protocol is None:
            return
        else:
            names = (p for p in sorted(kernel.protocols) if self._is_protocol(p, kind & _SOCKET_TYPE, protocol))
        for name in names:
            yield Ask(kind=EvidenceKind.SOCKET, key=f"{family}/{name}", call=call, argument=f"{family}, {name}", by=by)

    def _is_protocol(self, name: str, kind: int, protocol: int) -> bool:
        style, _, word = name.partition("/")
        constants = self.kernel.constants
        return constants.get(f"SOCK_{style}") == kind and constants.get(f"IPPROTO_{word}") == protocol

    # ---- strings

    def _strings(self, one: Contents) -> Iterator[Ask]:
        for name in one.paths:
            yield from _path(name, f'names "{name}"')
        called = {_plain(name) for name in (*one.imports, *(given.name for given in one.given))}
        if called & _SOCKETS:
            for word in one.words:
                if word in self.kernel.families:
                    yield Ask(kind=EvidenceKind.SOCKET, key=word, call="socket", argument=word, by=f'names "{word}"')
        for place in self.rules.arguments:
            if called & set(place.functions):
                called |= set(place.calls)
        for rule in self.rules.calls:
            calls = [name for name in rule.calls if name in called]
            if calls:
                yield from self._by_name(rule, calls, one)

    def _by_name(self, rule: CallRule, calls: list[str], one: Contents) -> Iterator[Ask]:
        """Yield a rule's words, and strings of its pattern, in a file that makes the call: interpreters name them
        so."""
        strings = [name for name in one.names if '"' in rule.text and rule.asks(f'"{name}"')]
        if not rule.words:
            for name in strings:
                yield _flag(rule, calls[0], f'"{name}"', f'names "{name}"')
        for word in rule.words:
            call = next((call for call in calls if self._takes(call, word)), "")
            if call and word in one.words:
                yield _flag(rule, call, ", ".join([word, *(f'"{name}"' for name in strings[:1])]), f'names "{word}"')

    def _takes(self, call: str, word: str) -> bool:
        """Return whether a call takes a word, as far as the position of its words is known."""
        places = [place for place in self.rules.arguments if call in place.calls]
        return not places or any(place.has(word) for place in places)


def _path(path: str, by: str) -> Iterator[Ask]:
    """Yield a path of /proc, /sys or /dev that is named, as far as it is told."""
    if path.startswith(_PSEUDO):
        told = _FILLED.sub("", _PROCESS.sub("/proc/self", path))
        yield Ask(EvidenceKind.PSEUDO_FILE, posixpath.normpath(told), by=by)


def _is(word: str, known: int, value: int) -> bool:
    known, value = known & 0xFFFFFFFF, value & 0xFFFFFFFF
    return known & value == known and known > 0 if word.startswith(_BITS) else known == value


def _flag(rule: CallRule, call: str, argument: str, by: str) -> Ask:
    return Ask(kind=rule.kind, key=f"{call}({argument})", call=call, argument=argument, by=by)
