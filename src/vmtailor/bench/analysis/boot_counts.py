# SPDX-License-Identifier: Apache-2.0
"""Counts of a boot as figures: instructions of the kernel (also by subsystem), of programs and of the machine's own
guests, and accesses to devices. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtailor.analysis.cost.plugin_counts import FIRMWARE
from vmtailor.analysis.cost.waterfall import OTHER
from vmtailor.bench.analysis.figure_parts import part
from vmtailor.bench.model.results import BenchFigure
from vmtailor.model.boots.boot import Boot, Phase
from vmtailor.model.boots.counters import Counters, Totals

#: Begins the name of the figure whose parts are functions of the kernel. No table has it: they are for comparisons.
FUNCTIONS = "functions of the kernel"
#: Name of the code that the machine runs before its kernel.
BEFORE = "firmware"


def counts(found: Boot, phases: Sequence[Phase]) -> tuple[float, float, float]:
    """Return the instructions of the kernel, those of user programs, and the accesses to devices in some phases."""
    rows = [row for row in found.phases if row.phase in phases]
    devices = sum((row.port_accesses or 0) + (row.mmio_accesses or 0) for row in rows)
    return float(sum(row.kernel for row in rows)), float(sum(row.user for row in rows)), float(devices)


def of_guests(found: Boot, phases: Sequence[Phase]) -> tuple[float, float] | None:
    """Return the instructions that the machine's own guests executed in some phases, and how often they were left; None
    where they were not counted apart."""
    rows = [row for row in found.phases if row.phase in phases]
    if not any(row.guest is not None for row in rows):
        return None
    return float(sum(row.guest or 0 for row in rows)), float(sum(row.entries or 0 for row in rows))


def by_subsystem(found: Boot, phases: Sequence[Phase], subsystems: Mapping[str, str]) -> dict[str, float]:
    """Return subsystem → instructions of the kernel in some phases; their sum is all of its instructions. `subsystems`:
    function → its subsystem; where it is empty, so is the result."""
    if not subsystems:
        return {}
    sums: dict[str, float] = defaultdict(float)
    for row in found.functions:
        if row.phase in phases:
            name = BEFORE if row.function == FIRMWARE else subsystems.get(row.function, OTHER)
            sums[name] += row.instructions
    sums[OTHER] += counts(found, phases)[0] - sum(sums.values())
    return {name: value for name, value in sums.items() if value}


#: Marks of a program's end; the first that is there counts.
ENDS = ("ready", "end")
_UP_TO_PROGRAM = (Phase.FIRMWARE, Phase.KERNEL, Phase.INIT)


@dataclass(frozen=True)
class BootStretch:
    """A part of a boot. `name`: ends the names of its figures; `begin`, `ends`: its first mark (empty: reset) and the
    marks that end it."""

    name: str
    phases: tuple[Phase, ...]
    begin: str
    ends: tuple[str, ...]

    def took_ns(self, found: Boot) -> int | None:
        """Return its length in virtual time; None where a mark is missing."""
        begin, end = _at_ns(found, self.begin) if self.begin else 0, _at_ns(found, *self.ends)
        return None if begin is None or end is None else end - begin


#: A start in a machine of the image's own, whose init starts the command: to the program, and to its end. OWN_WORK is
#: the command alone.
OWN_STARTS = (
    BootStretch("to the program", _UP_TO_PROGRAM, "", ("entry",)),
    BootStretch("to its end", (*_UP_TO_PROGRAM, Phase.START_UP), "", ENDS),
)
OWN_WORK = BootStretch("to its end", (Phase.START_UP,), "entry", ENDS)
#: The command in a machine with engines, given once all is ready. It leaves out the machine's own boot. Engines have no
#: common mark for the moment when the program starts.
WITHIN = BootStretch("to its end", (Phase.LOAD,), "load", ("load_end",))


def started(
    found: Boot, subsystems: Mapping[str, str], stretches: Sequence[BootStretch] = OWN_STARTS
) -> tuple[BenchFigure, ...]:
    """Return the cost of a start, for each of some parts of its boot. `subsystems`: function of the kernel → its
    subsystem."""
    return tuple(
        figure
        for one in stretches
        for figure in _figures(
            one.name,
            _cost(found, one.phases),
            by_subsystem(found, one.phases, subsystems),
            one.took_ns(found),
        )
    )


#: Functions of the kernel that are kept of a start: the dearest.
MOST_FUNCTIONS = 200


def several_started(
    found: Boot, starts: Sequence[Totals], subsystems: Mapping[str, str], where: BootStretch = WITHIN
) -> tuple[BenchFigure, ...]:
    """Return the cost of each of several starts of one boot, as an instance of its figures; and of a mean start what is
    known of all together: virtual time, and the kernel by subsystem. `where`: the part of the boot that they fill."""
    figures: list[BenchFigure] = []
    for number, one in enumerate(starts):
        cost = (one.early + one.kernel, one.user, one.ports + one.mmio)
        figures += [replace(figure, instance=number) for figure in _figures(where.name, cost, {}, None)]
    took = where.took_ns(found)
    parts = {name: value / len(starts) for name, value in by_subsystem(found, where.phases, subsystems).items()}
    mean = _figures(where.name, (), parts, None if took is None else took / len(starts))
    return (*figures, *mean, *dearest(found, where, len(starts)))


def dearest(found: Boot, stretch: BootStretch, starts: int = 1) -> tuple[BenchFigure, ...]:
    """Return the instructions of the kernel's dearest functions in one of the starts that a part of a boot has, each as
    a part of FUNCTIONS."""
    sums: dict[str, float] = defaultdict(float)
    for row in found.functions:
        if row.phase in stretch.phases:
            sums[row.function] += row.instructions / starts
    most = sorted(sums, key=lambda name: (-sums[name], name))[:MOST_FUNCTIONS]
    whole = f"{FUNCTIONS} {stretch.name}"
    return tuple(BenchFigure(name=part(whole, name), value=sums[name], unit="instructions") for name in most)


#: The span at which the init of a machine within the machine executes its program.
PROGRAM = "program"
#: The end of the names of figures until then.
TO_PROGRAM = "to the program"


def to_program(counters: Counters) -> tuple[BenchFigure, ...]:
    """Return the cost from the start command until the program of a machine within the machine is executed; nothing
    where the place was not passed."""
    begin = counters.at(WITHIN.begin)
    end = next((one.at for one in reversed(counters.spans) if one.name == PROGRAM), None)
    if begin is None or end is None or end.executed < begin.executed:
        return ()
    here = end.since(begin)
    cost = (here.early + here.kernel, here.user, here.ports + here.mmio, here.guest.executed, here.guest.entries)
    return tuple(_figures(TO_PROGRAM, [float(value) for value in cost], {}, None))


def per_unit(
    less: Boot, more: Boot, units: int, subsystems: Mapping[str, str], where: BootStretch = OWN_WORK
) -> tuple[BenchFigure, ...]:
    """Return the cost of a unit of work: the difference of two boots, of which one did `units` more. `where`: the part
    of the boots that did the work."""
    sides = (_cost(less, where.phases), _cost(more, where.phases))
    cost = [(b - a) / units for a, b in zip(*sides, strict=True)]
    one, other = (by_subsystem(boot, where.phases, subsystems) for boot in (less, more))
    parts = {name: (other.get(name, 0.0) - one.get(name, 0.0)) / units for name in one.keys() | other.keys()}
    short, long = where.took_ns(less), where.took_ns(more)
    took = None if short is None or long is None else (long - short) / units
    return tuple(_figures("a unit", cost, parts, took))


def units_of_steps(less: Totals, more: Totals, units: int) -> tuple[BenchFigure, ...]:
    """Return the cost of a unit of work from two commands of one boot, of which the second did `units` more."""
    sides = ((one.early + one.kernel, one.user, one.ports + one.mmio) for one in (less, more))
    return tuple(_figures("a unit", [(b - a) / units for a, b in zip(*sides, strict=True)], {}, None))


def _cost(found: Boot, phases: Sequence[Phase]) -> tuple[float, ...]:
    return *counts(found, phases), *(of_guests(found, phases) or ())


#: Names and units of a cost: the last two of machines whose own guests are counted apart.
_SIDES = (
    ("kernel", "instructions"), ("user", "instructions"), ("devices", "accesses"), ("guest", "instructions"),
    ("exits", "exits"),
)  # fmt: skip


def _figures(
    name: str, cost: Sequence[float], parts: Mapping[str, float], took_ns: float | None
) -> Iterator[BenchFigure]:
    for (side, unit), value in zip(_SIDES, cost, strict=False):
        yield BenchFigure(name=f"{side} {name}", value=value, unit=unit)
    for which, value in sorted(parts.items()):
        if value:
            yield BenchFigure(name=part(f"kernel {name}", which), value=value, unit="instructions")
    if took_ns is not None:
        yield BenchFigure(name=f"virtual time {name}", value=took_ns / 1e9, unit="s")


def timed_start(found: Boot) -> dict[str, float]:
    """Return the wall times of a start: to the end of the start command, and to the program, as our init reports it."""
    entry = found.milestone("entry")
    return {"exit": found.seconds} | ({"program started": entry.wall_s} if entry and entry.wall_s is not None else {})


def _at_ns(found: Boot, *names: str) -> int | None:
    """Return the virtual time at the first of these milestones that there is."""
    return next((m.virtual_ns for m in map(found.milestone, names) if m is not None and m.virtual_ns is not None), None)
