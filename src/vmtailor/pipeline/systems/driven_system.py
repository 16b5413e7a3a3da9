# SPDX-License-Identifier: Apache-2.0
"""A system that was prepared for a fit, and its drives: by its exercise, on its own kernel and on fitted ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.explain.lookup import KnownSource
from vmtailor.analysis.guests import kernel_complaints, machine_variants
from vmtailor.analysis.systems.demands import SystemDemands
from vmtailor.base.cache.store import Store
from vmtailor.base.progress import step
from vmtailor.drivers.guest.attendant_volume import SystemRoot
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.boots.workload import Until
from vmtailor.model.bundle import SYSTEM_MAP
from vmtailor.model.exercise import Exercise
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.systems.system import System
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.model.watched.system_trace import SystemTrace
from vmtailor.pipeline import keys
from vmtailor.pipeline.measured_machines import MeasureRequest
from vmtailor.pipeline.subject import Subject, scratch_of
from vmtailor.pipeline.systems import exercise_boots, system_plan
from vmtailor.pipeline.systems.system_kernel import SystemKernel
from vmtailor.pipeline.systems.system_plan import SystemPlanInputs
from vmtailor.stages import measure, system_verify
from vmtailor.stages.kernel_plan import KernelTree
from vmtailor.stages.measure import MeasuredMachine
from vmtailor.stages.system_files import OpenedSystem
from vmtailor.stages.system_verify import SystemTarget

#: In the cache: the record of a run of the exercise.
RAN = "run.json"


@dataclass(frozen=True, eq=False)
class SystemSeen:
    """The trace of a system, with its files in `folder`. `before`: its exercise on its own kernel, and the name of that
    run. `asked`: the inputs of plans. `unsteady`: failures on a fitted machine that passed when repeated."""

    record: SystemTrace
    folder: Path
    before: SystemRun
    before_key: str
    asked: SystemPlanInputs
    unsteady: list[str]

    @cached_property
    def demands(self) -> SystemDemands:
        """Return all that the system asked for; its log is read once."""
        with step("plan: what the system asked for"):
            return system_plan.find_demands(self.asked)


@dataclass(frozen=True, eq=False, kw_only=True)
class DrivenSystem(Subject[SystemSeen]):
    """A system that was prepared. `found`: its files. `sha256`: digest of the disk's file. `own`: its kernel as it is
    traced. `tree`, `known`: facts of that kernel's source. `baseline`: the machine as its loader would start it."""

    NOUN = "disk"

    found: OpenedSystem
    sha256: str
    exercise: SystemExercise
    tree: KernelTree
    known: KnownSource
    own: SystemKernel

    @property
    def system(self) -> System:
        """Return the record of the system."""
        return self.found.subject

    @property
    def inside(self) -> Exercise:
        return self.exercise.inside()

    @property
    def root(self) -> SystemRoot:
        """Return the place of the system in each of its machines."""
        return exercise_boots.root_of(self.system, self.baseline.words)

    @property
    def clock(self) -> Clock:
        """Return the clock that its exercise can be driven by."""
        return system_verify.clock_for(self.exercise)

    def with_exercise(self, machine: Machine) -> Machine:
        """Return the machine for the exercise, with the ports that it asks from outside."""
        return replace(machine, clock=self.clock, ports=machine_variants.on_loopback(self.exercise.ports))

    def target_of(self, machine: Machine) -> SystemTarget:
        """Return the target for the whole exercise on a machine."""
        driven = self.with_exercise(machine)
        root, built_in = exercise_boots.root_of(self.system, machine.words), _built_in(machine)
        return SystemTarget(
            machine=driven, root=root, exercise=self.exercise, natives=self.natives, built_in=built_in
        )  # fmt: skip

    def run_key(self, target: SystemTarget, *more: str) -> str:
        """Return the cache key of a run of the exercise: everything that it depends on."""
        attendant = keys.content(self.natives.attendant)
        root = repr(target.root)
        return keys.of_run(system_verify, target.machine, self.exercise, self.natives, attendant, root, *more)


def until_ready(
    target: SystemTarget, table: SymbolTable, title: str, boots: int, store: Store, beside: MeasureRequest | None = None
) -> MeasureRequest:
    """Return the request to measure a machine until its system is ready. `beside`: the machine that it is compared
    with."""
    machine, exercise, natives = target.machine, target.exercise, target.natives
    other = beside.key if beside is not None else ""
    attendant = keys.content(natives.attendant)
    key = keys.of_run(measure, machine, exercise, natives, attendant, str(boots), "to ready", other)

    def measured(scratch: Path) -> MeasuredMachine:
        work = system_verify.workload(target, scratch, until=Until.READY)
        return MeasuredMachine(machine=machine, table=table, exercise=exercise.inside(), natives=natives, attended=work)

    return MeasureRequest(
        title=title, key=key, boots=boots, store=store, scratch=scratch_of(store), subject=measured, beside=beside
    )


def _built_in(machine: Machine) -> frozenset[str]:
    """Return the modules in a kernel that was compiled here, with its symbols beside it; none of another."""
    symbols = Path(machine.kernel).with_name(SYSTEM_MAP) if machine.kernel else None
    return kernel_complaints.built_in_modules(symbols.read_text()) if symbols and symbols.is_file() else frozenset()
