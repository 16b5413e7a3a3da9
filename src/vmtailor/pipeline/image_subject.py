# SPDX-License-Identifier: Apache-2.0
"""An image as the subject of a fit: its exercise, root, tools and baseline; its trace, plan, machine and verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.demands import demand, demand_rules, file_uses, refusals, strace_log
from vmtailor.analysis.guests import machine_variants
from vmtailor.analysis.ksource import facts, kbuild, security_modules
from vmtailor.analysis.reach import reach_symbols
from vmtailor.analysis.reach.reach_symbols import Reached
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import dot_config, records, temporary
from vmtailor.base.natives import Natives
from vmtailor.base.package_manager import install_command
from vmtailor.base.process import on_path, require_tool
from vmtailor.base.progress import step
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.distribution.distribution import Distribution
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.image import flat_archive, image_packages
from vmtailor.drivers.image.allowance import ImageLimits
from vmtailor.drivers.image.flat_archive import FlatArchive
from vmtailor.drivers.kernel import compiled_baseline, kernel_source
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.rootfs import initramfs, tracer_volume
from vmtailor.drivers.targets import targets
from vmtailor.model.architecture import Architecture, named, of_host, of_image
from vmtailor.model.boots.boot import Boot
from vmtailor.model.bundle import EXERCISE, IMAGE, INIT, LOGS, TRACED
from vmtailor.model.change import Change
from vmtailor.model.exercise import Exercise, Proof, StepKind
from vmtailor.model.fit_run import FitRun, Side, Warning
from vmtailor.model.image import Image
from vmtailor.model.kernel import KernelBaseline, KernelFiles
from vmtailor.model.machine import Machine
from vmtailor.model.margin import Margin, MarginPrice
from vmtailor.model.plan import Plan, RootFormat
from vmtailor.model.syscalls import ObservedCall, SyscallEvent
from vmtailor.model.trace import FileUse, Trace
from vmtailor.model.trial import Verification
from vmtailor.pipeline import (
    bundle_files,
    code_cost,
    fit_sides,
    image_changes,
    judged_changes,
    keys,
    margin_cost,
    reach_cache,
    run_environment,
)
from vmtailor.pipeline.bundle_files import OwnFiles
from vmtailor.pipeline.keys import content
from vmtailor.pipeline.measured_machines import Ahead, MeasureRequest
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.subject import AskUnits, Findings, Fitted, Improved, Subject, Times, WorkFiles
from vmtailor.stages import container_trace, exercise_file, kernel_plan, measure, verify
from vmtailor.stages import image_fetch as image_stage
from vmtailor.stages.kernel_plan import KernelTree, Wishes
from vmtailor.stages.measure import MeasuredMachine
from vmtailor.stages.root_volume import build_root


@dataclass(frozen=True, eq=False)
class ImageSeen:
    """The trace of a container, with its files in `folder`, and the requests that its image could make. `observed`:
    calls refused in runs. `before`: symbols that repair put back in the fit before (`refit`). `name`: the name of a
    trace that was made elsewhere; results from it are kept apart from those of our own trace."""

    record: Trace
    folder: Path
    events: tuple[SyscallEvent, ...]
    archive: FlatArchive
    reached: tuple[Reached, ...] = ()
    observed: tuple[ObservedCall, ...] = ()
    name: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageSubject(Subject[ImageSeen]):
    """An image that was prepared. `root`: its root file system; `tools`: the tracer's volume."""

    NOUN = "image"

    image: Image
    exercise: Exercise
    root: Path
    tools: Path

    @property
    def reference(self) -> str:
        return self.image.reference

    @property
    def identity(self) -> str:
        return self.image.digest

    @property
    def description(self) -> bytes:
        return records.to_bytes(replace(self.image, archive=""))

    @property
    def inside(self) -> Exercise:
        return self.exercise

    @property
    def margins(self) -> tuple[Margin, ...]:
        """Return the margins that are kept beyond the demands."""
        return with_margins(self.options, self.exercise).margins or ()

    def machine_with(self, modules: tuple[str, ...]) -> Machine:
        """Return the baseline machine that also loads these modules before the container starts."""
        if not modules:
            return self.baseline
        return baseline_of(self.options, self.architecture, self.kernel, self.natives, self.root, modules)

    def as_traced(self, record: Trace) -> ImageSubject:
        """Return the subject whose baseline loads the modules that the trace loaded for the container."""
        wanted = modules_asked_for(record)
        kernel, options = self.kernel, self.options
        if wanted:
            kernel = packaged_baseline.with_debug_modules(
                options.distribution, self.architecture, kernel, self.store, [module.name for module in record.modules]
            )
        return replace(self, baseline=self.machine_with(wanted), kernel=kernel)

    def trace_key(self) -> str:
        return keys.of_run(container_trace, self.baseline, self.exercise, self.natives, content(self.tools))

    def trace(self, begun: Ahead | None = None) -> Findings[ImageSeen]:
        return self.known(*self.traced(begun), begun)

    def calls(self) -> tuple[Iterable[SyscallEvent], Sequence[FileUse]]:
        record, folder = self.traced()
        return container_trace.read_log(folder, record).events, record.files

    def work_files(self) -> WorkFiles:
        return self.files_of(*self.traced())

    def files_of(self, record: Trace, folder: Path) -> WorkFiles:
        """Return what begins a work folder with a trace, its files in `folder`."""
        logs = (folder / record.coverage_file, folder / record.requests_file)
        return WorkFiles(
            kernel=self.as_traced(record).kernel,
            saved={TRACED: record, EXERCISE: self.exercise},
            copied=dict(zip(LOGS, logs, strict=True)),
            image=self.image,
        )

    def traced(self, begun: Ahead | None = None) -> tuple[Trace, Path]:
        """Return the trace, and the folder with its files, from the cache if nothing that it depends on has changed.
        `begun`: counts the baseline as soon as one boot of it was counted, before it is known whether modules are
        missing."""

        def counted(boot: Boot) -> None:
            if begun is not None:
                begun.begin(fit_sides.baseline_asked(self, boot))

        def fill(folder: Path) -> None:
            wanted = container_trace.TraceInputs(
                image=self.image,
                exercise=self.exercise,
                machine=self.machine_with,
                modules=Path(self.kernel.modules_dir),
                kernel_release=self.kernel.release,
                table=self.table,
                natives=self.natives,
                tools=self.tools,
            )
            container_trace.trace(wanted, folder, self.scratch, counted)

        folder = self.store.get("trace", self.trace_key(), fill)
        return records.load(Trace, folder / container_trace.RECORD), folder

    def known(self, record: Trace, folder: Path, begun: Ahead | None = None, name: str = "") -> Findings[ImageSeen]:
        """Return the findings from an existing trace, its files in `folder`. `begun`: counts the baseline, and gives up
        another one that the trace began with. `name`: as in `ImageSeen`."""
        subject = self.as_traced(record)
        if begun is not None:
            same = record.coverage_boot if record.machine == subject.baseline else None
            wanted = fit_sides.baseline_asked(subject, same)
            begun.keep_only(wanted.key)
            begun.begin(wanted)
        events = container_trace.read_log(folder, record).events
        archive = flat_archive.read(Path(self.image.archive))
        with step("facts of the kernel source"):
            tree = kernel_plan.read_tree(
                self.source.path,
                self.kernel.version,
                self.source.digest,
                self.store,
                architecture=self.architecture.name,
            )
        with step("attribution of the baseline's cost"):
            costs = code_cost.attributed(subject, record, folder, tree)
        with step("reach: what the image could ask for"):
            reached = subject.reached(record, archive, tree)
        return Findings(
            subject,
            ImageSeen(record=record, folder=folder, events=events, archive=archive, reached=reached, name=name),
            tree,
            costs,
        )

    def reached(self, record: Trace, archive: FlatArchive, tree: KernelTree) -> tuple[Reached, ...]:
        """Return the requests that the image could make of the kernel, and the symbols for them that the baseline
        has."""
        baseline = security_modules.at_work(self.config, facts.reader(self.source.path), tree.facts)
        kernel = reach_cache.names_of(tree.facts, self.source.path, self.architecture)
        opened = reach_cache.opened_in(record)
        reach = reach_cache.reach_of(self.image, archive, opened, kernel, self.architecture, self.store)
        return reach_symbols.of_reach(reach, tree.facts, demand_rules.load(architecture=self.architecture), baseline)

    def plan(
        self,
        found: Findings[ImageSeen],
        tried: Sequence[Change],
        drop: Sequence[str],
        margins: tuple[Margin, ...] | None,
    ) -> Plan:
        seen, options = found.seen, self.options
        demands = kernel_plan.find_demands(
            self.image.config, self.exercise, seen.events, found.tree, self.config,
            head=seen.archive.head, architecture=self.architecture.name,
        )  # fmt: skip
        demand.of_access_lists(seen.archive.listed, options.root_format, demands)
        read = facts.reader(self.source.path)
        demand.of_modules(seen.record.modules_requested, demands, lambda path: kbuild.symbol_of_module(path, read))
        refusals.of_observed(seen.observed, demands, self.config)
        wishes = Wishes(
            architecture=self.architecture.name,
            machine=options.machine,
            cpus=options.cpus,
            root_format=options.root_format,
            terminal=options.terminal,
            keep=options.keep,
            needs=targets.needed(options.targets, self.architecture.name),
            drop=(*options.drop, *drop),
            margins=self.margins if margins is None else margins,
        )
        return kernel_plan.make_plan(
            self.image.config, demands, found.tree, self.config, wishes,
            ran=found.ran, tried=tried, reached=seen.reached,
        )  # fmt: skip

    def machine(self, made: Plan, kernel: KernelFiles) -> Machine:
        return machine_with(self.options, self.root, made, kernel)

    def verification_key(self, found: Findings[ImageSeen], made: Plan, machine: Machine) -> str:
        traced = (self.trace_key(), *([found.seen.name] if found.seen.name else []))
        used = digest(str(made.network), str(sorted(map(str, self.image.config.exposed_ports))))
        return keys.of_run(verify, machine, self.exercise, self.natives, *traced, used)

    def judge(self, found: Findings[ImageSeen], made: Plan, machine: Machine) -> tuple[Verification, bool]:
        with step("verify: the exercise on the tailored machine") as shown:
            target = verify.Target(
                machine=machine, image=self.image.config, exercise=self.exercise, tools=self.tools, network=made.network
            )
            judged = verify.verify(target, found.seen.record, found.seen.events, self.scratch)
            if not judged.passed:
                shown.fail()
        return judged, True

    def asked(
        self,
        machine: Machine,
        table: SymbolTable,
        title: str,
        beside: MeasureRequest | None = None,
        *,
        network: bool = False,
    ) -> MeasureRequest:
        measured = MeasuredMachine(machine, table, self.exercise, self.natives, network=network)
        boots, more = self.options.boots, ["network"] if network else []
        key = keys.of_run(measure, machine, self.exercise, self.natives, str(boots), *more)
        return MeasureRequest(
            title=title, key=key, boots=boots, store=self.store, scratch=self.scratch, subject=lambda _: measured
        )

    def improve(self, found: Findings[ImageSeen], fitted: Fitted, times: Times, ask: AskUnits | None) -> Improved:
        if not self.options.tries:
            return Improved(fitted)
        with times.of("changes"):
            named = image_changes.NamedChanges(found, fitted, self.exercise, max(2, self.options.boots - 1))
            best, tuning = named.chosen()
        return Improved(best, tuned=tuning, warnings=image_changes.warnings(best.plan, tuning))

    def price(
        self, found: Findings[ImageSeen], fitted: Fitted, tailored: Side, times: Times
    ) -> tuple[MarginPrice, ...]:
        with times.of("price"):
            return margin_cost.prices(found, fitted, tailored, self.margins, all_of_them=self.options.price_margins)

    def doubts(self, found: Findings[ImageSeen]) -> tuple[Warning, ...]:
        given = sorted({*(name for name, _ in self.options.env), *self.options.secret_env})
        if not given:
            return ()
        text = f"the container had {', '.join(given)} while it was fitted; the bundle has not: give them to run by -e"
        return (Warning("environment", text),)

    def told(self, run: FitRun, found: Findings[ImageSeen], fitted: Fitted) -> FitRun:
        seen = found.seen
        exposed = [port.number for port in self.image.config.exposed_ports if port.protocol == "tcp"]
        archive, files = seen.archive, seen.record.files
        return replace(
            run,
            image=self.image.config,
            untouched=file_uses.untouched(
                archive.files, archive.resolve, files, exposed, answered_ports(self.exercise)
            ),
            calls=strace_log.summarise(seen.events),
            lacks=reach_symbols.lacks(seen.reached, margin_cost.enabled(fitted.plan).keys(), found.ran),
        )

    def seal(self, folder: Path, run: FitRun, found: Findings[ImageSeen], fitted: Fitted) -> None:
        root, traced = f"root.{fitted.plan.root_format}", found.seen.record
        natives = self.natives
        listed = {path.name: path for path in (natives.init, natives.client, natives.load_client, natives.builtin)}
        listed[root] = self.root
        names = (container_trace.RECORD, traced.coverage_file, traced.requests_file)
        own = OwnFiles(
            root=root,
            saved={IMAGE: self.image, EXERCISE: self.exercise},
            copied={root: self.root, INIT: self.natives.init},
            traced={name: found.seen.folder / name for name in names},
            listed=listed,
            inventory=image_packages.read_inventory(Path(self.image.archive)),
        )
        bundle_files.fill(folder, run, found, fitted, own)


def modules_asked_for(record: Trace) -> tuple[str, ...]:
    """Return the names of the modules that the traced machine has loaded because the container made the kernel ask."""
    return tuple(dict.fromkeys(one.module for one in record.modules_requested))


def machine_with(options: FitOptions, root: Path, made: Plan, kernel: KernelFiles) -> Machine:
    """Return the fitted machine with a root."""
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


def answered_ports(exercise: Exercise) -> set[int]:
    """Return the ports that a step of the exercise asked."""
    steps = [*([exercise.ready.step] if exercise.ready.step else []), *exercise.load]
    return {step.port for step in steps if step.port and step.kind is not StepKind.COMMAND}


def fetched(options: FitOptions) -> Image:
    """Fetch the image of a reference; what it starts may be missing. Raises as image_stage.fetch does, and HostError,
    before anything is fetched, for what this host lacks."""
    temporary.require_usable()
    asked = named(options.architecture) if options.architecture else None
    monitors.usual().require_counting((asked or of_host()).name)
    settings = image_stage.ImageOptions(
        architecture=asked.image if asked is not None else "",
        authfile=options.authfile,
        entrypoint=options.entrypoint,
        cmd=options.cmd,
        limits=None if options.max_image_bytes is None else ImageLimits.of_size(options.max_image_bytes),
        system=True,
    )
    return image_stage.fetch(options.reference, options.store, settings)


def prepare(options: FitOptions, image: Image | None = None) -> ImageSubject:
    """Fetch and make everything that is missing. Errors in the user's input are found before anything long begins.
    `image`: that of the reference, where it is fetched already."""
    judged_changes.require_tried(options)
    run_environment.begin(options.env, options.secret_env)
    image = image or fetched(options)
    image_stage.require_start(image, options.store)
    options = settled(options, image)
    architecture = named(options.architecture)
    require_tools(architecture)
    monitors.usual().require_cpu(architecture.name, options.machine, options.cpu_model)
    exercise = exercise_of(options, image)
    judged_changes.of_image(options, exercise)
    kernel = kernel_of(options, architecture)
    return assembled(options, image, exercise, kernel, source_of(options, kernel))


def assembled(
    options: FitOptions,
    image: Image,
    exercise: Exercise,
    kernel: KernelBaseline,
    source: SourceTree,
    root: Path | None = None,
) -> ImageSubject:
    """Return the subject of a fetched image: root file system, tools and baseline machine are made, or found. `root`: a
    root that exists already."""
    options = with_margins(options, exercise)
    architecture, parts = named(options.architecture), guest_programs.of(options.architecture)
    root = root or build_root(image, options.root_format, parts, options.store)
    return ImageSubject(
        options=options,
        architecture=architecture,
        image=image,
        exercise=exercise,
        kernel=kernel,
        source=source,
        natives=parts,
        root=root,
        tools=tools_volume(options.store, options.root_format, architecture, options.distribution),
        baseline=baseline_of(options, architecture, kernel, parts, root),
        table=SymbolTable.parse(Path(kernel.system_map).read_text(), architecture.name),
        config=dot_config.parse(Path(kernel.config).read_text()),
    )


def settled(options: FitOptions, image: Image) -> FitOptions:
    """Return the options, completed from the image and the defaults of its architecture.

    Raises UserInputError for a machine that the architecture does not have."""
    architecture = named(options.architecture) if options.architecture else of_image(image.config.architecture)
    if architecture is None:  # the image stage refuses those
        raise UserInputError(f"there is no support for the architecture {image.config.architecture!r}")
    machine = architecture.board_named(options.machine or architecture.board_names[0]).name
    return replace(
        options,
        architecture=architecture.name,
        machine=machine,
        cpu_model=options.cpu_model or architecture.emulator.cpu_model,
    )


def require_tools(architecture: Architecture) -> None:
    """Require the programs that a fit for an architecture starts. Raises HostError, with all that is to be installed,
    before anything long begins."""
    compiler = f"{architecture.kernel.cross}gcc"
    if not architecture.is_host and on_path(compiler) is None:
        raise _cannot_cross(architecture, compiler)
    monitors.usual().require_counting(architecture.name)
    guest_programs.of(architecture.name)


def _cannot_cross(architecture: Architecture, compiler: str) -> HostError:
    """Return the error of a host without the compiler of another processor, and perhaps without its emulator."""
    programs, packages = [compiler], [*architecture.kernel.cross_packages]
    try:
        monitors.usual().require_counting(architecture.name)
    except HostError as error:
        if on_path(architecture.emulator.program) is not None:
            return error
        programs, packages = [architecture.emulator.program, *programs], [architecture.emulator.package, *packages]
    names = " and ".join(f"'{program}'" for program in programs)
    return HostError(
        f"images for {architecture.title} are fitted with {names}, not installed here",
        hint=f"install what is missing: {install_command(*packages)} (vmtailor doctor lists each processor's packages)",
    )


def with_margins(options: FitOptions, exercise: Exercise) -> FitOptions:
    """Return the options with the exercise's margins, unless the user chose some: the reach of the image, and, without
    a proof that the container does its work, what servers usually need."""
    if options.margins is not None:
        return options
    shown = not exercise.derived and exercise.proof in (Proof.LOAD, Proof.ENDED)
    return replace(options, margins=(Margin.REACHABLE,) if shown else (Margin.REACHABLE, Margin.SERVER))


def exercise_of(options: FitOptions, image: Image) -> Exercise:
    """Return the exercise the user gave, or the one the image's configuration suggests; privileged where asked for."""
    return replace(_asked_or_derived(options, image), privileged=options.privileged)


def _asked_or_derived(options: FitOptions, image: Image) -> Exercise:
    if options.exercise_file is None:
        return exercise_file.derive(image)
    return exercise_file.load(options.exercise_file, image)


def kernel_of(options: FitOptions, architecture: Architecture) -> KernelBaseline:
    """Return the baseline's kernel: the packaged one, or one compiled once from the configuration that the user
    names."""
    if options.baseline_config is None:
        return packaged_baseline.provide(options.distribution, architecture, options.store, options.kernel)
    if options.source is None or options.kernel is not None:
        raise UserInputError(
            "--baseline-config compiles the baseline from --source, and does not go with --kernel",
            hint="give --source TARBALL --baseline-config /boot/config-RELEASE",
        )
    if options.baseline_config == "defconfig":
        return compiled_baseline.provide(options.store, options.source, architecture=architecture.name)
    config = Path(options.baseline_config)
    if not config.exists():
        raise UserInputError(f"{config} does not exist", hint="a file such as /boot/config-RELEASE, or 'defconfig'")
    return compiled_baseline.provide(options.store, options.source, config, architecture=architecture.name)


def source_of(options: FitOptions, kernel: KernelBaseline) -> SourceTree:
    """Return the source to build: the packaged one, or the user's, which must be of the baseline's version."""
    if options.source is None:
        return SourceTree(Path(kernel.source_dir), kernel.source_digest)
    source = kernel_source.provide(options.store, options.source)
    kernel_source.require_version(source, kernel.version, "the baseline")
    return source


def tools_volume(
    store: Store, form: RootFormat, architecture: Architecture, distribution: Distribution | None = None
) -> Path:
    """Return the tracer's own volume, in the root's format, which every booting kernel has. It contains this host's
    strace, or, for another architecture, that of a distribution's packages (this host's by default).

    Raises HostError when there is none."""
    among: Path | None = None
    if architecture.is_host:
        program = Path(require_tool("strace"))
        loader, libraries = tracer_volume.libraries(program)
    else:
        folder = (distribution or selection.of_host()).program(architecture, "strace", "strace", store)
        program, among = folder / "strace", folder / "lib"
        loader, libraries = tracer_volume.libraries_among(program, among)
    key = digest("1", form, *(content(path) for path in (program, Path(loader or program), *libraries.values())))
    name = f"tools.{form}"

    def fill(folder: Path) -> None:
        tracer_volume.write_tools_volume(folder / name, form, program, among)

    return store.get("tools", key, fill) / name


def baseline_of(
    options: FitOptions,
    architecture: Architecture,
    kernel: KernelBaseline,
    parts: Natives,
    root: Path,
    more: tuple[str, ...] = (),
) -> Machine:
    """Return the baseline machine, with an initial RAM disk made for it. `more`: modules that it loads beside its
    own."""
    modules = Path(kernel.modules_dir)
    wanted = (*initramfs.wanted_by(architecture.board_named(options.machine), options.root_format), *more)
    # The very kernel, since one release can be compiled with several configurations.
    very = (content(Path(kernel.vmlinuz)), content(Path(kernel.config)))
    key = digest("2", *very, content(parts.stage1), *wanted)

    def fill(folder: Path) -> None:
        initramfs.baseline_initramfs(folder / "initrd", stage1=parts.stage1, modules=modules, wanted=wanted)

    initrd = options.store.get("initrd", key, fill) / "initrd"
    return machine_variants.baseline_machine(
        architecture,
        options.machine,
        Path(kernel.vmlinuz),
        initrd,
        root,
        options.root_format,
        memory_bytes=options.memory_bytes,
        cpu_model=options.cpu_model,
        cpus=options.cpus,
    )
