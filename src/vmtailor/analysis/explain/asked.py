# SPDX-License-Identifier: Apache-2.0
"""What a kernel tree can be asked for by name beyond its facts, as one record, made once a tree and kept."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vmtailor.analysis.explain import asked_names
from vmtailor.analysis.ksource import facts as ksource_facts
from vmtailor.analysis.ksource import kbuild
from vmtailor.analysis.ksource.conditions import line_conditions
from vmtailor.analysis.ksource.expr import FALSE, TRUE, Expr, conjunction, disjunction, negation
from vmtailor.analysis.ksource.expr_text import parse
from vmtailor.analysis.ksource.facts import Facts, Place
from vmtailor.analysis.ksource.make_values import Reader
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.files import records
from vmtailor.base.words.modules import module_name
from vmtailor.model.architecture import Architecture, presumed

#: Change when a finder changes, so that what is stored is made again.
FORMAT = "3"
#: Folders searched in addition to those of the facts: what maps disks, and buses between machines.
_MORE = ("drivers/md", "drivers/android", "drivers/net/can/vcan.c", "drivers/net/can/vxcan.c", "drivers/virtio")
_HEADERS = ("include/linux", "include/net", "fs", "kernel", "mm", "net", "ipc")
_UAPI = ("include/uapi/linux", "include/uapi/asm-generic")
#: Families, protocols and errors with their numbers: kind → (file, what a line is).
_NUMBERED = (
    ("family", "include/linux/socket.h", re.compile(r"^[ \t]*#[ \t]*define[ \t]+AF_(\w+)[ \t]+(\d+)", re.M)),
    ("protocol", "include/uapi/linux/in.h", re.compile(r"^[ \t]*IPPROTO_(\w+)[ \t]*=[ \t]*(\d+)", re.M)),
    (
        "netlink",
        "include/uapi/linux/netlink.h",
        re.compile(r"^[ \t]*#[ \t]*define[ \t]+NETLINK_(\w+)[ \t]+(\d+)", re.M),
    ),
    ("type", "include/linux/net.h", re.compile(r"^[ \t]*SOCK_(\w+)[ \t]*=[ \t]*(\d+)", re.M)),
)
_ERRNO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(E[A-Z0-9]+)[ \t]+(\d+)", re.M)
_MOST_PLACES = 12


@dataclass(frozen=True)
class AskedNames:
    """`names`: kind → name → places, as in the facts; `numbers`: kind (family, protocol, netlink, type, errno) → name →
    number."""

    SCHEMA: ClassVar[str] = "vmtailor/asked/1"

    kernel_version: str
    names: dict[str, dict[str, tuple[Place, ...]]]
    numbers: dict[str, dict[str, int]]

    def places(self, kind: str, name: str) -> tuple[Place, ...]:
        return self.names.get(kind, {}).get(name, ())

    def name_of(self, kind: str, number: int) -> str:
        """The first name with that number; empty for none."""
        return next((name for name, value in self.numbers.get(kind, {}).items() if value == number), "")


def collect(
    facts: Facts, read: Reader, sources: Iterable[str], headers: Iterable[str], row: Architecture | None = None
) -> AskedNames:
    """Search a tree. `sources`: its C files; `headers`: those for programs, and those with what stands for code that is
    not compiled. Pure but for what `read` does."""
    row = row or presumed()
    search = _Search(facts, row.kernel.source)
    for path in headers:
        search.header(path, read(path) or "")
    for path in sources:
        search.source(path, read(path) or "")
    for name, condition in kbuild.modules(read, row.kernel.source).items():
        search.note("module", module_name(posixpath.basename(name)), Place(name, 0, str(condition)))
    return AskedNames(
        facts.kernel_version,
        {kind: {n: tuple(p[:_MOST_PLACES]) for n, p in by_name.items()} for kind, by_name in search.found.items()},
        _numbers(read, row.kernel.source),
    )


class _Search:
    def __init__(self, facts: Facts, arch: str) -> None:
        self.found: dict[str, dict[str, list[Place]]] = {}
        self._facts = facts
        self._arch = arch
        self._constants: set[str] = set()
        self._strings: dict[str, str] = {}
        self._refusals: dict[str, Expr] = {}  # function → when it does nothing but refuse

    def note(self, kind: str, name: str, place: Place) -> None:
        places = self.found.setdefault(kind, {}).setdefault(name, [])
        if place.condition != str(FALSE) and all(place.condition != known.condition for known in places):
            places.append(place)

    def header(self, path: str, text: str) -> None:
        if "/uapi/" in path:
            self._constants |= set(asked_names.constants(text))
        self._strings.update(asked_names.strings(text))
        stubs = list(asked_names.stubs(text)) if "-E" in text else []
        lists = [(m.group(1), m.start()) for m in asked_names.LISTED.finditer(text)]
        if not stubs and not lists:
            return
        conditions = line_conditions(text, self._facts.may_be_modules)
        for name, offset in stubs:
            self._refuses(name, conditions.at(_line(text, offset)))
        kind = "controller" if path.endswith("cgroup_subsys.h") else "word"
        for name, offset in lists:
            line = _line(text, offset)
            self.note(kind, name, Place(path, line, str(conditions.at(line))))

    def _refuses(self, name: str, condition: Expr) -> None:
        if condition != TRUE:  # what always refuses says nothing
            self._refusals[name] = disjunction(self._refusals.get(name, FALSE), condition)

    def source(self, path: str, text: str) -> None:
        if not any(hint in text for hint in asked_names.HINTS):
            return
        whole = self._facts.file_condition(path)
        if whole == FALSE:
            return
        before = dict(self._refusals)
        hits = [(kind, name, offset, ()) for kind, name, offset in asked_names.names(text, self._strings)]
        words = [("word", name, offset, called) for name, offset, called in asked_names.cases(text, self._constants)]
        if not hits and not words:
            return
        conditions = line_conditions(text, self._facts.may_be_modules)
        if words and "return -E" in text:
            for name, offset in asked_names.refusing(text):
                self._refuses(name, conditions.at(_line(text, offset)))
        for kind, name, offset, called in (*hits, *words):
            line = _line(text, offset)
            refusals = [negation(self._refusals[one]) for one in called if one in self._refusals]
            condition = conjunction(whole, conditions.at(line), *refusals)
            self.note(kind, name, Place(path, line, str(condition)))
        self._refusals = before  # what a C file has for itself


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _numbers(read: Reader, arch: str) -> dict[str, dict[str, int]]:
    found = {
        kind: {name: int(number) for name, number in pattern.findall(read(path) or "")}
        for kind, path, pattern in _NUMBERED
    }
    errors: dict[str, int] = {}
    for path in (
        "include/uapi/asm-generic/errno-base.h", "include/uapi/asm-generic/errno.h",
        f"arch/{arch}/include/uapi/asm/errno.h",
    ):  # fmt: skip
        errors.update({name: int(number) for name, number in _ERRNO.findall(read(path) or "")})
    return found | {"errno": errors}


def files(source: Path, row: Architecture | None = None) -> tuple[list[str], list[str]]:
    """The C files and the headers to search, each in a fixed order."""
    more = [path for name in _MORE for path in _below(source, name, "*.c")]
    headers = [path for name in (*_UAPI, *_HEADERS) for path in _below(source, name, "*.h")]
    arch = f"arch/{(row or presumed()).kernel.source}/include/uapi/asm"
    return sorted({*ksource_facts.c_files(source, row), *more}), [*_below(source, arch, "*.h"), *dict.fromkeys(headers)]


def _below(source: Path, name: str, pattern: str) -> Iterator[str]:
    folder = source / name
    if folder.is_file():
        yield name
    yield from sorted(path.relative_to(source).as_posix() for path in folder.rglob(pattern))


def load(source: Path, facts: Facts, source_id: str, store: Store | None = None, *, row: Architecture) -> AskedNames:
    """The record of the tree at `source`, from the store when `source_id` (what its content is named by) is known."""

    def fill(folder: Path) -> None:
        records.save(collect(facts, ksource_facts.reader(source), *files(source, row), row), folder / "asked.json")

    key = digest(AskedNames.SCHEMA, FORMAT, ksource_facts.FORMAT, row.name, facts.kernel_version, source_id)
    return records.load(AskedNames, (store or Store()).get("facts", key, fill) / "asked.json")


def merged(condition: Iterable[Place]) -> Expr:
    """The condition that any of the places is compiled."""
    return disjunction(*(parse(place.condition) for place in condition))
