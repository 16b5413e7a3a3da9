# SPDX-License-Identifier: Apache-2.0
"""Units without a user: neither the exercise nor its dependencies need them, they were not asked while it ran, and no
row of `data/units/*.toml` keeps them.

[[kept]]
id     = "time"             # unique
names  = ["chrony*"]        # patterns of names
reason = "why it stays whatever the exercise says"
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources.abc import Traversable
from pathlib import Path

from vmtailor.analysis.systems.unit_graph import Unit, UnitGraph
from vmtailor.base.files import toml_files
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.systems.units import UnitFate, UnitStanding

#: Kinds of units that can be masked one by one; slices, scopes, devices and targets are no work of their own.
KINDS = frozenset({"service", "socket", "timer", "path", "mount", "automount"})
#: Units without a file of their own in the system: made by whoever asked for them, or written by /etc/fstab.
_MADE = ("/run/systemd/transient/", "/run/systemd/generator")
_WORD = re.compile(r"[A-Za-z0-9:_.@\\-]+")
_CONNECTED = re.compile(rb'\bconnect\([^\n]{0,400}?sun_path=(@?"[^"\n]{1,200}")')
#: Different addresses that are kept, and bytes of a line that are waited for.
_MOST, _MOST_LINE = 10_000, 1 << 16


@dataclass(frozen=True)
class Kept:
    """Units that are not masked by themselves. `names`: patterns."""

    id: str
    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class _Rows:
    kept: tuple[Kept, ...] = toml_files.table("kept", Kept)


def _is_called(unit: Unit, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in {unit.name, *unit.names} for pattern in patterns)


def load(folder: Traversable | Path | None = None) -> tuple[Kept, ...]:
    """Return all rows that come with the program, or those of `folder`. Raises UserInputError as `toml_files.load`
    does."""
    return toml_files.load(_Rows, "units", folder).kept


def asked_sockets(chunks: Iterable[bytes]) -> frozenset[str]:
    """Return the paths of sockets that somebody connected to, from the log of a watched system; `@` begins abstract
    ones."""
    found: set[str] = set()
    rest = b""
    for chunk in chunks:
        whole, _, rest = (rest[-_MOST_LINE:] + chunk).rpartition(b"\n")
        for said in _CONNECTED.findall(whole):
            if len(found) < _MOST:
                found.add(said.decode("utf-8", "replace").replace('"', ""))
    found |= {said.decode("utf-8", "replace").replace('"', "") for said in _CONNECTED.findall(rest)}
    return frozenset(found)


def standings(
    graph: UnitGraph,
    exercise: SystemExercise,
    asked: Iterable[str],
    kept: Sequence[Kept],
    named: Sequence[str] = (),
) -> tuple[UnitStanding, ...]:
    """Return every unit that started and could be masked, with whether it is a candidate, and why (not). Those whose
    start took longest come first. `named`: patterns of units that whoever fits the system does without, which come
    before what is `kept`, and not before what the exercise wants."""
    wanted = _wanted(graph, exercise, frozenset(asked))
    found = [_standing(unit, wanted, kept, _is_called(unit, named)) for unit in _maskable(graph)]
    return tuple(sorted(found, key=lambda one: (-(one.start_s or 0.0), one.name)))


def unmatched(graph: UnitGraph, named: Sequence[str]) -> tuple[str, ...]:
    """Return those patterns that no unit is called by which started and could be masked."""
    there = tuple(_maskable(graph))
    return tuple(one for one in named if not any(_is_called(unit, (one,)) for unit in there))


def _maskable(graph: UnitGraph) -> Iterator[Unit]:
    return (unit for unit in graph.units.values() if unit.kind in KINDS and _is_by_itself(unit))


def _is_by_itself(unit: Unit) -> bool:
    """Return whether a unit started by itself, from a file that the system has."""
    return (unit.started or unit.active) and bool(unit.file) and not unit.file.startswith(_MADE)


def _standing(unit: Unit, wanted: dict[str, str], kept: Sequence[Kept], named: bool) -> UnitStanding:
    row = None if named else next((row for row in kept if _is_called(unit, row.names)), None)
    if row is not None:
        fate, why = UnitFate.KEPT, f"{row.id}: {row.reason}"
    elif unit.name in wanted:
        fate, why = UnitFate.WANTED, wanted[unit.name]
    elif named:
        fate, why = UnitFate.CANDIDATE, "whoever fitted the system does without it"
    else:
        fate, why = UnitFate.CANDIDATE, "it started by itself; the exercise neither names, asks nor needs it"
    return UnitStanding(name=unit.name, fate=fate, reason=why, start_s=unit.start_s, named=named)


def _wanted(graph: UnitGraph, exercise: SystemExercise, asked: frozenset[str]) -> dict[str, str]:
    """Unit → why it is wanted. What a target wants is how everything is started, and no reason; what it requires is."""
    found: dict[str, str] = {}
    waiting = [*_named(graph, exercise), *_served(graph, asked)]
    while waiting:
        unit, why = waiting.pop()
        if unit.name in found:
            continue
        found[unit.name] = why
        names = (*unit.requires, *(() if unit.kind == "target" else (*unit.wants, *unit.triggered_by)))
        needed = [one for one in map(graph.find, names) if one is not None]
        waiting += [(one, f"{unit.name} needs it") for one in needed]
    return found


def _named(graph: UnitGraph, exercise: SystemExercise) -> Iterator[tuple[Unit, str]]:
    """Return the units that the exercise names, directly or by the program that a service is named after."""
    words = {exercise.ready.unit} if exercise.ready.unit else set()
    steps = [*exercise.load, *([exercise.ready.step] if exercise.ready.step is not None else [])]
    for argv in (*(step.argv for step in steps), exercise.stop):
        words |= {word for text in argv for word in _WORD.findall(text)}
    for word in sorted(words):
        unit = graph.find(word) or graph.find(f"{word}.service")
        if unit is not None:
            yield unit, f"the exercise names {word}"


def _served(graph: UnitGraph, asked: frozenset[str]) -> Iterator[tuple[Unit, str]]:
    """Yield sockets that somebody connected to, and whom they start."""
    for socket in graph.units.values():
        address = next((one for one in socket.listens if _plain(one) in {_plain(path) for path in asked}), None)
        if address is not None:
            yield socket, f"somebody asked at {address}"
            for unit in graph.units.values():
                if socket.name in unit.triggered_by:
                    yield unit, f"somebody asked at {address}, where {socket.name} starts it"


def _plain(path: str) -> str:
    """/var/run is /run."""
    return path.removeprefix("/var") if path.startswith("/var/run/") else path
