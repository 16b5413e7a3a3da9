# SPDX-License-Identifier: Apache-2.0
"""Requirements known of programs, `data/requirements/*.toml`, held against a kernel. They are only reported: no symbol
is ever kept because of them.

[[program]]
name   = "docker"
says   = "what it is"
source = "whose list it is after"

[[requirement]]
id      = "docker-bridge"          # unique
level   = "required"               # or "recommended", "optional"
symbols = ["VETH", "BRIDGE"]       # all of them
instead = ["…"]                    # all of these do as well; may be left out
value   = "y"                      # "n": none of them may be set; may be left out
kernel  = ">=6.6"                  # bounds of versions; may be left out
need    = "what it is for"
without = "what happens where it is not there"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from vmtailor.analysis.changes.symbol_catalogue import in_bounds
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import toml_files
from vmtailor.model.change import Cause, Figure
from vmtailor.model.fit_run import FitRun

#: Returns true if a kernel's source has a symbol of this name.
Knows = Callable[[str], bool]


class Level(StrEnum):
    REQUIRED = "required"
    RECOMMENDED = "recommended"
    OPTIONAL = "optional"


@dataclass(frozen=True)
class KnownProgram:
    name: str
    says: str
    source: str


@dataclass(frozen=True)
class Requirement:
    id: str
    level: Level
    symbols: tuple[str, ...]
    need: str
    without: str
    instead: tuple[str, ...] = ()
    value: str = "y"
    kernel: str = ""


@dataclass(frozen=True)
class Requirements:
    """The requirements known of one program."""

    program: KnownProgram
    rows: tuple[Requirement, ...]


class Met(StrEnum):
    """`instead`: what does as well is there. `against`: set, and should not be."""

    MET = "there"
    INSTEAD = "there in another way"
    MISSING = "missing"
    AGAINST = "set, and should not be"


@dataclass(frozen=True)
class SymbolStanding:
    """One symbol of a requirement. `value`: y, m, n, or "" where the kernel's source has no such symbol. `used`: the
    first reason by which the trace asked for it, with its `reference`; empty where it did not.

    `instructions` is what its code cost. If it is built in, that is the cost on the way to ready; the baseline's, if
    the tailored kernel has no debug information. If it is not, it is the cost in the whole trace of the baseline. None:
    nothing is on record."""

    name: str
    value: str
    used: str = ""
    reference: str = ""
    instructions: int | None = None


@dataclass(frozen=True)
class RequirementAnswer:
    """One requirement, held against a kernel."""

    requirement: Requirement
    met: Met
    symbols: tuple[SymbolStanding, ...]

    @property
    def used(self) -> bool:
        """Return whether the trace asked for any of it."""
        return any(one.used for one in self.symbols)

    @property
    def instructions(self) -> int | None:
        """Return the cost of its symbols together, in instructions."""
        known = [one.instructions for one in self.symbols if one.instructions is not None]
        return sum(known) if known else None


@dataclass(frozen=True)
class HeldAgainst:
    """All requirements of a program against one kernel. `traced`: whether there is a trace to set them against."""

    program: KnownProgram
    kernel: str
    version: str
    traced: bool
    answers: tuple[RequirementAnswer, ...]

    def lacking(self, level: Level) -> tuple[RequirementAnswer, ...]:
        bad = (Met.MISSING, Met.AGAINST)
        return tuple(one for one in self.answers if one.requirement.level is level and one.met in bad)


def _check(row: dict[str, Any]) -> None:
    in_bounds(row.get("kernel", ""), "1")
    if not row["symbols"]:
        raise ValueError("names no symbol")
    if row.get("value", "y") not in ("y", "n"):
        raise ValueError("value is y or n")


@dataclass(frozen=True)
class _File:
    programs: tuple[KnownProgram, ...] = toml_files.table("program", KnownProgram)
    rows: tuple[Requirement, ...] = toml_files.table("requirement", Requirement, _check)


def load(folder: Traversable | Path | None = None) -> dict[str, Requirements]:
    """Return all programs by name. Raises UserInputError for a malformed file, or where two rows have one id."""
    found: dict[str, Requirements] = {}
    for origin, text in toml_files.texts("requirements", folder):
        file = toml_files.read(_File, text, origin)
        if len(file.programs) != 1:
            raise UserInputError(f"{origin} must have one [[program]]")
        (program,) = file.programs
        found[program.name] = Requirements(program, file.rows)
    toml_files.require_unique((row.id for one in found.values() for row in one.rows), "rows of data/requirements")
    return found


def of_program(name: str, folder: Traversable | Path | None = None) -> Requirements:
    """Return the requirements of one program. Raises UserInputError for an unknown program."""
    known = load(folder)
    if name not in known:
        raise UserInputError(f"nothing is known of what '{name}' requires", hint=f"known: {', '.join(sorted(known))}")
    return known[name]


def against_configuration(
    asked: Requirements, kernel: str, symbols: Mapping[str, str], version: str, known: Knows | None = None
) -> HeldAgainst:
    """Against a .config. `version`: empty where it does not tell. `known`: whether the kernel's
    source has a symbol, where that is at hand."""
    return _against(asked, kernel, version, {n: SymbolStanding(n, v) for n, v in symbols.items()}, known, traced=False)


def against_run(asked: Requirements, bundle: str, run: FitRun, known: Knows | None = None) -> HeldAgainst:
    """Against what a fit built, with what its trace asked for, and what each symbol cost."""
    here = dict(run.baseline.symbol_costs) | dict(run.tailored.symbol_costs)
    standings: dict[str, SymbolStanding] = {}
    for change in run.plan.symbols:
        reason = next((r for r in change.reasons if r.cause is Cause.DEMANDED), None)
        value = change.setting.value or "n"
        cost = here.get(change.id) if value in ("y", "m") else None
        said = (reason.text, reason.reference) if reason is not None else ("", "")
        standings[change.id] = SymbolStanding(change.id, value, *said, cost)
    for change in run.plan.gone:
        ran = change.saves(Figure.TRACE_INSTRUCTIONS) if change.expects(Figure.TRACE_INSTRUCTIONS) else None
        standings.setdefault(change.id, SymbolStanding(change.id, "n", instructions=ran))
    return _against(asked, bundle, run.plan.kernel_version, standings, known, traced=True)


def _against(
    asked: Requirements,
    kernel: str,
    version: str,
    standings: Mapping[str, SymbolStanding],
    known: Knows | None,
    *,
    traced: bool,
) -> HeldAgainst:
    def stands(name: str) -> SymbolStanding:
        if known is not None and not known(name):
            return SymbolStanding(name, "")
        return standings.get(name, SymbolStanding(name, "n"))

    rows = [row for row in asked.rows if not version or in_bounds(row.kernel, version)]
    answers = tuple(_answer(row, [stands(name) for name in row.symbols], stands) for row in rows)
    return HeldAgainst(program=asked.program, kernel=kernel, version=version, traced=traced, answers=answers)


def _answer(
    row: Requirement, symbols: Sequence[SymbolStanding], stands: Callable[[str], SymbolStanding]
) -> RequirementAnswer:
    there = [one.value in ("y", "m") for one in symbols]
    if row.value == "n":
        return RequirementAnswer(row, Met.AGAINST if any(there) else Met.MET, tuple(symbols))
    # A symbol that this source does not know cannot be missing, unless it knows none of the row.
    if all(here or one.value == "" for here, one in zip(there, symbols, strict=True)) and any(there):
        return RequirementAnswer(row, Met.MET, tuple(symbols))
    others = [stands(name) for name in row.instead]
    if others and all(one.value in ("y", "m", "") for one in others) and any(one.value in ("y", "m") for one in others):
        return RequirementAnswer(row, Met.INSTEAD, (*symbols, *others))
    return RequirementAnswer(row, Met.MISSING, tuple(symbols))
