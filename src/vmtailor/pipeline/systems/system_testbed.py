# SPDX-License-Identifier: Apache-2.0
"""A testbed that tries changes on a fitted system. It drives the system on its machine, judges its answers, and
measures the time until ready. Each boot is asked once for the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtailor.analysis.changes.effects import Samples, TrialRun
from vmtailor.analysis.guests import machine_variants
from vmtailor.base.files import records, temporary
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.workload import Until
from vmtailor.model.change import Change, Figure
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.pipeline.subject import Fitted
from vmtailor.pipeline.systems.driven_system import RAN, DrivenSystem, SystemSeen
from vmtailor.pipeline.trials import Ran
from vmtailor.stages import system_verify
from vmtailor.stages.system_verify import SystemTarget

#: Bytes of command line that words may fill it up to: a kernel takes 2,048, and whoever drives the system adds words.
COMMAND_LINE_BYTES = 1900
#: How often the machine as it is gets ready on the host's clock, where nothing else is asked of it: what its boots
#: differ by counts.
BASE_BOOTS = 2

#: Gives the machine with changes made, and the changes with what stood there before. Raises UserInputError for what
#: cannot be made.
Make = Callable[[Sequence[Change]], tuple[Machine, tuple[Change, ...]]]


@dataclass(eq=False)
class SystemTestbed:
    """Changes on one fitted machine. `make`: applies them. `until`: drives the system through its whole exercise, or
    until it is ready. `before`: the result of the unchanged machine, for comparison."""

    system: DrivenSystem
    seen: SystemSeen
    fitted: Fitted
    make: Make
    until: Until = Until.SHUTDOWN
    before: TrialRun | None = None

    def apply(self, changes: Sequence[Change]) -> tuple[Machine, tuple[Change, ...]]:
        """Return the machine with all of the changes."""
        return self.make(changes)

    def run(self, made: Mapping[str, Machine]) -> tuple[TrialRun, Mapping[str, Ran[Fitted]]]:
        """Drive the system on each machine, and first on the one without further changes."""
        if self.before is None:
            self.before = self._unchanged()
        return self.before, {name: self.ran(machine) for name, machine in made.items()}

    def _unchanged(self) -> TrialRun:
        """Return boots of the unchanged machine; if they would hardly differ, also boots with meaningless words."""
        if self.until is Until.SHUTDOWN:
            return self.ran(self.fitted.machine).run
        controls = machine_variants.controls(replace(self.fitted.machine, clock=self.system.clock))
        found = self.ran(self.fitted.machine, 1 if controls else BASE_BOOTS).run
        others = [at for one in controls for at in self.ran(one).run.values(Figure.READY)]
        return replace(found, samples=tuple(replace(one, values=(*one.values, *others)) for one in found.samples))

    def ran(self, machine: Machine, times: int = 1) -> Ran[Fitted]:
        """Drive the system on one machine the given number of times; the first boot is judged."""
        target = self.system.target_of(machine)
        first, *more = (self._boot(target, number) for number in range(1, times + 1))
        clock = target.machine.clock
        ready = [at for one in (first, *more) if (at := one.boot.at("ready", clock)) is not None]
        samples = Samples(Figure.READY, tuple(ready), exact=clock is Clock.INSTRUCTIONS)
        if self.until is not Until.SHUTDOWN:
            late = first.boot.outcome is not Outcome.READY
            failures = (f"{first.boot.outcome}: {first.boot.problem}",) if late else ()
            return Ran(TrialRun(failures, (samples,)), replace(self.fitted, machine=machine))
        verification = system_verify.judge(target, self.seen.before, first)
        fitted = replace(self.fitted, machine=machine, verification=verification)
        return Ran(TrialRun(verification.failures, (samples,)), fitted)

    def _boot(self, target: SystemTarget, number: int) -> SystemRun:
        store = self.system.store
        which = "trial" if self.until is Until.SHUTDOWN else f"trial to {self.until}, boot {number}"
        key = self.system.run_key(target, self.seen.before_key, which)
        if store.has("system-run", key):
            return records.load(SystemRun, store.path("system-run", key) / RAN)
        patience = system_verify.patience_after(self.seen.before)
        with temporary.held_folder(self.system.scratch) as folder:
            after = system_verify.run(target, folder, patience, until=self.until)
        if not after.boot.failures:  # a failure may be the host's: it is asked again
            store.get("system-run", key, lambda place: records.save(after, place / RAN))
        return after
