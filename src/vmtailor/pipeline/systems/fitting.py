# SPDX-License-Identifier: Apache-2.0
"""What the fit of a system is made of: its trace, plan, machine and verdict. Trials, repair and thorough effort are
those of every fit (pipeline/fitting.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from vmtailor.analysis.cost import loops
from vmtailor.analysis.cost.attribution import Attribution, SymbolCost
from vmtailor.analysis.explain import messages
from vmtailor.analysis.explain.failure import recognise
from vmtailor.analysis.explain.presence import AskedKernel, Has, findings
from vmtailor.analysis.guests import kernel_complaints
from vmtailor.analysis.guests.system_losses import new_units
from vmtailor.analysis.systems.demands import SystemDemands
from vmtailor.base.errors import GuestError
from vmtailor.base.files import records, temporary
from vmtailor.base.progress import step
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.bundle import SYSTEM_MAP
from vmtailor.model.change import Change
from vmtailor.model.kernel import KernelFiles
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.plan import Plan
from vmtailor.model.trial import Trial, Verification
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.model.watched.system_trace import SystemTrace
from vmtailor.pipeline import keys
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.systems import counting, exercising, inputs, planning, tracing
from vmtailor.pipeline.systems.inputs import SystemInputs
from vmtailor.pipeline.systems.planning import HEAD_BYTES, SystemPlanInputs
from vmtailor.stages import system_trace, system_verify
from vmtailor.stages.plan import Tree, Wishes
from vmtailor.stages.system_trace import SystemTraceInputs, chunks_of
from vmtailor.stages.system_verify import Counts, SystemTarget

_VERIFICATION = "verification.json"
#: In the cache: the record of a run of the exercise; beside that of the one on the baseline, the plugin's counts.
RAN, COUNTS = "run.json", "run.counts"
#: Under the tracer an exercise has so many times its time.
TRACED_TIMES = 8
#: Messages of a machine that failed, of which is asked what they ask for.
_MOST_MESSAGES = 40


@dataclass(eq=False)
class SystemFindings:
    """What is known so far of the fit of one system. `folder`: of the trace; `before`: its exercise on its own
    kernel; `costs`: what that kernel's code cost meanwhile, None where that was not counted; `unsteady`: what failed on
    a fitted machine, and passed there when it was asked again."""

    inputs: SystemInputs
    trace: SystemTrace
    folder: Path
    before: SystemRun
    before_key: str
    costs: Attribution | None = None
    trials: list[Trial] = field(default_factory=list)
    compiled: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)
    unsteady: list[str] = field(default_factory=list)

    @property
    def tree(self) -> Tree:
        return self.inputs.tree

    @property
    def options(self) -> FitOptions:
        return self.inputs.options

    @property
    def source(self) -> SourceTree:
        return self.inputs.source

    @cached_property
    def ran(self) -> Mapping[str, SymbolCost]:
        """What the code of each symbol cost on the baseline, without loops that only emulation causes."""
        if self.costs is None:
            return {}
        return self.costs.by_symbol(without=loops.functions(loops.table(self.options.architecture)))

    @cached_property
    def _asked(self) -> tuple[SystemPlanInputs, SystemDemands]:
        """What plans are made from; the log is read once."""
        given = self.inputs
        log = self.folder / self.trace.requests_file
        made = SystemPlanInputs(
            self.trace, chunks_of(log), given.config, given.source.path, given.tree, given.known,
            lambda path: given.found.root.begin(path, HEAD_BYTES),
        )  # fmt: skip
        with step("plan: what the system asked for"):
            return made, planning.find_demands(made)

    def planned(self, tried: Sequence[Change], drop: Sequence[str]) -> Plan:
        """The plan: everything is built in."""
        made, demands = self._asked
        options, disk = self.options, self.inputs.subject.disk
        wishes = Wishes(
            architecture=options.architecture,
            machine=options.machine,
            cpus=options.cpus,
            keep=options.keep,
            drop=(*options.drop, *drop),
            partitioned=disk is not None and disk.root != 0,
        )
        return planning.make_system_plan(made, demands, wishes, as_modules=False, ran=self.ran, tried=tried)

    def machine_of(self, made: Plan, kernel: KernelFiles) -> Machine:
        """The fitted kernel: no initial RAM disk, no ACPI; the system's own words."""
        given, options = self.inputs, self.options
        planned = tuple(word.id for word in made.words)
        return Machine(
            board=made.machine,
            memory_bytes=options.memory_bytes,
            kernel=kernel.image,
            words=inputs.words(given.subject, given.row, planned),
            disks=(inputs.disk_of(given.found),),
            network=made.network,
            cpu_model=options.cpu_model,
            cpus=made.cpus,
            clock=Clock.INSTRUCTIONS,
            architecture=made.architecture,
        )

    def verified(self, made: Plan, machine: Machine) -> Verification:
        """The exercise on a machine, against what it did on the baseline. What passed is asked once for the same bytes;
        a failure that asks for nothing may be the host's, and is asked again before kernels are compiled for it."""
        store = self.options.store
        target = target_of(self.inputs, machine)
        key = run_key(self.inputs, target, self.before_key)
        if store.has("verification", key):
            return records.load(Verification, store.path("verification", key) / _VERIFICATION)
        found = self._asked_on("verify: the exercise on the tailored machine", target, made)
        if not found.passed and not found.needs:
            again = self._asked_on("verify: once more, since it failed and asked for nothing", target, made)
            if again.passed:  # not kept: a second fit asks, and warns, for itself
                self.unsteady.append(found.failures[0])
                return again
            found = again
        if found.passed:
            store.get("verification", key, lambda place: records.save(found, place / _VERIFICATION))
        return found

    def _asked_on(self, title: str, target: SystemTarget, made: Plan) -> Verification:
        with step(title), temporary.held_folder(self.inputs.scratch) as folder:
            found = system_verify.verify(target, self.before, folder)
        if found.passed:
            return found
        return replace(found, needs=tuple(dict.fromkeys((*found.needs, *self._asked_for(found, made)))))

    def _asked_for(self, found: Verification, made: Plan) -> list[str]:
        """The symbols that the messages of a machine that failed ask for, as far as that can be told."""
        kernel, kinds, known = AskedKernel.of_plan(made), messages.load(), self.inputs.known
        told = dict.fromkeys((*found.failures, *found.complaints, *found.evidence.splitlines()))
        asks = [ask for text in list(told)[:_MOST_MESSAGES] for ask in recognise(text, known, kinds).asks]
        return [one.symbol for one in findings(asks, known, kernel) if one.has is Has.OUT and one.symbol]


def target_of(given: SystemInputs, machine: Machine) -> SystemTarget:
    """A machine as it is driven by the whole exercise."""
    driven = inputs.with_exercise(machine, given.exercise, system_verify.clock_for(given.exercise))
    return SystemTarget(driven, given.root, given.exercise, given.natives, _built_in(machine))


def _built_in(machine: Machine) -> frozenset[str]:
    """The modules in a kernel that was compiled here, with its symbols beside it; none of another."""
    symbols = Path(machine.kernel).with_name(SYSTEM_MAP) if machine.kernel else None
    return kernel_complaints.built_in_modules(symbols.read_text()) if symbols and symbols.is_file() else frozenset()


def run_key(given: SystemInputs, target: SystemTarget, *more: str) -> str:
    """Everything that a run of the exercise depends on."""
    attendant = keys.content(given.natives.attendant)
    root = repr(target.root)
    return keys.of_run(system_verify, target.machine, given.exercise, given.natives, attendant, root, *more)


def find(given: SystemInputs, on_passed: Callable[[], None] = lambda: None) -> SystemFindings:
    """The exercise on the system's own kernel, with every block counted, and once more with everything seen.
    `on_passed` is told when the first has passed."""
    before, key = ran_before(given)
    on_passed()
    record, folder = traced(given, before.boot.seconds)
    costs = counting.costs(given, before, given.options.store.path("system-run", key) / COUNTS)
    return SystemFindings(given, record, folder, before, key, costs)


def ran_before(given: SystemInputs) -> tuple[SystemRun, str]:
    """The exercise on the baseline, with the name of that run. Raises GuestError where it does not pass."""
    target, store = target_of(given, given.baseline), given.options.store
    key = run_key(given, target, "counted")

    def fill(folder: Path) -> None:
        with step("the exercise on the system's own kernel"), temporary.held_folder(given.scratch) as scratch:
            found = system_verify.baseline(target, scratch, Counts(given.table, folder / COUNTS))
        records.save(found, folder / RAN)

    return records.load(SystemRun, store.get("system-run", key, fill) / RAN), key


def trace_key(given: SystemInputs, machine: Machine) -> str:
    """Everything that a trace depends on."""
    parts = [keys.content(path) for path in (given.natives.attendant, given.natives.small_init)]
    return keys.of_run(system_trace, machine, given.exercise, given.natives, *parts)


def traced(given: SystemInputs, plain_s: float) -> tuple[SystemTrace, Path]:
    """The trace, and the folder with its files; found again when nothing it depends on has changed. `plain_s`: host
    seconds that the same exercise took without the tracer, on the same kernel. What fails only while everything is seen
    is the tracer's doing, since it passes without (`only_traced`). Raises GuestError where the system does not even get
    ready under the tracer: what its exercise needs was not seen."""
    store, options = given.options.store, given.options
    machine = tracing.machine_of(given.found, given.own, memory_bytes=options.memory_bytes, cpus=1)
    # On the instruction clock a busy host changes nothing of what is seen.
    clock = system_verify.clock_for(given.exercise)
    machine = inputs.with_exercise(replace(machine, entropy=False), given.exercise, clock)

    def fill(folder: Path) -> None:
        with temporary.held_folder(given.scratch) as scratch:
            root = exercising.root_of(given.subject, machine.words)
            target = SystemTarget(machine, root, patient(given.exercise), given.natives)
            work = system_verify.workload(target, scratch).unhurried(clock)
            wanted = SystemTraceInputs(
                given.subject.reference, machine, work, given.own.modules, given.own.way_in, given.natives,
                plain_s=plain_s, booter=system_verify.booter(given.natives),
            )  # fmt: skip
            found = system_trace.trace(wanted, folder, scratch)
        if found.boot.outcome not in (Outcome.READY, Outcome.WRONG):  # `WRONG`: it was ready
            raise GuestError(
                f"the system does not get ready while every system call is seen: {found.boot.problem}",
                hint="it takes several times as long then; give it more time (timeout_s of [ready])",
            )

    folder = store.get("system-trace", trace_key(given, machine), fill)
    return records.load(SystemTrace, folder / system_trace.RECORD), folder


def only_traced(found: SystemFindings) -> tuple[str, ...]:
    """What went wrong under the tracer alone, in sentences: steps, and units that the system calls failed."""
    before, traced_boot = found.before.boot, found.trace.boot
    failures = [text for text in traced_boot.failures if text not in before.failures]
    return (*failures, *(f"unit {name} failed" for name in new_units(before, traced_boot)))


def patient(exercise: SystemExercise) -> SystemExercise:
    """The exercise with the time that it takes while everything is seen."""
    ready = replace(exercise.ready, timeout_s=TRACED_TIMES * exercise.ready.timeout_s)
    return replace(
        exercise, ready=ready, step_timeout_s=TRACED_TIMES * exercise.step_timeout_s,
        stop_timeout_s=TRACED_TIMES * exercise.stop_timeout_s,
    )  # fmt: skip
