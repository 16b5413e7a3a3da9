# SPDX-License-Identifier: Apache-2.0
"""Trace, plan, build, verify, and the repairs between them: until a kernel passes, or the budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from vmtailor.analysis.changes import causes, repair
from vmtailor.analysis.cost import attribution, counters
from vmtailor.analysis.cost.attribution import Attribution, SymbolCost
from vmtailor.analysis.demands import demand, demand_rules
from vmtailor.analysis.explain import explain
from vmtailor.analysis.guests import machines
from vmtailor.analysis.ksource import facts, modules
from vmtailor.analysis.ksource.closure import addable
from vmtailor.base import records
from vmtailor.base.errors import BuildError
from vmtailor.base.progress import step
from vmtailor.base.store import digest
from vmtailor.drivers.image import flat_archive
from vmtailor.drivers.image.flat_archive import FlatArchive
from vmtailor.drivers.kernel import symbolizer
from vmtailor.drivers.qemu import plugin_file
from vmtailor.model.architecture import named
from vmtailor.model.fit import Trial
from vmtailor.model.kernel import KernelFiles
from vmtailor.model.machine import Machine
from vmtailor.model.plan import Cause, Plan
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.trace import Trace
from vmtailor.pipeline import keys
from vmtailor.pipeline.ground import Ground
from vmtailor.stages import build, plan, trace, verify
from vmtailor.stages.plan import Repair, Tree, Wishes
from vmtailor.stages.verify import Verification


@dataclass(eq=False)
class Findings:
    """What is known so far of one fit."""

    ground: Ground
    trace: Trace
    trace_folder: Path
    events: tuple[SyscallEvent, ...]
    archive: FlatArchive
    tree: Tree
    costs: Attribution
    trials: list[Trial] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A plan with its kernel and what verification said. `passed` is False when repair gave up."""

    plan: Plan
    kernel: KernelFiles
    machine: Machine
    verification: Verification


def find(ground: Ground) -> Findings:
    """Trace on the baseline, and read the source: everything that a plan is made of."""
    record, folder = traced(ground)
    ground = ground.having_loaded(modules_asked_for(record), [module.name for module in record.modules])
    events = trace.read_log(folder, record).events
    archive = flat_archive.read(Path(ground.image.archive))
    with step("facts of the kernel source"):
        tree = plan.read_tree(
            ground.source.path, ground.kernel.version, ground.source.digest, ground.options.store,
            architecture=ground.options.architecture,
        )  # fmt: skip
    with step("attribution of the baseline's cost"):
        costs = attributed(ground, record, folder, tree)
    return Findings(ground, record, folder, events, archive, tree, costs)


def trace_key(ground: Ground) -> str:
    """Everything that a trace depends on."""
    return keys.of_run(trace, ground.baseline, ground.exercise, ground.natives, keys.content(ground.tools))


def traced(ground: Ground) -> tuple[Trace, Path]:
    """The trace, and the folder with its files; found again when nothing it depends on has changed."""
    store = ground.options.store
    key = trace_key(ground)

    def fill(folder: Path) -> None:
        inputs = trace.TraceInputs(
            image=ground.image,
            exercise=ground.exercise,
            machine=ground.machine_with,
            modules=Path(ground.kernel.modules_dir),
            kernel_release=ground.kernel.release,
            table=ground.table,
            natives=ground.natives,
            tools=ground.tools,
        )
        trace.trace(inputs, folder, ground.scratch)

    folder = store.get("trace", key, fill)
    return records.load(Trace, folder / trace.RECORD), folder


def modules_asked_for(record: Trace) -> tuple[str, ...]:
    """Names of the modules that the traced machine has loaded because the container made the kernel ask for them."""
    return tuple(dict.fromkeys(one.module for one in record.modules_requested))


def attributed(ground: Ground, record: Trace, folder: Path, tree: Tree) -> Attribution:
    """What every function, file and symbol of the baseline's kernel cost in the coverage boot."""
    counts = plugin_file.read(folder / record.coverage_file)
    where = attribution.addresses(counts).tolist()
    sections = [(module.name, name, at) for module in record.modules for name, at in module.sections]
    files = {path.stem.replace("-", "_"): path for path in Path(ground.kernel.debug_modules_dir).rglob("*.ko")}
    row = named(counts.architecture)
    inside = [at for at in where if row.addresses.is_module(at)]
    image = [at for at in where if not row.addresses.is_module(at)]
    frames = symbolizer.symbolize(Path(ground.kernel.debug_vmlinux), image)
    frames |= symbolizer.symbolize_modules(files, sections, inside)
    conditions = attribution.Conditions(tree.facts, facts.reader(ground.source.path))
    phase_of = {id(stretch): phase.value for phase, stretch in counters.phased(counts)}
    return attribution.attribute(
        counts,
        frames,
        conditions,
        enabled={name: value for name, value in ground.config.items() if value in ("y", "m")},
        choosable=tree.kconfig.prompted,
        always=tree.always(),
        phase_of=lambda stretch: phase_of.get(id(stretch), stretch.begin),
    )


def planned(
    findings: Findings, repairs: Sequence[Repair] = (), drop: Sequence[str] = (), unneeded: Sequence[Repair] = ()
) -> Plan:
    """The plan, with what repair has put back, and without what a trial leaves out or has shown to be unneeded."""
    ground = findings.ground
    options = ground.options
    demands = plan.find_demands(
        ground.image.config, ground.exercise, findings.events, findings.tree, ground.config, head=findings.archive.head
    )
    read = facts.reader(ground.source.path)
    demand.of_modules(findings.trace.modules_requested, demands, lambda path: modules.symbol_of(path, read))
    wishes = Wishes(
        architecture=options.architecture,
        machine=options.machine,
        cpus=options.cpus,
        root_format=options.root_format,
        terminal=options.terminal,
        keep=options.keep,
        drop=(*options.drop, *drop),
    )
    ran: dict[str, SymbolCost] = findings.costs.by_symbol()
    return plan.make_plan(
        ground.image.config,
        demands,
        findings.tree,
        ground.config,
        wishes,
        ran=ran,
        repairs=tuple(repairs),
        unneeded=tuple(unneeded),
    )


def machine_of(ground: Ground, made: Plan, kernel: KernelFiles) -> Machine:
    """The tailored machine."""
    return machines.tailored_machine(
        named(made.architecture),
        made.machine,
        Path(kernel.image),
        ground.root,
        made.root_format,
        [word.word for word in made.words],
        memory_bytes=ground.options.memory_bytes,
        cpu_model=ground.options.cpu_model,
        cpus=made.cpus,
    )


def built(findings: Findings, made: Plan) -> KernelFiles:
    """The kernel of a plan."""
    ground = findings.ground
    return build.build_kernel(made, ground.source.path, ground.source.digest, ground.options.store)


def attempt(findings: Findings, made: Plan, purpose: str, added: Sequence[str], removed: Sequence[str] = ()) -> Fitted:
    """Build one plan and verify it; the trial is put on record."""
    ground = findings.ground
    started = time.monotonic()
    kernel = built(findings, made)
    finished = time.monotonic()
    machine = machine_of(ground, made, kernel)
    verification = verified(findings, made, machine)
    findings.trials.append(
        Trial(
            number=len(findings.trials) + 1,
            purpose=purpose,
            added=tuple(added),
            removed=tuple(removed),
            passed=verification.passed,
            failures=verification.failures,
            build_seconds=finished - started,
            verify_seconds=time.monotonic() - finished,
        )
    )
    return Fitted(made, kernel, machine, verification)


def attempt_or_not(
    findings: Findings, make: Callable[[], Plan], purpose: str, added: Sequence[str], removed: Sequence[str]
) -> Fitted | None:
    """The same, where a kernel that cannot be had with these symbols is an answer, too: put on record, and None."""
    try:
        return attempt(findings, make(), purpose, added, removed)
    except BuildError as error:
        number = len(findings.trials) + 1
        findings.trials.append(Trial(number, purpose, tuple(added), tuple(removed), False, (error.message,), 0.0, 0.0))
        return None


def verified(findings: Findings, made: Plan, machine: Machine) -> Verification:
    """What verification says of a machine; asked once for the same bytes."""
    ground = findings.ground
    key = keys.of_run(verify, machine, ground.exercise, ground.natives, trace_key(ground), digest(str(made.network)))
    store = ground.options.store
    if store.has("verification", key):
        return records.load(Verification, store.path("verification", key) / "verification.json")
    with step("verify: the exercise on the tailored machine"):
        target = verify.Target(
            machine, ground.image.config, ground.exercise, ground.natives, ground.tools, made.network
        )
        found = verify.verify(target, findings.trace, findings.events, ground.scratch)
    if found.passed:  # a failure may be the host's: it is asked again
        store.get("verification", key, lambda folder: records.save(found, folder / "verification.json"))
    return found


def fit_kernel(findings: Findings) -> Fitted:
    """Plan, build and verify; when that fails, put back what was dropped, nearest first, within the budget."""
    with step("plan"):
        first = planned(findings)
    fitted = attempt(findings, first, "first build", ())
    if fitted.verification.passed:
        return fitted
    return repaired(findings, fitted)


def repaired(findings: Findings, failing: Fitted) -> Fitted:
    """Search what was dropped for what is missing. Gives the last trial back when the budget is spent, or nothing
    helped; every trial is on record."""
    tree = findings.tree
    candidates = explain.nearest(
        failing.verification.degraded, failing.plan.left_out, tree.facts, demand_rules.load(), tree.kconfig
    )
    needs = [name for name in failing.verification.needs if tree.kconfig.known(name)]
    with step("repair: what can be put back"):
        pool = addable(tree.kconfig, failing.plan.fragment, list(dict.fromkeys([*needs, *candidates])))
    search = repair.search(pool)
    answer: bool | None = None
    best, last = failing, failing
    known: tuple[str, ...] = ()
    while len(findings.trials) < findings.ground.options.budget:
        try:
            tried = search.send(answer)  # type: ignore[arg-type]
        except StopIteration as stop:
            if stop.value is None:
                return last
            return best
        number = len(findings.trials) + 1
        text = "; ".join(failing.verification.failures[:2])
        repairs = [Repair(name, f"trial:{number}", f"without it: {text}") for name in tried]
        added, removed = sorted(set(tried) - set(known)), sorted(set(known) - set(tried))
        known = tuple(tried)
        with step(f"repair, trial {number}: {', '.join(tried[:4])}{' …' if len(tried) > 4 else ''}"):
            trial = attempt_or_not(findings, partial(planned, findings, repairs), "repair", added, removed)
        answer = trial is not None and trial.verification.passed
        if trial is not None:
            last = trial
            best = trial if answer else best
    return best


def repairs_of(made: Plan) -> list[Repair]:
    """The repairs that a plan holds."""
    return [
        Repair(choice.name, reason.reference.removeprefix("repair:"), reason.text)
        for choice in made.choices
        for reason in choice.reasons
        if reason.cause is Cause.REPAIR and causes.is_kept(choice)
    ]


def without(findings: Findings, fitted: Fitted, names: Sequence[str]) -> Fitted:
    """The same plan without some symbols: built, verified, and on record as a trial."""
    made = planned(findings, repairs_of(fitted.plan), drop=names)
    return attempt(findings, made, "unneeded?", (), names)
