# SPDX-License-Identifier: Apache-2.0
"""The plan: ordered changes, and the configuration that they resolve to."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import ClassVar

from vmtailor.model.architecture import presumed_name
from vmtailor.model.change import Change, ChangeKind, Figure, Setting
from vmtailor.model.margin import Margin


class RootFormat(StrEnum):
    EROFS = "erofs"
    SQUASHFS = "squashfs"
    EXT4 = "ext4"
    XFS = "xfs"  # of a system's own disk; none is made for a container


class ImageRoot(StrEnum):
    """The formats that are made for a container's root."""

    EROFS = RootFormat.EROFS.value
    SQUASHFS = RootFormat.SQUASHFS.value
    EXT4 = RootFormat.EXT4.value


# vmtailor/plan/1: symbols, symbols left out and words as records of three kinds.
# vmtailor/plan/2: `changes`, in the order below.
# vmtailor/plan/3: `margins`.
@dataclass(frozen=True)
class Plan:
    """The configuration to build. `fragment` is the input of allnoconfig. `changes` is all that it resolves to: symbols
    by name, words of the command line, then symbols that only the baseline has, those that ran most first. A symbol
    left out has its evidence and the cost expected to go. One without a prompt is among them where its code ran.

    `unexplained` names symbols without a reason (none, if all is right). `given_up` says, a sentence each, what was
    wanted and could not be had. That is policy that this tree or compiler cannot follow, or what falls with a dropped
    symbol."""

    SCHEMA: ClassVar[str] = "vmtailor/plan/3"

    kernel_version: str
    machine: str
    cpus: int
    root_format: RootFormat
    fragment: tuple[tuple[str, str], ...]
    changes: tuple[Change, ...]
    total_y: int
    prompted_y: int
    unexplained: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    network: bool = False
    architecture: str = field(default_factory=presumed_name)
    margins: tuple[Margin, ...] = ()

    @cached_property
    def symbols(self) -> tuple[Change, ...]:
        """Return the configuration's symbols: all that are set, and those that a reason sets to n."""
        return tuple(c for c in self.changes if c.sets_symbol and (c.setting.value != "n" or c.reasons))

    @cached_property
    def gone(self) -> tuple[Change, ...]:
        """Return symbols of the baseline that this has not: what ran most first."""
        found = [c for c in self.changes if c.sets_symbol and c.setting.value == "n" and c.setting.before in ("y", "m")]
        return tuple(sorted(found, key=lambda c: (-c.saves(Figure.TRACE_INSTRUCTIONS), c.id)))

    @cached_property
    def baseline(self) -> dict[str, str]:
        """Return the baseline's values of the symbols that the plan speaks of: name → y or m."""
        found = {c.id: c.setting.before for c in self.changes if c.sets_symbol}
        return {name: value for name, value in found.items() if value in ("y", "m")}

    @cached_property
    def left_out(self) -> tuple[Change, ...]:
        """Return the symbols left out that have a prompt: the order in which repair looks."""
        return tuple(c for c in self.gone if c.setting.chosen)

    @cached_property
    def words(self) -> tuple[Change, ...]:
        """Return the kernel's command line, word by word."""
        return tuple(c for c in self.changes if c.settings and c.settings[0].kind is ChangeKind.COMMAND_LINE)

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """Return the flags that the kernel is compiled with beside its own."""
        return tuple(str(one) for one in self._settings(ChangeKind.COMPILER) if one.value is not None)

    @cached_property
    def patches(self) -> tuple[tuple[str, str], ...]:
        """Return the patches of the kernel's source: each id with its digest."""
        return tuple((one.name, one.value) for one in self._settings(ChangeKind.PATCH) if one.value is not None)

    def _settings(self, kind: ChangeKind) -> tuple[Setting, ...]:
        return tuple(one for change in self.changes for one in change.settings if one.kind is kind)

    def symbol(self, name: str) -> Change | None:
        """Return a symbol of the configuration, by its name without CONFIG_."""
        return next((c for c in self.symbols if c.id == name), None)
