# SPDX-License-Identifier: Apache-2.0
"""The targets that there are: one for each row of data/targets, whose driver is imported when it is first used."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import toml_files
from vmtailor.drivers.targets.target import ExportTarget, TargetRow
from vmtailor.model.kernel_needs import KernelNeed

_DATA = resources.files("vmtailor") / "data" / "targets"


@dataclass(frozen=True)
class ChosenTarget:
    """A target and its variant, whose text is NAME or NAME:VARIANT."""

    row: TargetRow
    variant: str

    @property
    def text(self) -> str:
        usual = self.row.variants[:1]
        return self.row.name if (self.variant,) == usual or not usual else f"{self.row.name}:{self.variant}"

    @property
    def kernel_form(self) -> str:
        """Return the form of kernel that it takes; empty: the one that the bundle has."""
        return next((one.kernel for one in self.row.variant if one.name == self.variant), "")

    def needed(self, architecture: str) -> tuple[KernelNeed, ...]:
        """Return what kernels of a processor need for it."""
        return self.row.needed(architecture, self.variant)


def names() -> tuple[str, ...]:
    """Return the names of all targets, in order."""
    return tuple(sorted(_files()))


def chosen(text: str) -> ChosenTarget:
    """Return the target, and its variant, that a text names. Raises UserInputError, with those that there are."""
    name, colon, variant = text.partition(":")
    file = _files().get(name)
    if file is None:
        raise UserInputError(f"no target '{name[:64]}' is known", hint=f"known: {', '.join(names())}")
    row = _row(name)
    if colon and variant not in row.variants:
        known = ", ".join(f"{name}:{one}" for one in row.variants) or f"{name} alone"
        raise UserInputError(f"{row.title} has no variant '{variant[:64]}'", hint=f"known: {known}")
    return ChosenTarget(row, variant or (row.variants[0] if row.variants else ""))


def needed(texts: Sequence[str], architecture: str) -> tuple[tuple[str, KernelNeed], ...]:
    """Return what a processor's kernel needs for targets, each with the target's text. Raises UserInputError for a
    target that has no machines of that processor."""
    found = []
    for text in texts:
        one = chosen(text)
        require_architecture(one, architecture)
        found += [(one.text, need) for need in one.needed(architecture)]
    return tuple(found)


def require_architecture(chosen: ChosenTarget, architecture: str) -> None:
    """Raise UserInputError where a target, or its variant, has no machines of a processor."""
    row = chosen.row
    own = next((one.architectures for one in row.variant if one.name == chosen.variant), ()) or row.architectures
    if architecture not in own or architecture not in row.architectures:
        raise UserInputError(
            f"vmtailor exports no {architecture} machine to {row.title}{f' ({chosen.text})' if row.variant else ''}",
            hint=f"it takes {', '.join(own)}",
        )


def named(name: str) -> ExportTarget:
    """Return the target of that name."""
    row = _row(name)
    module, _, kind = row.driver.partition(":")
    made: ExportTarget = getattr(importlib.import_module(module), kind)(row)
    return made


def every() -> tuple[TargetRow, ...]:
    """Return the rows of all targets, in the order of their names."""
    return tuple(_row(name) for name in names())


def _files() -> dict[str, Traversable]:
    return {one.name.removesuffix(".toml"): one for one in _DATA.iterdir() if one.name.endswith(".toml")}


@cache
def _row(name: str) -> TargetRow:
    file = _files()[name]
    found: Any = toml_files.read_strictly(file.read_text("utf-8"), TargetRow, file.name)
    row: TargetRow = found
    return row
