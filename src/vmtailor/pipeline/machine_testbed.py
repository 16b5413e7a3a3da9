# SPDX-License-Identifier: Apache-2.0
"""Trials of changes on a machine: the changed machines are booted in turn with the unchanged one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vmtailor.analysis.changes import trial_hardware
from vmtailor.analysis.changes.effects import Samples, TrialRun
from vmtailor.analysis.cost import load_latency, request_costs
from vmtailor.analysis.guests import machine_variants
from vmtailor.analysis.statistics.significance import can_decide
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.booting import series_run
from vmtailor.booting.booter import Booter
from vmtailor.booting.series_run import OnBoot
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.load_result import BUCKET_SHARE
from vmtailor.model.boots.series import RECORD, BootSeries, JudgedBy, Variant
from vmtailor.model.boots.workload import Workload
from vmtailor.model.change import Change, Figure, Verdict
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.trial import Purpose
from vmtailor.pipeline.trials import Ran, Trials

BASE, CONTROL = "base", "control"
#: Changed machines that are booted between two boots of the unchanged machine.
BETWEEN = 6
#: The figure that each way of judging is by.
JUDGED = {
    JudgedBy.READY: Figure.READY,
    JudgedBy.INSTRUCTIONS: Figure.INIT_INSTRUCTIONS,
    JudgedBy.CPU: Figure.CPU,
    JudgedBy.REQUEST_KERNEL: Figure.REQUEST_KERNEL,
    JudgedBy.REQUEST: Figure.REQUEST,
    JudgedBy.P50: Figure.P50,
    JudgedBy.P90: Figure.P90,
    JudgedBy.P99: Figure.P99,
    JudgedBy.P999: Figure.P999,
}

#: The shares of latencies.
_LATENCIES = {JUDGED[by]: share for by in JudgedBy if (share := by.percentile) is not None}
#: Figures that are noted beside those that are judged by.
BESIDE = (Figure.REQUEST_KERNEL, Figure.REQUEST, *_LATENCIES, Figure.WALL, Figure.CPU)

#: Gives the machine with changes made, and the changes with what stood there before; an equal machine where nothing
#: changes. Raises UserInputError for what cannot be made.
Make = Callable[[Sequence[Change], Machine], tuple[Machine, tuple[Change, ...]]]


@dataclass(frozen=True)
class Changed:
    """A machine with changes made, and their ids. `before`: the machine without them, with the hardware that both sides
    of the trial have, and its name among the variants."""

    machine: Machine
    changes: tuple[str, ...]
    before: Machine
    before_name: str


@dataclass(eq=False)
class MachineTestbed:
    """A testbed that boots the unchanged machine and each changed one in turn, `times` times. The unchanged machine is
    booted again after every few changed ones, which gives the spread between its boots. If its boots would hardly
    differ, it is also booted with meaningless words. `also`: a second figure that is judged by. `found`: every boot so
    far. `hardware`: what both sides of a change's trial have, by the change's id: it has an unchanged machine of its
    own."""

    subject: str
    base: Machine
    workload: Workload
    out: Path
    booter: Booter
    make: Make
    times: int
    judged_by: JudgedBy
    on_boot: OnBoot | None = None
    also: JudgedBy | None = None
    found: BootSeries | None = None
    hardware: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    _schedule: list[tuple[Variant, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._earlier = series_run.Earlier(self.out)

    def apply(self, changes: Sequence[Change]) -> tuple[Changed, tuple[Change, ...]]:
        """Return the machine with the changes. Raises UserInputError also when they change nothing."""
        names = tuple(dict.fromkeys(name for change in changes for name in self.hardware.get(change.id, ())))
        before = trial_hardware.equipped(self.base, names)
        machine, made = self.make(changes, before)
        if machine == before:
            raise UserInputError("the machine is like this already")
        title = BASE if before == self.base else "-".join((BASE, *(_spelled(name) for name in names)))
        return Changed(machine, tuple(change.id for change in changes), before, title), made

    def run(self, made: Mapping[str, Changed]) -> tuple[TrialRun, Mapping[str, Ran[tuple[Boot, ...]]]]:
        """Boot each machine, the unchanged one between them; its earlier boots count."""
        more: list[tuple[Variant, int]] = []
        # The record begins with the machine as it is, where that is one of them.
        plain = {BASE: self.base} if not made or any(one.before_name == BASE for one in made.values()) else {}
        sides = {**plain, **{one.before_name: one.before for one in made.values()}}
        for side, machine in sides.items():
            changed = [
                series_run.variant(name, one.machine, one.changes)
                for name, one in made.items()
                if one.before_name == side
            ]
            if self.found is None or not self.found.of(side):
                more += in_turn(self._unchanged(side, machine), changed, self.times)
            else:
                more += [(one, number) for one in changed for number in range(1, max(self.times, 2) + 1)]
        before = self.found.boots if self.found is not None else ()
        self._schedule += more
        earlier = [one for one in self._earlier.of(self.workload, more) if self._can_be_judged(one.boot)]
        self.found = series_run.run(
            self.subject, self._schedule, self.workload, self.out,
            before=(*before, *earlier), booter=self.booter, on_boot=self.on_boot,
        )  # fmt: skip
        first = self._before(*next(iter(sides.items())))
        return first, {name: self._ran(name, self._before(one.before_name, one.before)) for name, one in made.items()}

    def _before(self, side: str, machine: Machine) -> TrialRun:
        """Return the figures of an unchanged machine and its controls."""
        samples = self._samples(*(one.name for one in self._unchanged(side, machine)))
        return TrialRun(samples=samples, deciding=len(self._judged))

    @property
    def _judged(self) -> tuple[JudgedBy, ...]:
        return (self.judged_by,) if self.also is None else (self.judged_by, self.also)

    def _can_be_judged(self, found: Boot) -> bool:
        """Return whether a boot has the figure that is judged by. An earlier run may have been judged by another."""
        if found.outcome is not Outcome.READY:
            return True
        if any(one.of_load for one in self._judged) and request_costs.of_boot(found) is None:
            return False
        shares = [one.percentile for one in self._judged if one.percentile is not None]
        if any(load_latency.of_boot(found, share) is None for share in shares):
            return False
        return JudgedBy.INSTRUCTIONS not in self._judged or found.instructions is not None

    def _unchanged(self, side: str, machine: Machine) -> tuple[Variant, ...]:
        """Return a machine without changes, first, and its controls."""
        moved = any(one is JudgedBy.READY or one.of_load for one in self._judged)
        others = machine_variants.controls(machine) if moved else ()
        title = f"{CONTROL}{side.removeprefix(BASE)}"
        controls = (series_run.variant(f"{title}-{number}", one) for number, one in enumerate(others, 1))
        return (series_run.variant(side, machine), *controls)

    def _ran(self, name: str, before: TrialRun) -> Ran[tuple[Boot, ...]]:
        assert self.found is not None
        boots = self.found.of(name)
        failures = tuple(f"{b.outcome}: {b.problem}" for b in boots if b.outcome is not Outcome.READY)
        return Ran(TrialRun(failures, self._samples(name), len(self._judged)), boots, before)

    def _samples(self, *names: str) -> tuple[Samples, ...]:
        """Return the figures that are judged by, then the load's, host time and processor time, where there are."""
        assert self.found is not None
        clock = self.found.clock
        found = [b for name in names for b in self.found.of(name) if b.outcome is Outcome.READY]
        ready = tuple(at for b in found if (at := b.at("ready", clock)) is not None)
        asked = [cost for b in found if (cost := request_costs.of_boot(b)) is not None]
        values = {
            Figure.REQUEST_KERNEL: tuple(cost.kernel for cost in asked),
            Figure.REQUEST: tuple(cost.container for cost in asked),
            Figure.READY: ready,
            Figure.INIT_INSTRUCTIONS: tuple(float(b.instructions) for b in found if b.instructions),
            Figure.WALL: ready if clock is Clock.WALL else (),
            Figure.CPU: tuple(b.cpu_s for b in found if b.cpu_s is not None),
            **{figure: _latencies(found, share) for figure, share in _LATENCIES.items()},
        }
        judged = {JUDGED[one]: hardly_varies(clock, one) for one in self._judged}
        beside = [figure for figure in BESIDE if figure not in judged and values[figure]]
        return (
            *(Samples(figure, values[figure], exact, _grain(figure)) for figure, exact in judged.items()),
            *(Samples(figure, values[figure]) for figure in beside),
        )


def _latencies(boots: Sequence[Boot], share: float) -> tuple[float, ...]:
    """Return the latency of this share of answers in each boot that has it, in seconds."""
    return tuple(ns / 1e9 for boot in boots if (ns := load_latency.of_boot(boot, share)) is not None)


def _grain(figure: Figure) -> float:
    return BUCKET_SHARE if figure in _LATENCIES else 0.0


def _spelled(hardware: str) -> str:
    """Return the name of hardware, or of its lack, as a part of a variant's name."""
    absent = hardware.removeprefix(trial_hardware.WITHOUT)
    return hardware if absent == hardware else f"without-{absent}"


def tried(testbed: MachineTestbed, changes: Sequence[Change]) -> BootSeries:
    """Try changes on a testbed, each alone, then all that were better. The record is in the testbed's folder."""
    judged = Trials(testbed).each_alone_then_together(changes)
    assert testbed.found is not None
    done = replace(
        testbed.found, trials=judged, interaction=_interaction(judged), judged_by=testbed.judged_by, also=testbed.also
    )
    records.save(done, testbed.out / RECORD)
    return done


def _interaction(judged: Sequence[Change]) -> float | None:
    last = judged[-1] if judged else None
    if last is None or last.id != Purpose.TOGETHER or not last.measured:
        return None
    alone = (change for change in judged[:-1] if change.verdict is Verdict.BETTER and change.measured)
    return sum(change.measured[0].value for change in alone) - last.measured[0].value


def in_turn(unchanged: Sequence[Variant], changed: Sequence[Variant], times: int) -> list[tuple[Variant, int]]:
    """Return the machines to boot, each with the number of its boot. The unchanged machine, or one of its controls,
    stands between every few others."""
    schedule: list[tuple[Variant, int]] = []
    turns = ((one, number) for number in itertools.count(1) for one in unchanged)
    for number in range(1, times + 1):
        for place, one in enumerate(changed):
            if place % BETWEEN == 0:
                schedule.append(next(turns))
            schedule.append((one, number))
    taken = times * -(-len(changed) // BETWEEN)
    return [*schedule, *itertools.islice(turns, max(1, len(unchanged) - taken))]


def doubt(clock: Clock, judged_by: JudgedBy, changes: int, times: int) -> str:
    """Return a warning, before anything is booted, that so few boots cannot tell any change from chance; empty when
    they can. `times`: boots of each changed machine."""
    if hardly_varies(clock, judged_by):
        return ""
    base = times * -(-changes // BETWEEN) + 1
    if can_decide(base, times):
        return ""
    least = next(n for n in range(times + 1, 100) if can_decide(n * -(-changes // BETWEEN) + 1, n))
    return (
        f"with {times} boots of each machine, every change will be undecided: --repeat {least} can tell, and so can "
        "--clock instructions"
    )


def hardly_varies(clock: Clock, judged_by: JudgedBy) -> bool:
    """Return whether the figure that is judged by hardly varies, so that few boots are enough."""
    return clock is Clock.INSTRUCTIONS or judged_by is JudgedBy.INSTRUCTIONS or judged_by.of_load
