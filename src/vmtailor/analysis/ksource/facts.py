# SPDX-License-Identifier: Apache-2.0
"""All facts of a kernel tree as one record, made once a tree and kept."""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from vmtailor.analysis.ksource import kbuild, kconfig, names, uapi
from vmtailor.analysis.ksource.conditions import line_conditions
from vmtailor.analysis.ksource.expr import FALSE, TRUE, Expr, conjunction, disjunction, holds
from vmtailor.analysis.ksource.expr_text import parse
from vmtailor.analysis.ksource.make_values import Reader
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.files import records
from vmtailor.model.architecture import Architecture, CallTable, presumed

#: Folders whose C files are searched for names, beside the architecture's. The rest of drivers/ has none that a
#: container asks for by name.
SEARCHED = (
    "block", "crypto", "fs", "init", "io_uring", "ipc", "kernel", "lib", "mm", "net", "security", "virt",
    "drivers/base", "drivers/block", "drivers/char", "drivers/connector", "drivers/input", "drivers/misc",
    "drivers/net", "drivers/tty", "drivers/vfio", "drivers/vhost", "drivers/virt", "drivers/watchdog",
)  # fmt: skip
NOT_SEARCHED = ("drivers/net/ethernet", "drivers/net/wireless", "drivers/net/phy", "drivers/net/dsa", "drivers/net/can")
#: Change when a finder changes, so that stored facts are made again.
FORMAT = "14"


@dataclass(frozen=True)
class Place:
    """The file and line that define a name, and the condition under which (of both, as text of an expression)."""

    path: str
    line: int
    condition: str


# vmtailor/facts/1: `names` with the system calls that may be missing.
# vmtailor/facts/2: without them.
@dataclass(frozen=True)
class Facts:
    """`files`: source path without ending → condition; `names`: kind → name → places; `table`: call name → entry.

    `tristates`: symbols that may be m; None where the tree does not say. `narrow`: calls that programs of 32 bits alone
    have: name → entry."""

    SCHEMA: ClassVar[str] = "vmtailor/facts/2"

    kernel_version: str
    files: dict[str, str]
    names: dict[str, dict[str, tuple[Place, ...]]]
    table: dict[str, str]
    tristates: tuple[str, ...] | None = None
    narrow: dict[str, str] = field(default_factory=dict)

    @cached_property
    def may_be_modules(self) -> frozenset[str] | None:
        """Return the symbols that may be m, for reading the conditions of a file's lines."""
        return None if self.tristates is None else frozenset(self.tristates)

    @cached_property
    def _expressions(self) -> dict[str, Expr]:
        return {path: parse(text) for path, text in self.files.items()}

    def file_condition(self, path: str) -> Expr:
        """Return the condition under which a source file is compiled; TRUE for a header or a file that no Makefile
        names."""
        stem, ending = posixpath.splitext(path)
        return self._expressions.get(stem, TRUE) if ending in (".c", ".S") else TRUE

    def compiled(self, enabled: Mapping[str, str]) -> tuple[str, ...]:
        """Return the files that a configuration compiles, without their endings: name → y or m of what is set."""
        return tuple(path for path, condition in self._expressions.items() if holds(condition, enabled))

    def places(self, kind: str, name: str) -> tuple[Place, ...]:
        return self.names.get(kind, {}).get(name, ())

    def condition(self, kind: str, name: str) -> Expr | None:
        """Return the condition under which a kernel has the thing of that kind and name; None when the source has
        none."""
        found = self.places(kind, name)
        return disjunction(*(parse(p.condition) for p in found)) if found else None

    def syscall(self, name: str) -> tuple[Expr, tuple[Place, ...]] | None:
        """Condition and places of a system call by the name of the table; None for an unknown one."""
        entry = self.table.get(name) or self.narrow.get(name)
        if entry is None:
            return None
        found = self.places("syscall", entry)
        return disjunction(*(parse(p.condition) for p in found)) if found else TRUE, found


@dataclass
class _Lines:
    """Offsets → line numbers of one text."""

    starts: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, text: str) -> _Lines:
        starts = [0]
        position = text.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = text.find("\n", position + 1)
        return cls(starts)

    def line(self, offset: int) -> int:
        return bisect_right(self.starts, offset)


def collect(
    kernel_version: str, read: Reader, sources: Iterable[str], architecture: Architecture | None = None
) -> Facts:
    """Make the facts of a tree for an architecture. `sources`: paths of the C files to search for names. Pure but for
    what `read` does."""
    architecture = architecture or presumed()
    files = kbuild.file_conditions(read, architecture.kernel.source)
    tristates = kconfig.tristates(read, architecture.kernel.source)
    texts: list[tuple[str, list[tuple[str, str, int]]]] = []  # path, (kind, name, offset) …
    conditions = {}
    lines = {}
    included: dict[str, Expr] = {}
    for path in sources:
        text = read(path)
        if text is None:
            continue
        inclusions = list(names.included_sources(text)) if '.c"' in text else []
        hits = [
            (finder.kind, name, offset)
            for finder in names.FINDERS
            if any(h in text for h in finder.hints)
            for name, offset in finder.find(text)
        ]
        if not hits and not inclusions:
            continue
        conditions[path] = line_conditions(text, tristates)
        lines[path] = _Lines.of(text)
        texts.append((path, hits))
        for name, offset in inclusions:
            target = posixpath.splitext(posixpath.normpath(posixpath.join(posixpath.dirname(path), name)))[0]
            here = files.get(posixpath.splitext(path)[0])
            if here is not None and target not in files:
                here = conjunction(here, conditions[path].at(lines[path].line(offset)))
                included[target] = disjunction(included.get(target, FALSE), here)
    files |= included
    found: dict[str, dict[str, list[Place]]] = {}
    for path, hits in texts:
        whole = files.get(posixpath.splitext(path)[0], FALSE)
        for kind, name, offset in hits:
            line = lines[path].line(offset)
            condition = conjunction(whole, conditions[path].at(line))
            if condition != FALSE:  # in a file that no Makefile names
                found.setdefault(kind, {}).setdefault(name, []).append(Place(path, line, str(condition)))
    table = dict(_entries(read, architecture.calls))
    narrow = [found for one in architecture.kernel.of_32_bits for found in _entries(read, one.calls)]
    return Facts(
        kernel_version=kernel_version,
        files={path: str(condition) for path, condition in files.items()},
        names={kind: {name: tuple(places) for name, places in by_name.items()} for kind, by_name in found.items()},
        table=table,
        tristates=None if tristates is None else tuple(sorted(tristates)),
        narrow={name: entry for name, entry in narrow if name not in table},
    )


def _entries(read: Reader, tables: Iterable[CallTable]) -> Iterator[tuple[str, str]]:
    return ((call.name, call.entry) for call in uapi.read_table(read, tables) if call.entry)


def reader(source: Path) -> Callable[[str], str | None]:
    """Return a reader of files below `source`. It gives None for a missing file, a folder, or a path outside."""

    def read(path: str) -> str | None:
        if path.startswith(("/", "..")):
            return None
        try:
            return (source / path).read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    return read


def c_files(source: Path, architecture: Architecture | None = None) -> list[str]:
    """Return the C files that are searched for names, in a fixed order."""
    found = []
    for folder in (f"arch/{(architecture or presumed()).kernel.source}", *SEARCHED):
        for path in (source / folder).rglob("*.c"):
            name = path.relative_to(source).as_posix()
            if not name.startswith(NOT_SEARCHED):
                found.append(name)
    return sorted(found)


def load(
    source: Path,
    kernel_version: str,
    source_id: str,
    store: Store | None = None,
    *,
    architecture: Architecture | None = None,
) -> Facts:
    """Return the facts of the tree at `source`. They come from the store when `source_id`, which names its content, is
    known."""
    family = architecture or presumed()

    def fill(folder: Path) -> None:
        records.save(collect(kernel_version, reader(source), c_files(source, family), family), folder / "facts.json")

    key = digest(Facts.SCHEMA, FORMAT, family.name, kernel_version, source_id)
    return records.load(Facts, (store or Store()).get("facts", key, fill) / "facts.json")
