# SPDX-License-Identifier: Apache-2.0
"""What a fit is made of: trace, plan, kernel, machine, verdict; and the bench that tries changes of its
configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from vmtailor.analysis.changes.effects import NOTHING, Samples, TrialRun
from vmtailor.analysis.cost import loops
from vmtailor.analysis.cost.attribution import Attribution, SymbolCost
from vmtailor.analysis.demands import demand, demand_rules, refusals
from vmtailor.analysis.guests import machine_variants
from vmtailor.analysis.ksource import facts, kbuild, security_modules
from vmtailor.analysis.reach import reach_symbols
from vmtailor.analysis.reach.reach_symbols import Reached
from vmtailor.base import output
from vmtailor.base.cache.store import digest
from vmtailor.base.errors import BuildError
from vmtailor.base.files import records
from vmtailor.base.progress import step
from vmtailor.drivers.image import flat_archive
from vmtailor.drivers.image.flat_archive import FlatArchive
from vmtailor.drivers.kernel import kernel_uses
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import named
from vmtailor.model.boots.boot import Boot
from vmtailor.model.change import Change, Figure
from vmtailor.model.kernel import KernelFiles
from vmtailor.model.machine import Machine
from vmtailor.model.margin import Margin
from vmtailor.model.plan import Plan
from vmtailor.model.syscalls import ObservedCall, SyscallEvent
from vmtailor.model.trace import Trace
from vmtailor.model.trial import Trial, Verification
from vmtailor.pipeline import attributing, keys, reaching
from vmtailor.pipeline.inputs import FitInputs
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.trials import Ran, Trials, Tried
from vmtailor.stages import build, plan, trace, verify
from vmtailor.stages.plan import Tree, Wishes


class Fitting(Protocol):
    """A fit under way, of whatever subject: what trials, repair and thorough effort ask of it. `trials`: all so far;
    `compiled`, `found`: keys of the kernels that were compiled in this run, and of those that were there."""

    trials: list[Trial]
    compiled: set[str]
    found: set[str]

    @property
    def tree(self) -> Tree: ...

    @property
    def options(self) -> FitOptions: ...

    @property
    def source(self) -> SourceTree: ...

    def planned(self, tried: Sequence[Change], drop: Sequence[str]) -> Plan:
        """The plan, with symbols that trials put back or have shown to be unneeded, and without what one leaves out."""
        ...

    def machine_of(self, made: Plan, kernel: KernelFiles) -> Machine:
        """The tailored machine."""
        ...

    def verified(self, made: Plan, machine: Machine) -> Verification:
        """What verification says of a machine; asked once for the same bytes."""
        ...


@dataclass(eq=False)
class Findings:
    """What is known so far of one fit of an image."""

    inputs: FitInputs
    trace: Trace
    trace_folder: Path
    events: tuple[SyscallEvent, ...]
    archive: FlatArchive
    tree: Tree
    costs: Attribution
    reached: tuple[Reached, ...] = ()
    trials: list[Trial] = field(default_factory=list)
    #: Keys of the kernels that were compiled in this run, and of those that were there.
    compiled: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)
    #: What was refused in runs, and what repair put back in the fit before (`refit`).
    observed: tuple[ObservedCall, ...] = ()
    before: tuple[Change, ...] = ()
    #: Names a trace that was not made here: what is found with it is not what is found with the one made here.
    trace_id: str = ""

    @property
    def options(self) -> FitOptions:
        return self.inputs.options

    @property
    def source(self) -> SourceTree:
        return self.inputs.source

    def planned(self, tried: Sequence[Change], drop: Sequence[str]) -> Plan:
        return planned(self, tried, drop)

    def machine_of(self, made: Plan, kernel: KernelFiles) -> Machine:
        return machine_of(self.inputs, made, kernel)

    def verified(self, made: Plan, machine: Machine) -> Verification:
        return verified(self, made, machine)

    @cached_property
    def ran(self) -> Mapping[str, SymbolCost]:
        """What the code of each symbol cost on the baseline, without loops that only emulation causes."""
        return self.costs.by_symbol(without=loops.functions(loops.table(self.inputs.options.architecture)))


@dataclass(frozen=True, eq=False)
class Built:
    """A plan with its kernel and the machine of both."""

    plan: Plan
    kernel: KernelFiles
    machine: Machine


@dataclass(frozen=True, eq=False)
class Fitted:
    """A plan with its kernel and what verification said. `passed` is False when repair gave up."""

    plan: Plan
    kernel: KernelFiles
    machine: Machine
    verification: Verification


def find(inputs: FitInputs) -> Findings:
    """Trace on the baseline, and read the source: everything that a plan is made of."""
    return known(inputs, *traced(inputs))


def known(inputs: FitInputs, record: Trace, folder: Path) -> Findings:
    """The same with a trace that is there already, its files in `folder`."""
    inputs = as_traced(inputs, record)
    events = trace.read_log(folder, record).events
    archive = flat_archive.read(Path(inputs.image.archive))
    with step("facts of the kernel source"):
        tree = plan.read_tree(
            inputs.source.path, inputs.kernel.version, inputs.source.digest, inputs.options.store,
            architecture=inputs.options.architecture,
        )  # fmt: skip
    with step("attribution of the baseline's cost"):
        costs = attributing.attributed(inputs, record, folder, tree)
    return Findings(inputs, record, folder, events, archive, tree, costs, reached(inputs, record, archive, tree))


def as_traced(inputs: FitInputs, record: Trace) -> FitInputs:
    """What is fitted, its baseline with the modules that the trace had loaded."""
    return inputs.having_loaded(modules_asked_for(record), [module.name for module in record.modules])


def reached(inputs: FitInputs, record: Trace, archive: FlatArchive, tree: Tree) -> tuple[Reached, ...]:
    """What the image could ask the kernel for, and the symbols that takes: of those that the baseline has."""
    row = named(inputs.options.architecture)
    rules = demand_rules.load(row=row)
    baseline = security_modules.at_work(inputs.config, facts.reader(inputs.source.path), tree.facts)
    with step("reach: what the image could ask for"):
        kernel = reaching.names_of(tree.facts, inputs.source.path, row)
        reach = reaching.reach_of(inputs.image, archive, reaching.opened_in(record), kernel, row, inputs.options.store)
        return reach_symbols.of_reach(reach, tree.facts, rules, baseline)


def trace_key(inputs: FitInputs) -> str:
    """Everything that a trace depends on."""
    return keys.of_run(trace, inputs.baseline, inputs.exercise, inputs.natives, keys.content(inputs.tools))


def traced(inputs: FitInputs, on_counted: Callable[[Boot], None] = lambda boot: None) -> tuple[Trace, Path]:
    """The trace, and the folder with its files; found again when nothing it depends on has changed. `on_counted`: see
    `stages.trace`."""
    store = inputs.options.store
    key = trace_key(inputs)

    def fill(folder: Path) -> None:
        wanted = trace.TraceInputs(
            image=inputs.image,
            exercise=inputs.exercise,
            machine=inputs.machine_with,
            modules=Path(inputs.kernel.modules_dir),
            kernel_release=inputs.kernel.release,
            table=inputs.table,
            natives=inputs.natives,
            tools=inputs.tools,
        )
        trace.trace(wanted, folder, inputs.scratch, on_counted)

    folder = store.get("trace", key, fill)
    return records.load(Trace, folder / trace.RECORD), folder


def modules_asked_for(record: Trace) -> tuple[str, ...]:
    """Names of the modules that the traced machine has loaded because the container made the kernel ask for them."""
    return tuple(dict.fromkeys(one.module for one in record.modules_requested))


def planned(
    findings: Findings,
    tried: Sequence[Change] = (),
    drop: Sequence[str] = (),
    margins: tuple[Margin, ...] | None = None,
) -> Plan:
    """The plan, with symbols that trials put back or have shown to be unneeded, and without what a trial leaves out.
    `margins`: others than those that were asked for."""
    inputs = findings.inputs
    options = inputs.options
    demands = plan.find_demands(
        inputs.image.config, inputs.exercise, findings.events, findings.tree, inputs.config,
        head=findings.archive.head, architecture=options.architecture,
    )  # fmt: skip
    read = facts.reader(inputs.source.path)
    demand.of_modules(findings.trace.modules_requested, demands, lambda path: kbuild.symbol_of_module(path, read))
    refusals.of_observed(findings.observed, demands, inputs.config)
    wishes = Wishes(
        architecture=options.architecture,
        machine=options.machine,
        cpus=options.cpus,
        root_format=options.root_format,
        terminal=options.terminal,
        keep=options.keep,
        drop=(*options.drop, *drop),
        margins=inputs.margins if margins is None else margins,
    )
    return plan.make_plan(
        inputs.image.config, demands, findings.tree, inputs.config, wishes,
        ran=findings.ran, tried=(*findings.before, *tried), reached=findings.reached,
    )  # fmt: skip


def machine_of(inputs: FitInputs, made: Plan, kernel: KernelFiles) -> Machine:
    """The tailored machine."""
    return machine_with(inputs.options, inputs.root, made, kernel)


def machine_with(options: FitOptions, root: Path, made: Plan, kernel: KernelFiles) -> Machine:
    """The same with this root."""
    return machine_variants.tailored_machine(
        named(made.architecture),
        made.machine,
        Path(kernel.image),
        root,
        made.root_format,
        [word.id for word in made.words],
        memory_bytes=options.memory_bytes,
        cpu_model=options.cpu_model,
        cpus=made.cpus,
    )


def built(findings: Fitting, made: Plan) -> KernelFiles:
    """The kernel of a plan: compiled, or found in the cache, which is said once."""
    store, key, source = findings.options.store, kernel_key(findings, made), findings.source
    if key not in findings.compiled and not store.has(build.KIND, key):
        findings.compiled.add(key)
    elif key not in findings.compiled and key not in findings.found:
        findings.found.add(key)
        uses = kernel_uses.uses_of(store, key)
        made_for = f", made for {uses.images[0].reference}" if uses is not None and uses.images else ""
        output.note(f"✓ kernel found in the cache{made_for}")
    sources = findings.tree.facts.compiled({c.id: c.value for c in made.symbols if c.is_kept})
    return build.build_kernel(made, source.path, source.digest, store, sources=sources)


def kernel_key(findings: Fitting, made: Plan) -> str:
    """The name of a plan's kernel in the cache."""
    return build.kernel_key(made, findings.source.digest, build.toolchain_of(made))


def verified(findings: Findings, made: Plan, machine: Machine) -> Verification:
    """What verification says of a machine; asked once for the same bytes."""
    inputs = findings.inputs
    traced = (trace_key(inputs), *([findings.trace_id] if findings.trace_id else []))
    used = digest(str(made.network), str(sorted(map(str, inputs.image.config.exposed_ports))))
    key = keys.of_run(verify, machine, inputs.exercise, inputs.natives, *traced, used)
    store = inputs.options.store
    if store.has("verification", key):
        return records.load(Verification, store.path("verification", key) / "verification.json")
    with step("verify: the exercise on the tailored machine"):
        target = verify.Target(machine, inputs.image.config, inputs.exercise, inputs.tools, made.network)
        found = verify.verify(target, findings.trace, findings.events, inputs.scratch)
    if found.passed:  # a failure may be the host's: it is asked again
        store.get("verification", key, lambda folder: records.save(found, folder / "verification.json"))
    return found


@dataclass(eq=False)
class FitBench:
    """Changes of the configuration, tried on one fit: planned, compiled, and verified against the trace. `before` is
    what the plan without them did, `drop` what is left out of all plans beside, `on_built` is told each machine before
    it is verified."""

    findings: Fitting
    before: TrialRun = NOTHING
    drop: tuple[str, ...] = ()
    on_built: Callable[[Built], None] = lambda built: None
    _last: tuple[tuple[Change, ...], Plan] | None = None

    def apply(self, changes: Sequence[Change]) -> tuple[Built, tuple[Change, ...]]:
        """The plan with the changes, and its kernel. Raises BuildError where it cannot be had."""
        made = self.plan(changes)
        kernel = built(self.findings, made)
        return Built(made, kernel, self.findings.machine_of(made, kernel)), tuple(changes)

    def plan(self, changes: Sequence[Change]) -> Plan:
        """The plan alone; asked twice for the same, made once. Raises BuildError where the configuration cannot be
        had."""
        if self._last is None or self._last[0] != tuple(changes):
            self._last = tuple(changes), self.findings.planned(changes, self.drop)
        return self._last[1]

    def run(self, made: Mapping[str, Built]) -> tuple[TrialRun, Mapping[str, Ran[Fitted]]]:
        """The exercise on each machine."""
        return self.before, {name: self._ran(one) for name, one in made.items()}

    def _ran(self, made: Built) -> Ran[Fitted]:
        self.on_built(made)
        verification = self.findings.verified(made.plan, made.machine)
        fitted = Fitted(made.plan, made.kernel, made.machine, verification)
        return Ran(run_of(fitted), fitted)


def run_of(fitted: Fitted) -> TrialRun:
    """What verification said, as changes are judged by: whether it works, and how many symbols that takes."""
    symbols = Samples(Figure.SYMBOLS, (float(fitted.plan.prompted_y),), exact=True)
    return TrialRun(fitted.verification.failures, (symbols,))


def trials(
    findings: Fitting,
    before: Fitted | None = None,
    drop: tuple[str, ...] = (),
    on_built: Callable[[Built], None] = lambda built: None,
) -> Trials[Built, Fitted]:
    """The engine on this fit; every trial of it is on the fit's record."""
    bench = FitBench(findings, run_of(before) if before is not None else NOTHING, drop, on_built)
    return Trials(bench, findings.trials)


def required(tried: Tried[Fitted]) -> Fitted:
    """What was tried. Raises BuildError where it could not be had."""
    if tried.result is None:
        raise BuildError(
            "; ".join(tried.trial.failures), hint="vmtailor explain says what keeps a symbol, and what needs it"
        )
    return tried.result
