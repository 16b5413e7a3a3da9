# SPDX-License-Identifier: Apache-2.0
"""The catalogue of symbols and command-line words that no trace asks for: what the platform needs, policy, and margins.

Format of `data/platform/*.toml`, `data/policy/*.toml` and `data/margins/*.toml` (docs/reference/catalogue.md):
`[[entry]]` tables with

    id       = "several-cpus"            # unique within its folder; a reason refers to it as platform:ID or policy:ID
    reason   = "why, in a sentence"
    symbols  = { SMP = "y" }             # y, m, n, a number or a string, always quoted; may be left out
    words    = ["quiet"]                 # kernel command line; may be left out
    if_possible = true                   # a symbol that cannot be set here (compiler, architecture) is no error
    when     = { arch = ["NAME"], machine = ["KIND"], bus = ["mmio"], root = ["erofs"], kernel = ">=6.2,<6.13",
                 cpus = ">=2", network = true, terminal = true, writable = true, own_init = true,
                 partitioned = true, modules = true }
                                         # all must hold; what is left out does not matter

What belongs to one architecture stands in its file of `data/architectures`, in the same form: `[[platform]]` and
`[[policy]]` tables, which hold for that architecture alone. A file of `data/margins` is one margin and named like it:
its entries hold where that was chosen, and whatever of them cannot be had is given up.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import toml_files
from vmtailor.base.notation import version_key
from vmtailor.model import architecture as architectures
from vmtailor.model.architecture import Bus
from vmtailor.model.change import Cause
from vmtailor.model.margin import Margin
from vmtailor.model.plan import RootFormat

_NAME = re.compile(r"[A-Z0-9a-z_]+\Z")
_BOUND = re.compile(r"(>=|<=|<|>|==)\s*(\d+(?:\.\d+)*)\Z")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge, "<=": operator.le, "<": operator.lt, ">": operator.gt, "==": operator.eq,
}  # fmt: skip
_ENTRY_KEYS = {"id", "reason", "symbols", "words", "if_possible", "when"}
_WHEN_KEYS = {
    "arch",
    "machine",
    "bus",
    "root",
    "kernel",
    "cpus",
    "network",
    "terminal",
    "writable",
    "own_init",
    "partitioned",
    "mapped",
    "modules",
}


@dataclass(frozen=True)
class Situation:
    """The situation that the conditions of the catalogue are held against. `kernel_version` is such as `6.12.117`.
    `own_init`: the root has an init of its own; `partitioned`: it is a partition of its disk; `mapped`: it is a volume
    of the device mapper's; `modules`: some of it stays a module."""

    machine: str
    root_format: RootFormat
    kernel_version: str
    cpus: int = 1
    network: bool = False
    terminal: bool = False
    writable: bool = True
    architecture: str = field(default_factory=architectures.presumed_name)
    own_init: bool = False
    partitioned: bool = False
    mapped: bool = False
    modules: bool = False

    @property
    def bus(self) -> Bus:
        """Return where the machine has its virtio devices."""
        return architectures.named(self.architecture).board_named(self.machine).bus


@dataclass(frozen=True)
class When:
    """Conditions of an entry; all must hold. Empty strings, empty tuples and None ask for nothing."""

    arch: tuple[str, ...] = ()
    machine: tuple[str, ...] = ()
    bus: tuple[Bus, ...] = ()
    root: tuple[str, ...] = ()
    kernel: str = ""
    cpus: str = ""
    network: bool | None = None
    terminal: bool | None = None
    writable: bool | None = None
    own_init: bool | None = None
    partitioned: bool | None = None
    mapped: bool | None = None
    modules: bool | None = None

    def holds(self, situation: Situation) -> bool:
        """Return True when every condition given holds in `situation`."""
        flags = (
            (self.network, situation.network),
            (self.terminal, situation.terminal),
            (self.writable, situation.writable),
            (self.own_init, situation.own_init),
            (self.partitioned, situation.partitioned),
            (self.mapped, situation.mapped),
            (self.modules, situation.modules),
        )
        return (
            (not self.arch or situation.architecture in self.arch)
            and (not self.machine or situation.machine in self.machine)
            and (not self.bus or situation.bus in self.bus)
            and (not self.root or situation.root_format.value in self.root)
            and in_bounds(self.kernel, situation.kernel_version)
            and in_bounds(self.cpus, str(situation.cpus))
            and all(wanted is None or wanted == found for wanted, found in flags)
        )


@dataclass(frozen=True)
class CatalogueEntry:
    """One row: symbols (name, value) and words, and why. `reference` is `platform:ID`, `policy:ID` or
    `margin:server/ID`."""

    cause: Cause
    id: str
    reason: str
    symbols: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = ()
    when: When = When()
    if_possible: bool = False

    @property
    def reference(self) -> str:
        return f"{self.cause.value}:{self.id}"


@dataclass(frozen=True)
class Catalogue:
    entries: tuple[CatalogueEntry, ...]

    def chosen(self, situation: Situation) -> tuple[CatalogueEntry, ...]:
        """Return the entries whose conditions hold, in file order."""
        return tuple(e for e in self.entries if e.when.holds(situation))


def in_bounds(bounds: str, version: str) -> bool:
    """Return whether `version` meets every bound of a list such as `>=6.2,<6.13`. An empty list is met.

    Only as many parts are compared as the bound has: 6.12.117 meets `<=6.12`. Raises ValueError for a malformed
    bound."""
    found = version_key(version)
    for part in filter(None, (p.strip() for p in bounds.split(","))):
        match = _BOUND.match(part)
        if match is None:
            raise ValueError(f"not a bound: {part!r}")
        bound = version_key(match.group(2))
        if not _OPERATORS[match.group(1)](found[: len(bound)], bound):
            return False
    return True


def _entry(cause: Cause, row: Mapping[str, Any], origin: str) -> CatalogueEntry:
    name = row.get("id")
    where = f"{origin}, entry {name!r}"
    if not isinstance(name, str) or not name:
        raise UserInputError(f"{origin}: an entry has no id", hint="give it one")
    if not isinstance(row.get("reason"), str) or not row["reason"].strip():
        raise UserInputError(f"{where} has no reason", hint="say why it is there")
    if strange := (row.keys() - _ENTRY_KEYS) | (row.get("when", {}).keys() - _WHEN_KEYS):
        raise toml_files.unknown(f"{where}: unknown key", toml_files.misspelt(strange, _ENTRY_KEYS | _WHEN_KEYS))
    symbols = row.get("symbols", {})
    words = row.get("words", [])
    if not symbols and not words:
        raise UserInputError(f"{where} has neither symbols nor words")
    for symbol, value in symbols.items():
        if not _NAME.match(symbol) or symbol.startswith("CONFIG_") or not isinstance(value, str):
            raise UserInputError(f"{where}: {symbol} = {value!r}", hint='write NAME = "y", without CONFIG_')
    if not all(isinstance(w, str) and w and not set(w) & set(" \t\n\"'") for w in words):
        raise UserInputError(f"{where}: words of the command line have no spaces or quotes")
    try:
        when = msgspec.convert(row.get("when", {}), When)
        in_bounds(when.kernel, "1")
        in_bounds(when.cpus, "1")
        _require_known("architecture", when.arch, architectures.names())
        _require_known("machine", when.machine, architectures.every_board())
        for root in when.root:
            RootFormat(root)
    except (ValueError, msgspec.ValidationError) as error:
        raise UserInputError(f"{where}: {error}") from error
    return CatalogueEntry(
        cause=cause,
        id=name,
        reason=row["reason"].strip(),
        symbols=tuple(symbols.items()),
        words=tuple(words),
        when=when,
        if_possible=bool(row.get("if_possible", False)),
    )


def _require_known(what: str, asked: Iterable[str], known: Sequence[str]) -> None:
    for name in asked:
        if name not in known:
            raise ValueError(f"{what} {name!r} is none of {', '.join(known)}")


def parse(text: str, cause: Cause, origin: str) -> list[CatalogueEntry]:
    """Read one file of the catalogue. Raises UserInputError that names the file and the entry."""
    return [_entry(cause, row, origin) for row in toml_files.document(text, origin).get("entry", [])]


def of_architecture(architecture: architectures.Architecture, cause: Cause) -> list[CatalogueEntry]:
    """Return the entries that one architecture brings along; they hold for it alone."""
    tables = architecture.platform if cause is Cause.PLATFORM else architecture.policy
    found = [_entry(cause, table, f"architectures/{architecture.name}.toml") for table in tables]
    return [replace(one, when=replace(one.when, arch=(architecture.name,))) for one in found]


def load(root: Traversable | Path | None = None, *, architecture: str | None = None) -> Catalogue:
    """Return the catalogue that comes with the program, or the one under `root` (folders `platform` and `policy`). It
    has the entries of one architecture, or of all.

    Raises UserInputError when a file is malformed or two entries have one reference."""
    rows = architectures.every() if architecture is None else (architectures.named(architecture),)
    base = root if root is not None else resources.files("vmtailor") / "data"
    entries: list[CatalogueEntry] = []
    for folder, cause in (("platform", Cause.PLATFORM), ("policy", Cause.POLICY)):
        for origin, text in toml_files.texts(folder, base / folder):
            entries += parse(text, cause, origin)
        entries += [entry for row in rows for entry in of_architecture(row, cause)]
    seen: dict[str, CatalogueEntry] = {}
    for entry in entries:
        known = seen.setdefault(entry.reference, entry)
        if known is not entry and not (entry.when.arch and known.when.arch and entry.when.arch != known.when.arch):
            raise UserInputError(f"the catalogue has two entries {entry.reference}", hint="rename one")
    return Catalogue(tuple(entries))


def of_margin(margin: Margin, root: Traversable | Path | None = None) -> Catalogue:
    """Return the entries that a margin keeps, where it is a list of ours; none for one that is read from the image. An
    entry's id begins with the margin's name. Raises UserInputError as `load` does."""
    base = root if root is not None else resources.files("vmtailor") / "data"
    file = base / "margins" / f"{margin.value}.toml"
    if not file.is_file():
        return Catalogue(())
    rows = parse(file.read_text(encoding="utf-8"), Cause.MARGIN, f"margins/{margin.value}.toml")
    if twice := {row.id for row in rows if [one.id for one in rows].count(row.id) > 1}:
        raise UserInputError(f"the margin {margin.value} has two entries {sorted(twice)[0]}", hint="rename one")
    if any(row.words or any(value == "n" for _, value in row.symbols) for row in rows):
        raise UserInputError(f"the margin {margin.value} has words, or takes symbols away", hint="it only adds symbols")
    return Catalogue(tuple(replace(row, id=f"{margin.value}/{row.id}", if_possible=True) for row in rows))
