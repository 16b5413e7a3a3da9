# SPDX-License-Identifier: Apache-2.0
"""A system with an init of its own as the subject of a fit: its preparation, trace, plan, machine and verdict, and the
trials beside its kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vmtailor.analysis.cost.attribution import Attribution
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.explain import messages
from vmtailor.analysis.explain.failure import recognise
from vmtailor.analysis.explain.presence import AskedKernel, Has, findings
from vmtailor.analysis.guests import machine_variants
from vmtailor.analysis.guests.system_losses import new_units
from vmtailor.analysis.systems.log import Mark, Reading
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files import dot_config, records, temporary
from vmtailor.base.files.digests import sha256_of
from vmtailor.base.process import require_tool
from vmtailor.base.progress import step
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.guest.attendant_volume import MODULES
from vmtailor.drivers.image import image_packages
from vmtailor.drivers.kernel import kernel_source
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.drivers.monitors import counts_file, monitors
from vmtailor.drivers.targets import targets
from vmtailor.model.architecture import Architecture, named
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.bundle import (
    DISKS,
    REQUESTS,
    SYSTEM,
    SYSTEM_EXERCISE,
    SYSTEM_RUN,
    SYSTEM_TRACED,
    TRACE,
)
from vmtailor.model.change import Change
from vmtailor.model.fit_run import FitRun, Warning
from vmtailor.model.image import Image
from vmtailor.model.kernel import KernelBaseline, KernelFiles
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.margin import Margin
from vmtailor.model.plan import Plan, RootFormat
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.systems.system import InitKind, System
from vmtailor.model.systems.units import UnitsMode
from vmtailor.model.trace import FileUse
from vmtailor.model.trial import Verification
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.model.watched.system_trace import SystemTrace
from vmtailor.pipeline import bundle_files, code_cost, fit_sides, judged_changes, keys, known_source
from vmtailor.pipeline.bundle_files import OwnFiles
from vmtailor.pipeline.code_cost import Code
from vmtailor.pipeline.image_subject import require_tools, source_of
from vmtailor.pipeline.measured_machines import Ahead, MeasureRequest
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.subject import AskUnits, Findings, Fitted, Improved, Times, UsersDisk, WorkFiles
from vmtailor.pipeline.systems import (
    disk_files,
    exercise_boots,
    inputs,
    named_changes,
    own_baseline,
    subjects,
    system_kernel,
    system_plan,
    unit_masks,
)
from vmtailor.pipeline.systems.driven_system import RAN, DrivenSystem, SystemSeen, until_ready
from vmtailor.pipeline.systems.system_plan import CONFIG_BYTES, HEAD_BYTES, SystemPlanInputs, symbol_in
from vmtailor.stages import exercise_file, system_verify, system_watch
from vmtailor.stages.container_trace import modules_of
from vmtailor.stages.kernel_plan import Wishes
from vmtailor.stages.system_files import OpenedSystem
from vmtailor.stages.system_verify import Counts, SystemTarget
from vmtailor.stages.system_watch import SystemTraceInputs, chunks_of

#: In the cache: the plugin's counts of the run of the exercise on the baseline.
COUNTS = "run.counts"
#: Under the tracer an exercise has so many times its time.
TRACED_TIMES = 8
#: Messages of a machine that failed, of which is asked what they ask for.
_MOST_MESSAGES = 40


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemSubject(DrivenSystem):
    """A system to be fitted, on a disk that a machine can be started from."""

    @property
    def reference(self) -> str:
        return self.system.reference

    @property
    def identity(self) -> str:
        return f"sha256:{self.sha256}"

    @property
    def description(self) -> bytes:
        return records.to_bytes(self.system)

    @property
    def copied(self) -> Path | None:
        return self.found.disk.path if self.found.disk is not None else None

    def trace_key(self) -> str:
        parts = [keys.content(path) for path in (self.natives.attendant, self.natives.small_init)]
        return keys.of_run(system_watch, self._traced_machine, self.exercise, self.natives, *parts)

    def trace(self, begun: Ahead | None = None) -> Findings[SystemSeen]:
        """Run the exercise on the system's own kernel, with every block counted, and once more with every call seen.
        The baseline is counted as soon as the first run has passed. It is counted later if the user will be asked
        something, since progress would be drawn over the question."""
        before, key = self.ran_before()
        if begun is not None and self.options.units is not UnitsMode.ASK:
            begun.begin(fit_sides.baseline_asked(self))
        record, folder = self.traced(before.boot.seconds)
        return self.counted(self.with_trace(record, folder, before, key))

    def with_trace(self, record: SystemTrace, folder: Path, before: SystemRun, before_key: str) -> Findings[SystemSeen]:
        """Return what is known with a trace that is there already, its files in `folder`. `before`: the exercise on the
        system's own kernel, and the name of that run."""
        asked = SystemPlanInputs(
            record=record,
            requests=chunks_of(folder / record.requests_file),
            baseline=self.config,
            source=self.source.path,
            tree=self.tree,
            known=self.known,
            head=lambda path: self.found.root.begin(path, HEAD_BYTES),
        )
        seen = SystemSeen(record=record, folder=folder, before=before, before_key=before_key, asked=asked, unsteady=[])
        return Findings(self, seen, self.tree)

    def counted(self, found: Findings[SystemSeen]) -> Findings[SystemSeen]:
        if found.costs is not None:
            return found
        run, key = self.ran_before()
        return replace(found, costs=self.costs(run, self.store.path("system-run", key) / COUNTS))

    def calls(self) -> tuple[Iterable[SyscallEvent], Sequence[FileUse]]:
        """Return the system calls, read while they are asked for, and the files of the system's trace."""
        before, _ = self.ran_before()
        record, folder = self.traced(before.boot.seconds)
        return calls_of(folder / record.requests_file), record.files

    def work_files(self) -> WorkFiles:
        before, _ = self.ran_before()
        record, folder = self.traced(before.boot.seconds)
        named = replace(record, requests_file=REQUESTS)
        return WorkFiles(
            kernel=self.kernel,
            saved={SYSTEM: self.system, SYSTEM_EXERCISE: self.exercise, SYSTEM_RUN: before, SYSTEM_TRACED: named},
            copied={f"{TRACE}/{REQUESTS}": folder / record.requests_file},
            disk=self.own_disk,
        )

    @property
    def own_disk(self) -> UsersDisk:
        """Return the disk as it was given."""
        (disk, *_) = self.baseline.disks
        return UsersDisk(DISKS[disk.format], Path(disk.path), self.sha256)

    @property
    def before_key(self) -> str:
        """Return the name of the exercise's run on the baseline in the cache."""
        return self.run_key(self.target_of(self.baseline), "counted")

    def ran_before(self) -> tuple[SystemRun, str]:
        """Run the exercise on the baseline; the run comes with its name in the cache. Raises GuestError when it does
        not pass."""
        target, key = self.target_of(self.baseline), self.before_key

        def fill(folder: Path) -> None:
            with step("the exercise on the system's own kernel"), temporary.held_folder(self.scratch) as scratch:
                found = system_verify.baseline(target, scratch, Counts(self.table, folder / COUNTS))
            records.save(found, folder / RAN)

        return records.load(SystemRun, self.store.get("system-run", key, fill) / RAN), key

    @property
    def _traced_machine(self) -> Machine:
        """Return the machine as it is traced: on the instruction clock a busy host changes nothing of what is seen."""
        machine = system_kernel.machine_of(self.found, self.own, memory_bytes=self.options.memory_bytes, cpus=1)
        return self.with_exercise(replace(machine, entropy=False))

    def traced(self, plain_s: float) -> tuple[SystemTrace, Path]:
        """Return the trace, and the folder with its files; found again when nothing it depends on has changed.
        `plain_s`: host seconds that the same exercise took without the tracer, on the same kernel. What fails only
        while everything is seen is the tracer's doing, since it passes without (`only_traced`). Raises GuestError where
        the system does not even get ready under the tracer: what its exercise needs was not seen."""
        machine = self._traced_machine

        def fill(folder: Path) -> None:
            with temporary.held_folder(self.scratch) as scratch:
                root = exercise_boots.root_of(self.system, machine.words)
                target = SystemTarget(machine, root, patient(self.exercise), self.natives)
                work = system_verify.workload(target, scratch).unhurried(machine.clock)
                wanted = SystemTraceInputs(
                    subject=self.reference,
                    machine=machine,
                    workload=work,
                    modules=self.own.modules,
                    way_in=self.own.way_in,
                    natives=self.natives,
                    plain_s=plain_s,
                    booter=system_verify.booter(self.natives),
                )
                found = system_watch.trace(wanted, folder, scratch)
            if found.boot.outcome not in (Outcome.READY, Outcome.WRONG):  # `WRONG`: it was ready
                raise GuestError(
                    f"the system does not get ready while every system call is seen: {found.boot.problem}",
                    hint="it takes several times as long then; give it more time (timeout_s of [ready])",
                )

        folder = self.store.get("system-trace", self.trace_key(), fill)
        return records.load(SystemTrace, folder / system_watch.RECORD), folder

    def costs(self, run: SystemRun, counts: Path) -> Attribution | None:
        """Return the cost of the baseline's kernel by function, file and symbol. None when nothing was counted: an
        exercise with steps from outside is driven on the wall clock. `counts`: the plugin's file."""
        if not counts.is_file():
            return None
        paths = self.own.modules.paths
        with step("attribution of the baseline's cost"):
            return code_cost.of_system(
                Code.of(self, self.tree),
                counts_file.read(counts),
                modules_of(run.report.file(MODULES.name), ""),
                lambda name: paths.get(name, ""),
                symbol_in(self.source.path),
            )

    def plan(
        self,
        found: Findings[SystemSeen],
        tried: Sequence[Change],
        drop: Sequence[str],
        margins: tuple[Margin, ...] | None,
    ) -> Plan:
        """Choose the configuration: everything is built in, and there are no margins."""
        options, disk = self.options, self.system.disk
        wishes = Wishes(
            architecture=self.architecture.name,
            machine=options.machine,
            cpus=options.cpus,
            keep=options.keep,
            needs=targets.needed(options.targets, self.architecture.name),
            drop=(*options.drop, *drop),
            partitioned=disk is not None and disk.root != 0,
            mapped=disk is not None and disk.volume is not None,
            root_format=RootFormat(disk.root_type) if disk is not None else RootFormat.EXT4,
        )
        seen = found.seen
        return system_plan.make_system_plan(
            seen.asked, seen.demands, wishes, as_modules=False, ran=found.ran, tried=tried
        )

    def machine(self, made: Plan, kernel: KernelFiles) -> Machine:
        return inputs.fitted(self.options, self.system, inputs.disk_of(self.found), made, kernel)

    def verification_key(self, found: Findings[SystemSeen], made: Plan, machine: Machine) -> str:
        return self.run_key(self.target_of(machine), found.seen.before_key)

    def judge(self, found: Findings[SystemSeen], made: Plan, machine: Machine) -> tuple[Verification, bool]:
        """Run the exercise on a machine, and judge it by the baseline's run. A failure that asks for nothing may be the
        host's, or a race's: it is repeated before kernels are compiled for it. A run that passes only then is not kept:
        a second fit repeats it, and warns, for itself."""
        target, seen = self.target_of(machine), found.seen
        verify = partial(system_verify.verify, target, seen.before)
        first = self._verified("verify: the exercise on the tailored machine", made, verify)
        if first.passed or first.needs:
            return first, True
        verify = partial(system_verify.verify_again, target, seen.before, first)
        again = self._verified("verify: once more, since it failed and asked for nothing", made, verify)
        if again.passed:
            seen.unsteady.extend(again.races)
        return again, False

    def _verified(self, title: str, made: Plan, verify: Callable[[Path], Verification]) -> Verification:
        """Return a verdict with the symbols that its messages ask for, where it is a failure."""
        with step(title) as shown, temporary.held_folder(self.scratch) as folder:
            found = verify(folder)
            if not found.passed:
                shown.fail()
        if found.passed:
            return found
        return replace(found, needs=tuple(dict.fromkeys((*found.needs, *self._asked_for(found, made)))))

    def _asked_for(self, found: Verification, made: Plan) -> list[str]:
        """Return the symbols that the messages of a machine that failed ask for, as far as that can be told."""
        kernel, kinds = AskedKernel.of_plan(made), messages.load()
        told = dict.fromkeys((*found.failures, *found.complaints, *found.evidence.splitlines()))
        asks = [ask for text in list(told)[:_MOST_MESSAGES] for ask in recognise(text, self.known, kinds).asks]
        return [one.symbol for one in findings(asks, self.known, kernel) if one.has is Has.OUT and one.symbol]

    def asked(
        self,
        machine: Machine,
        table: SymbolTable,
        title: str,
        beside: MeasureRequest | None = None,
        *,
        network: bool = False,
    ) -> MeasureRequest:
        root = exercise_boots.root_of(self.system, machine.words)
        target = SystemTarget(machine, root, self.exercise, self.natives)
        return until_ready(target, table, title, self.options.boots, self.store, beside)

    def improve(self, found: Findings[SystemSeen], fitted: Fitted, times: Times, ask: AskUnits | None) -> Improved:
        """Mask units that the system does without, and keep the named changes with which it is faster."""
        units = tuned = None
        if self.system.init.kind is InitKind.SYSTEMD:
            with times.of("units"):
                fitted, units = unit_masks.chosen(self, found, fitted, ask)
        if self.options.tries or self.options.files:
            with times.of("changes beside the kernel"):
                fitted, tuned = named_changes.chosen(self, found, fitted)
            units = unit_masks.with_tuned(units, tuned.kept) if units is not None else None
        warnings = (*(unit_masks.warnings(units) if units else ()), *(named_changes.warnings(tuned) if tuned else ()))
        return Improved(fitted, units, tuned, warnings)

    def doubts(self, found: Findings[SystemSeen]) -> tuple[Warning, ...]:
        """Return warnings about failures under the tracer alone, and about failures that did not repeat."""
        traced = (
            f"only while every system call was seen: {text}; what it would have asked for may be missing"
            for text in only_traced(found.seen)
        )
        unsteady = (
            f"failed once on the fitted machine, and passed there when it was asked again: {text}"
            for text in found.seen.unsteady
        )
        return (*(Warning("traced", text) for text in traced), *(Warning("unsteady", text) for text in unsteady))

    def told(self, run: FitRun, found: Findings[SystemSeen], fitted: Fitted) -> FitRun:
        return replace(run, system=self.system, system_ports=self.exercise.ports)

    def seal(self, folder: Path, run: FitRun, found: Findings[SystemSeen], fitted: Fitted) -> None:
        os, seen = self.system.os, found.seen
        own = OwnFiles(
            root=DISKS[fitted.machine.disks[0].format],
            saved={SYSTEM: self.system, SYSTEM_EXERCISE: self.exercise, SYSTEM_RUN: seen.before},
            copied={},
            traced={name: seen.folder / name for name in (system_watch.RECORD, seen.record.requests_file)},
            listed={},
            inventory=image_packages.inventory_of(self.found.root.text, os.id, os.version_id),
        )
        bundle_files.fill(folder, run, found, fitted, own)

    def users_disk(self, run: FitRun) -> UsersDisk | None:
        """Return the disk as it was given, or a copy with the files that the fit has kept."""
        if run.tuned is None or not (files := run.tuned.files):
            return self.own_disk
        disk = disk_files.with_files(self, self.baseline.disks[0], files)
        return UsersDisk(DISKS[disk.format], Path(disk.path), sha256_of(Path(disk.path)))


def calls_of(log: Path) -> Iterator[SyscallEvent]:
    """Yield the system calls of a system's trace, read while they are asked for."""
    return (one for one in Reading().read(chunks_of(log)) if not isinstance(one, Mark))


def only_traced(seen: SystemSeen) -> tuple[str, ...]:
    """Return the failures under the tracer alone, in sentences: steps, and units that the system calls failed."""
    before, traced_boot = seen.before.boot, seen.record.boot
    failures = [text for text in traced_boot.failures if text not in before.failures]
    return (*failures, *(f"unit {name} failed" for name in new_units(before, traced_boot)))


def patient(exercise: SystemExercise) -> SystemExercise:
    """Return the exercise with the longer times that it takes under the tracer."""
    ready = replace(exercise.ready, timeout_s=TRACED_TIMES * exercise.ready.timeout_s)
    return replace(
        exercise, ready=ready, step_timeout_s=TRACED_TIMES * exercise.step_timeout_s,
        stop_timeout_s=TRACED_TIMES * exercise.stop_timeout_s,
    )  # fmt: skip


@contextmanager
def prepare(options: FitOptions, image: Image | None) -> Iterator[SystemSubject]:
    """Open a system, and prepare it for as long as the block lasts. `image`: None for a disk. Raises UserInputError for
    options that it cannot have."""
    inputs.refuse_for_images(options)
    judged_changes.require_tried(options)
    with subjects.on_disk(options, image) as found:
        inputs.refuse_units(options, found.subject.init)
        inputs.refuse_files(options, found.root)
        assert options.exercise_file is not None
        yield of_opened(options, found, exercise_file.load_system(options.exercise_file))


def of_opened(
    options: FitOptions, found: OpenedSystem, exercise: SystemExercise, source: SourceTree | None = None
) -> SystemSubject:
    """Return the subject of a system whose files are open; what is missing is fetched. Errors in the user's input are
    found before anything long begins."""
    temporary.require_usable()
    inputs.refuse_console(exercise)
    judged_changes.of_system(options, exercise)
    architecture = named(found.subject.architecture)
    options = _settled(options, found.subject, architecture)
    require_tools(architecture)
    monitors.usual().require_cpu(architecture.name, options.machine, options.cpu_model)
    require_tool("strace")
    require_tool("mke2fs", "e2fsprogs")
    parts = guest_programs.of(options.architecture)
    taken = inputs.taken_out(found, parts, options.store)
    start = own_baseline.provide(options, found, taken, architecture)
    kernel = start.kernel
    with temporary.held_folder() as folder:
        own = replace(system_kernel.kernel_of(found, folder), file=start.file)
    source = source or source_of(options, kernel)
    kernel_source.require_version(source, kernel.version, "the baseline")
    whole = known_source.known_of(source, options.architecture, options.store)
    return SystemSubject(
        options=options,
        architecture=architecture,
        found=found,
        sha256=inputs.identity_of(found, options.store),
        exercise=exercise,
        kernel=kernel,
        source=source,
        tree=whole.read,
        known=whole.known,
        natives=parts,
        own=own,
        baseline=_baseline(options, architecture, found, start.file, taken / inputs.INITRD),
        table=SymbolTable.parse(Path(kernel.system_map).read_text(), options.architecture),
        config=_config(found, kernel),
    )


def _settled(options: FitOptions, subject: System, architecture: Architecture) -> FitOptions:
    """Return the options with what the system says where the user said nothing. Raises UserInputError for another
    processor, or a machine that it does not have."""
    if options.architecture not in ("", architecture.name):
        raise UserInputError(f"{subject.reference} is a system for {architecture.title}", hint="leave --arch out")
    machine = architecture.board_named(options.machine or architecture.board_names[0]).name
    memory = options.memory_bytes if options.memory_asked else machine_variants.USUAL.memory_bytes
    return replace(
        options, architecture=architecture.name, machine=machine, memory_bytes=memory,
        cpu_model=options.cpu_model or architecture.emulator.cpu_model,
    )  # fmt: skip


def _config(found: OpenedSystem, kernel: KernelBaseline) -> dict[str, str]:
    installed = found.subject.installed
    if installed is not None and installed.config:
        return dot_config.parse(found.root.text(installed.config, CONFIG_BYTES))
    return dot_config.parse(Path(kernel.config).read_text())


def _baseline(
    options: FitOptions, architecture: Architecture, found: OpenedSystem, kernel: Path, initrd: Path
) -> Machine:
    """Return the system's own kernel, with the initial RAM disk and the words that its loader would give it, in the
    machine that is planned for."""
    return Machine(
        board=options.machine,
        memory_bytes=options.memory_bytes,
        kernel=str(kernel),
        initrd=str(initrd),
        words=inputs.words(found.subject, architecture),
        disks=(inputs.disk_of(found),),
        network=True,
        cpu_model=options.cpu_model,
        cpus=options.cpus,
        clock=Clock.INSTRUCTIONS,
        acpi=True,
        architecture=architecture.name,
    )
