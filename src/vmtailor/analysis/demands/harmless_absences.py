# SPDX-License-Identifier: Apache-2.0
"""Absences that are harmless by nature, as data with reasons: `data/harmless/*.toml`.

[[absence]]
id       = "memory-nodes"               # unique
paths    = ["/sys/devices/system/node"] # it and all below, as in data/demand
errors   = ["ENOENT"]                   # the only answers that are excused
calls    = ["openat"]                   # the only calls that are, or all; without `paths`, whatever they name
demanded = false                        # whether what provides it is kept for a use on the baseline; true when left out
reason   = "why nothing is lost"

A call that fails so is reported, and is no failure of the machine. The exercise's answers must be right all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from vmtailor.analysis.demands.demand_rules import PathPatterns
from vmtailor.base.files import toml_files
from vmtailor.model.syscalls import Absence, FailedCall


@dataclass(frozen=True)
class Harmless(PathPatterns):
    """One row of the data."""

    id: str
    errors: tuple[str, ...]
    reason: str
    paths: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    demanded: bool = True

    def excuses(self, call: FailedCall) -> bool:
        """Return whether a failed call is such an absence: every path that it names is covered."""
        if call.error not in self.errors or (self.calls and call.name not in self.calls):
            return False
        named = [word for word in call.arguments.split(", ") if word.startswith("/")]
        return not self.paths or (bool(named) and all(self.covers(path) for path in named))

    @property
    def is_of_calls(self) -> bool:
        """Return whether it covers calls as such, whatever they name."""
        return not self.paths


def _check(row: dict[str, Any]) -> None:
    if not row.get("paths") and not row.get("calls"):
        raise ValueError("it names neither paths nor calls")


@dataclass(frozen=True)
class _Rows:
    absences: tuple[Harmless, ...] = toml_files.table("absence", Harmless, _check)


def load(folder: Traversable | Path | None = None) -> tuple[Harmless, ...]:
    """Return all rows that come with the program, or those of `folder`. Raises UserInputError as `toml_files.load`
    does."""
    return toml_files.load(_Rows, "harmless", folder).absences


@cache
def known() -> tuple[Harmless, ...]:
    """Return the program's own rows, read once."""
    return load()


def split(failed: Iterable[FailedCall]) -> tuple[tuple[FailedCall, ...], tuple[Absence, ...]]:
    """Return calls that fail newly: those that count, and absences that are harmless."""
    counted: list[FailedCall] = []
    absent: list[Absence] = []
    for call in failed:
        row = next((row for row in known() if row.excuses(call)), None)
        if row is None:
            counted.append(call)
        else:
            absent.append(Absence(call, row.id, row.reason))
    return tuple(counted), tuple(absent)


def is_not_demanded(path: str) -> bool:
    """Return whether a path may be used without keeping what provides it."""
    return any(not row.demanded and row.covers(path) for row in known())


def call_is_not_demanded(name: str) -> bool:
    """Return whether a system call may be used without keeping what provides it."""
    return any(not row.demanded and row.is_of_calls and name in row.calls for row in known())
