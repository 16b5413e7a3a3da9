# SPDX-License-Identifier: Apache-2.0
"""Rules of `data/demand/*.toml`: what calls and paths ask for, where the kernel's source does not tell by itself.

[[call]]
id      = "file-locks"             # unique
kind    = "flag"                   # kind of the evidence (model/evidence.py)
calls   = ["fcntl"]
words   = ["F_SETLK", "F_GETLK"]   # any of these stands in the arguments; may be left out
text    = '"tls"'                  # a regular expression that the arguments, joined by ", ", contain; may be left out
kernel  = ">=6.6"                  # bounds of versions; may be left out
arch    = ["NAME"]                 # on these processors only; may be left out
only_seen = true                   # that a program could is no reason, only that one did; may be left out
symbols = ["FILE_LOCKING"]
reason  = "why"

[[path]]
id      = "cgroup-files"
paths   = ["/sys/fs/cgroup"]       # it and all below; * stands for part of one name; below x/* is also x itself
symbols = ["CGROUPS"]
reason  = "why"

[[argument]]
calls     = ["setsockopt"]         # system calls, and the C functions of these names
functions = ["prlimit"]            # the C functions, where they are called otherwise; may be left out
position  = 2                      # of the words of rules, from 0
level     = 1                      # of the word that says whose the option is; may be left out
begins    = ["SO_", "TCP_"]        # how the words begin that stand there; may be left out

[[company]]
calls  = ["futex"]                 # mean nothing in a program that, read whole, makes none of the others
others = ["clone", "clone3"]
reason = "why"

[[untold]]
calls  = ["socket"]                # where the code does not tell their first argument
words  = ["AF_INET", "AF_INET6"]   # what counts as asked for
reason = "why"

[[harmless]]                       # what a program could ask for, and is no reason: it does without
id     = "login-name"
paths  = ["/proc/self/loginuid"]   # as in [[path]]: where a C library looks; may be left out
named  = true                      # those paths, too, that a file names itself; false when left out
calls  = ["mbind"]                 # system calls; may be left out
reason = "why"
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from vmtailor.analysis.changes.symbol_catalogue import in_bounds
from vmtailor.analysis.demands.call_paths import wide
from vmtailor.base.bounded_patterns import bounded
from vmtailor.base.files import toml_files
from vmtailor.model.architecture import Architecture, NarrowPrograms, presumed
from vmtailor.model.evidence import EvidenceKind
from vmtailor.model.syscalls import SyscallEvent

_WORDS = re.compile(r"[A-Z][A-Z0-9_]+")
_STRING = re.compile(r'(?<!\\)"(?:\\.|[^"\\])*+"', re.S)


def path_pattern(path: str) -> re.Pattern[str]:
    """Return the pattern that matches a path of a rule, and all below it; * stands for part of one name. A folder whose
    content is named (`/x/*`) counts itself, too: a program that looks into it misses it first."""
    whole = path.removesuffix("/*")
    text = re.escape(whole).replace(r"\*", "[^/]*").replace(r"\[", "[").replace(r"\]", "]").replace(r"\-", "-")
    return re.compile(rf"{text}(?:/.*)?\Z", re.S)


@dataclass(frozen=True)
class CallRule:
    id: str
    calls: tuple[str, ...]
    symbols: tuple[str, ...]
    reason: str
    kind: EvidenceKind = EvidenceKind.FLAG
    words: tuple[str, ...] = ()
    text: str = ""
    kernel: str = ""
    arch: tuple[str, ...] = ()
    only_seen: bool = False

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(bounded(self.text))

    def asks(self, arguments: str) -> bool:
        """Return whether arguments, joined by ", ", are of its pattern."""
        return self._pattern.search(arguments) is not None

    def match(self, event: SyscallEvent) -> str | None:
        """Return what a call asks for by this rule (a word, or the rule's id), or None."""
        joined = ", ".join(event.args)
        if self.text and not self.asks(joined):
            return None
        if not self.words:
            return self.id
        found = set(_WORDS.findall(_STRING.sub("", joined)))
        return next((w for w in self.words if w in found), None)


class PathPatterns:
    """A row of data whose `paths` are patterns of rules."""

    paths: tuple[str, ...]

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(path_pattern(path) for path in self.paths)

    def covers(self, path: str) -> bool:
        """Return whether one of the patterns matches a path."""
        return any(pattern.match(path) for pattern in self._patterns)


@dataclass(frozen=True)
class PathRule(PathPatterns):
    id: str
    paths: tuple[str, ...]
    reason: str
    symbols: tuple[str, ...] = ()
    kernel: str = ""

    def length(self, path: str) -> int:
        """Return how many parts of a path the longest matching pattern covers; 0 when none does."""
        parts = (named.count("/") for named, p in zip(self.paths, self._patterns, strict=True) if p.match(path))
        return max(parts, default=0)


@dataclass(frozen=True)
class ArgumentRule:
    """The positions of the words of rules in calls of C functions."""

    calls: tuple[str, ...]
    position: int
    functions: tuple[str, ...] = ()
    level: int | None = None
    begins: tuple[str, ...] = ()

    def has(self, word: str) -> bool:
        """Return whether a word may stand there."""
        return not self.begins or word.startswith(self.begins)


@dataclass(frozen=True)
class CompanyRule:
    """System calls that mean nothing in a program that makes none of the others."""

    calls: tuple[str, ...]
    others: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class UntoldRule:
    """The words that count as asked for where code does not tell a call's first argument."""

    calls: tuple[str, ...]
    words: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class HarmlessRule(PathPatterns):
    """Requests of a program that are no reason: paths, where a C library names them or (`named`) any file, and system
    calls."""

    id: str
    reason: str
    paths: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    named: bool = False


def _check(row: dict[str, Any]) -> None:
    in_bounds(row.get("kernel", ""), "1")
    try:
        re.compile(row.get("text", ""))
    except re.error as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True)
class Rules:
    calls: tuple[CallRule, ...] = toml_files.table("call", CallRule, _check)
    paths: tuple[PathRule, ...] = toml_files.table("path", PathRule, _check)
    arguments: tuple[ArgumentRule, ...] = toml_files.table("argument", ArgumentRule)
    company: tuple[CompanyRule, ...] = toml_files.table("company", CompanyRule)
    harmless: tuple[HarmlessRule, ...] = toml_files.table("harmless", HarmlessRule)
    untold: tuple[UntoldRule, ...] = toml_files.table("untold", UntoldRule)
    #: Kinds of programs of 32 bits; empty where no processor of the family executes any.
    of_32_bits: tuple[NarrowPrograms, ...] = ()
    _by_call: dict[str, tuple[CallRule, ...]] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        for rule in self.calls:
            for call in rule.calls:
                self._by_call[call] = (*self._by_call.get(call, ()), rule)

    def for_narrow(self, machine: int, flags: int) -> tuple[str, ...]:
        """Return what a kernel needs in order to execute a program of 32 bits, by these numbers of its header."""
        return next((one.symbols for one in self.of_32_bits if one.is_of(machine, flags)), ())

    def for_call(self, name: str) -> tuple[CallRule, ...]:
        return self._by_call.get(name) or self._by_call.get(wide(name), ())

    def for_kernel(self, version: str) -> Rules:
        """Return the rules that hold for a kernel version."""
        return replace(
            self,
            calls=tuple(r for r in self.calls if in_bounds(r.kernel, version)),
            paths=tuple(r for r in self.paths if in_bounds(r.kernel, version)),
        )


def load(folder: Traversable | Path | None = None, architecture: Architecture | None = None) -> Rules:
    """Return all rules that come with the program, or those of `folder`, for an architecture. Raises UserInputError as
    `toml_files.load` does."""
    architecture = architecture or presumed()
    found = toml_files.load(Rules, "demand", folder)
    calls = tuple(rule for rule in found.calls if architecture.name in (rule.arch or (architecture.name,)))
    return replace(found, calls=calls, of_32_bits=architecture.kernel.of_32_bits)
