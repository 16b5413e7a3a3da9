# SPDX-License-Identifier: Apache-2.0
"""Mounts, files and modules that whole systems do without, and modules they miss: data with reasons,
`data/systems/*.toml`.

[[mount]]
id     = "debug-files"           # unique
type   = "debugfs"               # a file system of the kernel's own,
place  = "/sys/kernel/debug"     # mounted where it always is: demanded once a file in it is opened, not before
reason = "why"

[[absence]]                      # as in data/harmless: what is opened there demands nothing, and may be missing

[[missed]]
id     = "automounts"            # unique
module = "autofs4"               # a module that a program loads by name and could do without:
task   = "systemd"               # who, where it is demanded all the same, since it says that it misses it
reason = "why"
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

from vmtailor.analysis.demands.harmless_absences import Harmless
from vmtailor.base.files import toml_files


@dataclass(frozen=True)
class OwnMount:
    """A file system of the kernel's own at its place."""

    id: str
    type: str
    place: str
    reason: str


@dataclass(frozen=True)
class MissedModule:
    """A module that a program loads by name: where it is missing, the program says so in the system's log."""

    id: str
    module: str
    task: str
    reason: str


@dataclass(frozen=True)
class HarmlessOpens:
    mounts: tuple[OwnMount, ...] = toml_files.table("mount", OwnMount)
    absences: tuple[Harmless, ...] = toml_files.table("absence", Harmless)
    missed: tuple[MissedModule, ...] = toml_files.table("missed", MissedModule)

    def covers(self, path: str) -> bool:
        """Return whether opening a path demands nothing."""
        return any(row.covers(path) for row in self.absences)

    def misses(self, module: str, task: str) -> bool:
        """Return whether a text is a program's remark that a module, which it can do without, is not there."""
        return any((row.module, row.task) == (module, task) for row in self.missed)


def load(folder: Traversable | Path | None = None) -> HarmlessOpens:
    """Return all rows that come with the program, or those of `folder`. Raises UserInputError as `toml_files.load`
    does."""
    return toml_files.load(HarmlessOpens, "systems", folder)
