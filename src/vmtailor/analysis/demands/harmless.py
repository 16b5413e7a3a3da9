# SPDX-License-Identifier: Apache-2.0
"""Absences that are harmless by nature, as data with reasons: `data/harmless/*.toml`.

[[absence]]
id       = "memory-nodes"               # unique
paths    = ["/sys/devices/system/node"] # it and all below, as in data/demand
errors   = ["ENOENT"]                   # the only answers that are excused
calls    = ["openat"]                   # the only calls that are; all when left out
demanded = false                        # whether what provides it is kept for a use on the baseline; true when left out
reason   = "why nothing is lost"

A call that fails so is reported, and is no failure of the machine. The exercise's answers must be right all the same.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec

from vmtailor.analysis.demands.demand_rules import path_pattern
from vmtailor.base.errors import UserInputError
from vmtailor.model.syscalls import Absence, FailedCall


@dataclass(frozen=True)
class Harmless:
    """One row of the data."""

    id: str
    paths: tuple[str, ...]
    errors: tuple[str, ...]
    reason: str
    calls: tuple[str, ...] = ()
    demanded: bool = True

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(path_pattern(path) for path in self.paths)

    def covers(self, path: str) -> bool:
        return any(pattern.match(path) for pattern in self._patterns)

    def excuses(self, call: FailedCall) -> bool:
        """Whether a failed call is such an absence: every path that it names is covered."""
        named = [word for word in call.arguments.split(", ") if word.startswith("/")]
        return (
            bool(named)
            and call.error in self.errors
            and (not self.calls or call.name in self.calls)
            and all(self.covers(path) for path in named)
        )


def parse(text: str, origin: str) -> tuple[Harmless, ...]:
    """Read one file. Raises UserInputError that names the file and the row."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserInputError(f"{origin} is not TOML: {error}") from error
    return tuple(_row(row, origin) for row in document.get("absence", []))


def _row(row: dict[str, Any], origin: str) -> Harmless:
    try:
        found = msgspec.convert(row, Harmless)
    except msgspec.ValidationError as error:
        raise UserInputError(f"{origin}, absence {row.get('id')!r}: {error}") from error
    if strange := row.keys() - set(Harmless.__dataclass_fields__):
        raise UserInputError(f"{origin}, absence {row['id']!r}: unknown key {', '.join(sorted(strange))}")
    return found


def load(folder: Traversable | Path | None = None) -> tuple[Harmless, ...]:
    """All rows that come with the program, or those of `folder`."""
    base = folder if folder is not None else resources.files("vmtailor") / "data" / "harmless"
    files = sorted((f for f in base.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    rows = [row for f in files for row in parse(f.read_text(encoding="utf-8"), f"harmless/{f.name}")]
    ids = [row.id for row in rows]
    if twice := {i for i in ids if ids.count(i) > 1}:
        raise UserInputError(f"two absences of data/harmless have the id {sorted(twice)[0]}", hint="rename one")
    return tuple(rows)


@cache
def known() -> tuple[Harmless, ...]:
    """The program's own rows, read once."""
    return load()


def split(
    failed: Iterable[FailedCall], rows: Sequence[Harmless] | None = None
) -> tuple[tuple[FailedCall, ...], tuple[Absence, ...]]:
    """Calls that fail newly: those that count, and absences that are harmless."""
    table = known() if rows is None else rows
    counted: list[FailedCall] = []
    absent: list[Absence] = []
    for call in failed:
        row = next((row for row in table if row.excuses(call)), None)
        if row is None:
            counted.append(call)
        else:
            absent.append(Absence(call, row.id, row.reason))
    return tuple(counted), tuple(absent)


def is_not_demanded(path: str, rows: Sequence[Harmless] | None = None) -> bool:
    """Whether a path may be used without keeping what provides it."""
    return any(not row.demanded and row.covers(path) for row in (known() if rows is None else rows))
