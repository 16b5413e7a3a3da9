# SPDX-License-Identifier: Apache-2.0
"""What a fit begins with: image, exercise, baseline kernel, root, the volumes both sides share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.guests import machine_variants
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import dot_config, temporary
from vmtailor.base.natives import Natives
from vmtailor.base.process import require_tool
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.distribution.distribution import Distribution
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.image.allowance import ImageLimits
from vmtailor.drivers.kernel import compiled_baseline, kernel_source
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.rootfs import initramfs, tracer_volume
from vmtailor.model.architecture import Architecture, named, of_host, of_image, presumed
from vmtailor.model.exercise import Exercise, Proof
from vmtailor.model.image import Image
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.machine import Machine
from vmtailor.model.margin import Margin
from vmtailor.model.plan import RootFormat
from vmtailor.pipeline.keys import content
from vmtailor.pipeline.options import FitOptions
from vmtailor.stages import exercise_file
from vmtailor.stages import image as image_stage
from vmtailor.stages.root import build_root


@dataclass(frozen=True, eq=False)
class FitInputs:
    """Everything that is there before anything is booted. `config` is the baseline's, name → value."""

    options: FitOptions
    image: Image
    exercise: Exercise
    kernel: KernelBaseline
    source: SourceTree
    natives: Natives
    root: Path
    tools: Path
    baseline: Machine
    table: SymbolTable
    config: dict[str, str]

    def machine_with(self, modules: tuple[str, ...]) -> Machine:
        """The baseline machine, having loaded these modules too before anything of the container starts."""
        return baseline_of(self.options, self.kernel, self.natives, self.root, modules) if modules else self.baseline

    def having_loaded(self, modules: tuple[str, ...], names: Iterable[str]) -> FitInputs:
        """The inputs once it is known which modules the container needs. `names`: all modules that were loaded."""
        kernel = self.kernel
        if modules:
            options = self.options
            kernel = packaged_baseline.with_debug_modules(
                options.distribution, named(options.architecture), kernel, options.store, names
            )
        return replace(self, baseline=self.machine_with(modules), kernel=kernel)

    @property
    def margins(self) -> tuple[Margin, ...]:
        """What is kept beyond what is demanded."""
        return with_margins(self.options, self.exercise).margins or ()

    @property
    def scratch(self) -> Path:
        return scratch_of(self.options.store)


def scratch_of(store: Store) -> Path:
    """Where temporary files may lie."""
    return store.folder("scratch")


def prepare(options: FitOptions) -> FitInputs:
    """Fetch and make what is missing. What can be wrong with the user's input is found before anything long begins."""
    store = options.store
    temporary.require_usable()
    asked = named(options.architecture) if options.architecture else None
    monitors.usual().require_counting((asked or of_host()).name)
    settings = image_stage.ImageOptions(
        architecture=asked.image if asked is not None else "",
        authfile=options.authfile,
        entrypoint=options.entrypoint,
        cmd=options.cmd,
        limits=None if options.max_image_bytes is None else ImageLimits.of_size(options.max_image_bytes),
    )
    image = image_stage.fetch(options.reference, store, settings)
    options = settled(options, image)
    row = named(options.architecture)
    require_tools(row)
    monitors.usual().require_cpu(row.name, options.machine, options.cpu_model)
    exercise = exercise_of(options, image)
    kernel = kernel_of(options)
    return assembled(options, image, exercise, kernel, source_of(options, kernel))


def assembled(
    options: FitOptions, image: Image, exercise: Exercise, kernel: KernelBaseline, source: SourceTree
) -> FitInputs:
    """The inputs of what was fetched: root file system, tools and the baseline machine are made, or found."""
    options = with_margins(options, exercise)
    parts = guest_programs.of(options.architecture)
    root = build_root(image, options.root_format, parts, options.store)
    return FitInputs(
        options=options,
        image=image,
        exercise=exercise,
        kernel=kernel,
        source=source,
        natives=parts,
        root=root,
        tools=tools_volume(options.store, options.root_format, options.architecture, options.distribution),
        baseline=baseline_of(options, kernel, parts, root),
        table=SymbolTable.parse(Path(kernel.system_map).read_text(), options.architecture),
        config=dot_config.parse(Path(kernel.config).read_text()),
    )


def settled(options: FitOptions, image: Image) -> FitOptions:
    """The options with what the image says, and what its architecture is used with, where the user said nothing.

    Raises UserInputError for a machine that the architecture does not have."""
    row = named(options.architecture) if options.architecture else of_image(image.config.architecture)
    if row is None:  # the image stage refuses those
        raise UserInputError(f"nothing is known of the architecture {image.config.architecture!r}")
    machine = row.board_named(options.machine or row.board_names[0]).name
    return replace(
        options, architecture=row.name, machine=machine, cpu_model=options.cpu_model or row.emulator.cpu_model
    )


def require_tools(row: Architecture) -> None:
    """What a fit for an architecture starts and compiles with is on this host. Raises HostError, with what to install,
    before anything long begins."""
    monitors.usual().require_counting(row.name)
    if not row.is_host:
        require_tool(f"{row.kernel.cross}gcc", row.kernel.cross_packages[0])
    guest_programs.of(row.name)


def with_margins(options: FitOptions, exercise: Exercise) -> FitOptions:
    """The options with the margins that an exercise asks for, where the user chose none: what the image could ask for,
    and where nobody has shown what it is there for, what servers usually need, too."""
    if options.margins is not None:
        return options
    shown = not exercise.derived and exercise.proof in (Proof.LOAD, Proof.ENDED)
    return replace(options, margins=(Margin.REACHABLE,) if shown else (Margin.REACHABLE, Margin.SERVER))


def exercise_of(options: FitOptions, image: Image) -> Exercise:
    """The exercise the user gave, or the one the image's configuration suggests; privileged where asked for."""
    return replace(_asked_or_derived(options, image), privileged=options.privileged)


def _asked_or_derived(options: FitOptions, image: Image) -> Exercise:
    if options.exercise_file is None:
        return exercise_file.derive(image)
    return exercise_file.load(options.exercise_file, image)


def kernel_of(options: FitOptions) -> KernelBaseline:
    """The baseline's kernel: packaged, or compiled once where the user says with which configuration."""
    if options.baseline_config is None:
        row = named(options.architecture) if options.architecture else presumed()
        return packaged_baseline.provide(options.distribution, row, options.store, options.kernel)
    if options.source is None or options.kernel is not None:
        raise UserInputError(
            "--baseline-config compiles the baseline from --source, and does not go with --kernel",
            hint="give --source TARBALL --baseline-config /boot/config-RELEASE",
        )
    if options.baseline_config == "defconfig":
        return compiled_baseline.provide(options.store, options.source, architecture=options.architecture)
    config = Path(options.baseline_config)
    if not config.exists():
        raise UserInputError(f"{config} does not exist", hint="a file such as /boot/config-RELEASE, or 'defconfig'")
    return compiled_baseline.provide(options.store, options.source, config, architecture=options.architecture)


def source_of(options: FitOptions, kernel: KernelBaseline) -> SourceTree:
    """The source to build: the packaged one, or the user's, which must be of the baseline's version."""
    if options.source is None:
        return SourceTree(Path(kernel.source_dir), kernel.source_digest)
    source = kernel_source.provide(options.store, options.source)
    kernel_source.require_version(source, kernel.version, "the baseline")
    return source


def tools_volume(
    store: Store, form: RootFormat, architecture: str | None = None, distribution: Distribution | None = None
) -> Path:
    """The tracer's own volume, in the root's format, which every kernel that boots has: with the strace of this host,
    or that of the machine's architecture, from the packages of a distribution (this host's).

    Raises HostError when there is none."""
    row = presumed() if architecture is None else named(architecture)
    among: Path | None = None
    if row.is_host:
        program = Path(require_tool("strace"))
        loader, libraries = tracer_volume.libraries(program)
    else:
        folder = (distribution or selection.of_host()).program(row, "strace", "strace", store)
        program, among = folder / "strace", folder / "lib"
        loader, libraries = tracer_volume.libraries_among(program, among)
    key = digest("1", form, *(content(path) for path in (program, Path(loader or program), *libraries.values())))
    name = f"tools.{form}"

    def fill(folder: Path) -> None:
        tracer_volume.write_tools_volume(folder / name, form, program, among)

    return store.get("tools", key, fill) / name


def baseline_of(
    options: FitOptions, kernel: KernelBaseline, parts: Natives, root: Path, more: tuple[str, ...] = ()
) -> Machine:
    """The baseline machine, with an initial RAM disk made for it. `more`: modules that it loads beside its own."""
    modules = Path(kernel.modules_dir)
    row = named(options.architecture)
    wanted = (*initramfs.wanted_by(row.board_named(options.machine), options.root_format), *more)
    # The very kernel, since one release can be compiled with several configurations.
    very = (content(Path(kernel.vmlinuz)), content(Path(kernel.config)))
    key = digest("2", *very, content(parts.stage1), *wanted)

    def fill(folder: Path) -> None:
        initramfs.baseline_initramfs(folder / "initrd", stage1=parts.stage1, modules=modules, wanted=wanted)

    initrd = options.store.get("initrd", key, fill) / "initrd"
    return machine_variants.baseline_machine(
        row,
        options.machine,
        Path(kernel.vmlinuz),
        initrd,
        root,
        options.root_format,
        memory_bytes=options.memory_bytes,
        cpu_model=options.cpu_model,
        cpus=options.cpus,
    )
