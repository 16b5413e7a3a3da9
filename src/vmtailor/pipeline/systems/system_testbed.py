# SPDX-License-Identifier: Apache-2.0
"""A testbed that tries changes on a fitted system. It drives the system on its machine, judges its answers, and
measures the time until ready. Each boot is asked once for the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtailor.analysis.changes.effects import Samples, TrialRun
from vmtailor.analysis.cost import request_costs
from vmtailor.analysis.guests import machine_variants
from vmtailor.base.files import records, temporary
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.series import JudgedBy
from vmtailor.model.boots.workload import Until
from vmtailor.model.change import Change
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.pipeline import fit_sides
from vmtailor.pipeline.machine_testbed import JUDGED
from vmtailor.pipeline.subject import Fitted
from vmtailor.pipeline.systems.driven_system import RAN, DrivenSystem, SystemSeen
from vmtailor.pipeline.trials import Ran
from vmtailor.stages import system_verify
from vmtailor.stages.system_verify import Counts, SystemTarget

#: Bytes of command line that words may fill it up to: a kernel takes 2,048, and whoever drives the system adds words.
COMMAND_LINE_BYTES = 1900
#: How often the machine as it is gets ready on the host's clock, where nothing else is asked of it: what its boots
#: differ by counts.
BASE_BOOTS = 2
_COUNTS = "counts"

#: Gives the machine with changes made, and the changes with what stood there before. Raises UserInputError for what
#: cannot be made.
Make = Callable[[Sequence[Change]], tuple[Machine, tuple[Change, ...]]]


@dataclass(eq=False)
class SystemTestbed:
    """Changes on one fitted machine. `make`: applies them. `until`: drives the system through its whole exercise, or
    until it is ready. `judged_by`: the figures that decide; those of the load are counted, through the whole exercise.
    `before`: the result of the unchanged machine, for comparison."""

    system: DrivenSystem
    seen: SystemSeen
    fitted: Fitted
    make: Make
    until: Until = Until.SHUTDOWN
    judged_by: tuple[JudgedBy, ...] = (JudgedBy.READY,)
    before: TrialRun | None = None

    def apply(self, changes: Sequence[Change]) -> tuple[Machine, tuple[Change, ...]]:
        """Return the machine with all of the changes."""
        return self.make(changes)

    def run(self, made: Mapping[str, Machine]) -> tuple[TrialRun, Mapping[str, Ran[Fitted]]]:
        """Drive the system on each machine, and first on the one without further changes."""
        if self.before is None:
            self.before = self._unchanged()
        return self.before, {name: self.ran(machine) for name, machine in made.items()}

    @property
    def _of_load(self) -> bool:
        return any(one.of_load for one in self.judged_by)

    def _unchanged(self) -> TrialRun:
        """Return boots of the unchanged machine; if they would hardly differ, also boots with meaningless words."""
        if self.until is Until.SHUTDOWN and not self._of_load:
            return self.ran(self.fitted.machine).run
        controls = machine_variants.controls(replace(self.fitted.machine, clock=self.system.clock))
        found = self.ran(self.fitted.machine, 1 if controls else BASE_BOOTS).run
        others = [self.ran(one).run for one in controls]
        samples = (
            replace(one, values=(*one.values, *(value for run in others for value in run.values(one.figure))))
            for one in found.samples
        )
        return replace(found, samples=tuple(samples))

    def ran(self, machine: Machine, times: int = 1) -> Ran[Fitted]:
        """Drive the system on one machine the given number of times; the first boot is judged."""
        target = self.system.target_of(machine)
        first, *more = (self._boot(target, number) for number in range(1, times + 1))
        samples = self._samples(target.machine.clock, [one.boot for one in (first, *more)])
        deciding = len(self.judged_by)
        if self.until is not Until.SHUTDOWN:
            late = first.boot.outcome is not Outcome.READY
            failures = (f"{first.boot.outcome}: {first.boot.problem}",) if late else ()
            return Ran(TrialRun(failures, samples, deciding), replace(self.fitted, machine=machine))
        verification = system_verify.judge(target, self.seen.before, first)
        fitted = replace(self.fitted, machine=machine, verification=verification)
        return Ran(TrialRun(verification.failures, samples, deciding), fitted)

    def _samples(self, clock: Clock, boots: Sequence[Boot]) -> tuple[Samples, ...]:
        """Return the figures that are judged by, then the others of the load where it was counted."""
        costs = [cost for one in boots if (cost := request_costs.of_boot(one)) is not None]
        values = {
            JudgedBy.READY: tuple(at for one in boots if (at := one.at("ready", clock)) is not None),
            JudgedBy.REQUEST_KERNEL: tuple(one.kernel for one in costs),
            JudgedBy.REQUEST: tuple(one.container for one in costs),
        }
        beside = [one for one in values if one not in self.judged_by and one.of_load and values[one]]
        exact = clock is Clock.INSTRUCTIONS
        return tuple(Samples(JUDGED[one], values[one], exact=exact) for one in (*self.judged_by, *beside))

    def _boot(self, target: SystemTarget, number: int) -> SystemRun:
        store = self.system.store
        which = "trial" if self.until is Until.SHUTDOWN else f"trial to {self.until}, boot {number}"
        which += ", its load counted" if self._of_load else ""
        key = self.system.run_key(target, self.seen.before_key, which)
        if store.has("system-run", key):
            return records.load(SystemRun, store.path("system-run", key) / RAN)
        patience = system_verify.patience_after(self.seen.before)
        with temporary.held_folder(self.system.scratch) as folder:
            counts = Counts(fit_sides.table_of(self.fitted), folder / _COUNTS) if self._of_load else None
            after = system_verify.run(target, folder, patience, until=self.until, counts=counts)
        if not after.boot.failures:  # a failure may be the host's: it is asked again
            store.get("system-run", key, lambda place: records.save(after, place / RAN))
        return after
