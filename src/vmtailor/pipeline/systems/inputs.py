# SPDX-License-Identifier: Apache-2.0
"""What the fit of a system begins with: the system as it is read, its exercise, its own kernel with symbols and source,
and the machine that it is compared in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.changes import choice
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.explain.lookup import KnownSource
from vmtailor.analysis.guests import machine_variants
from vmtailor.analysis.systems.root import Root
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import dot_config, temporary
from vmtailor.base.natives import Natives
from vmtailor.base.process import require_tool
from vmtailor.drivers.disks import ext4
from vmtailor.drivers.distribution import packaged_baseline
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.guest.attendant_volume import SystemRoot
from vmtailor.drivers.host import digest_cache
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.drivers.monitors import monitors
from vmtailor.model.architecture import Architecture, named
from vmtailor.model.boots.system_exercise import SystemExercise, SystemReadyKind
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.machine import Clock, Disk, DiskMode, Machine
from vmtailor.model.option import OptionSubject, refuse
from vmtailor.model.systems.subject import Init, InitKind, SystemSubject
from vmtailor.model.systems.tree import NodeKind
from vmtailor.model.systems.units import UnitsMode
from vmtailor.pipeline import explaining, keys
from vmtailor.pipeline.inputs import require_tools, scratch_of, source_of
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.systems import exercising, tracing
from vmtailor.pipeline.systems.planning import CONFIG_BYTES
from vmtailor.pipeline.systems.subjects import disk_path
from vmtailor.pipeline.systems.tracing import SystemKernel
from vmtailor.stages import exercise_file
from vmtailor.stages.boot import attribution, own_kernel
from vmtailor.stages.plan import Tree
from vmtailor.stages.subject import OpenedSubject

#: Raise it when what is taken out of a system changes.
_TAKEN = "1"


@dataclass(frozen=True, eq=False)
class SystemInputs:
    """Everything that is there before anything is booted. `identity`: SHA-256 of the disk's file; `own`: the system's
    kernel as it is traced; `baseline`: the machine with it, as its loader would start it; `config`: of that kernel,
    name → value; `tree`, `known`: of its source."""

    options: FitOptions
    found: OpenedSubject
    identity: str
    exercise: SystemExercise
    kernel: KernelBaseline
    source: SourceTree
    tree: Tree
    known: KnownSource
    natives: Natives
    own: SystemKernel
    baseline: Machine
    table: SymbolTable
    config: dict[str, str]

    @property
    def subject(self) -> SystemSubject:
        return self.found.subject

    @property
    def row(self) -> Architecture:
        return named(self.options.architecture)

    @property
    def scratch(self) -> Path:
        return scratch_of(self.options.store)

    @property
    def root(self) -> SystemRoot:
        """Where the system is in each of its machines."""
        return exercising.root_of(self.subject, self.baseline.words)


def refuse_for_images(options: FitOptions) -> None:
    """Raise UserInputError for options that mean nothing for a system with an init of its own, and changes that cannot
    be tried on one."""
    choice.for_system(options.tries, options.files)
    for path, _ in options.files:
        ext4.require_plain(path)
    disk = disk_path(options.reference) is not None
    refuse(options, OptionSubject.DISK if disk else OptionSubject.TREE, options.reference)
    if options.exercise_file is None:
        raise UserInputError(
            f"{options.reference} is a system: nobody but you can say what it is there for",
            hint="write an exercise and give it: --exercise FILE (docs/reference/exercise.md)"
            + ("" if disk else "; or name one program of it: --entrypoint"),
        )


def refuse_console(exercise: SystemExercise) -> None:
    """Raise UserInputError for an exercise whose ready cannot be measured: a line of the console is seen by the host,
    for whom an idle guest on the instruction clock does not wait."""
    if exercise.ready.kind is SystemReadyKind.LOG:
        raise UserInputError(
            f"{exercise.origin}: ready by a line of the console cannot be measured on the instruction clock",
            hint="ask from inside: kind = unit, command, tcp or http",
        )


def refuse_units(options: FitOptions, init: Init) -> None:
    """Raise UserInputError where units are to be masked, and the init has none."""
    if init.kind is not InitKind.SYSTEMD and (options.mask or options.units is not UnitsMode.KEEP):
        name = "--mask" if options.mask else "--units"
        raise UserInputError(f"{name} is for systemd, and the init of {options.reference} is {init.program}")


def refuse_files(options: FitOptions, root: Root) -> None:
    """Raise UserInputError for files to be tried that have no folder in the system, or are to go and are not there."""
    for path, wanted in options.files:
        above = path.rpartition("/")[0] or "/"
        folder = root.node(above)
        if folder is None or folder.kind is not NodeKind.FOLDER:
            raise UserInputError(f"--try-file {path}: {options.reference} has no folder {above}")
        if wanted is None and root.node(path) is None:
            raise UserInputError(f"--try-file {path}=: {options.reference} has no such file")


def prepare(options: FitOptions, found: OpenedSubject) -> SystemInputs:
    """Read and fetch what is missing. What can be wrong with the user's input is found before anything long begins."""
    temporary.require_usable()
    refuse_for_images(options)
    refuse_units(options, found.subject.init)
    refuse_files(options, found.root)
    assert options.exercise_file is not None
    exercise = exercise_file.load_system(options.exercise_file)
    refuse_console(exercise)
    options = _settled(options, found.subject)
    row = named(options.architecture)
    require_tools(row)
    monitors.usual().require_cpu(row.name, options.machine, options.cpu_model)
    require_tool("strace")
    require_tool("mke2fs", "e2fsprogs")
    parts = guest_programs.of(options.architecture)
    kernel = packaged_baseline.provide(options.distribution, row, options.store, found.subject.kernel)
    taken = taken_out(found, parts, options.store)
    require_same(taken / KERNEL, Path(kernel.vmlinuz), found.subject)
    with temporary.held_folder() as folder:
        own = replace(tracing.kernel_of(found, folder), file=taken / KERNEL)
    source = source_of(options, kernel)
    whole = explaining.known_of(source, options.architecture, options.store)
    return SystemInputs(
        options=options,
        found=found,
        identity=identity_of(found, options.store),
        exercise=exercise,
        kernel=kernel,
        source=source,
        tree=whole.read,
        known=whole.known,
        natives=parts,
        own=own,
        baseline=_baseline(options, found, taken),
        table=SymbolTable.parse(Path(kernel.system_map).read_text(), options.architecture),
        config=_config(found, kernel),
    )


def _settled(options: FitOptions, subject: SystemSubject) -> FitOptions:
    """The options with what the system says where the user said nothing. Raises UserInputError for another
    processor, or a machine that it does not have."""
    row = named(subject.architecture)
    if options.architecture not in ("", row.name):
        raise UserInputError(f"{subject.reference} is a system for {row.title}", hint="leave --arch out")
    machine = row.board_named(options.machine or row.board_names[0]).name
    memory = options.memory_bytes if options.memory_asked else machine_variants.USUAL.memory_bytes
    return replace(
        options, architecture=row.name, machine=machine, cpu_model=options.cpu_model or row.emulator.cpu_model,
        memory_bytes=memory,
    )  # fmt: skip


def identity_of(found: OpenedSubject, store: Store) -> str:
    """What tells this disk's content from another's. Read once for a file that does not change, by this run or one
    before it."""
    assert found.disk is not None
    path = found.disk.path.absolute()
    with path.open("rb") as file:
        identity = digest_cache.sha256_of(file, store)
    keys.note_content(path, identity)
    return identity


#: What is taken out of a system, in its folder.
KERNEL, INITRD = "kernel", "initrd"


def taken_out(found: OpenedSubject, parts: Natives, store: Store) -> Path:
    """The folder with the kernel and the initial RAM disk that the loader would start. One disk may have several
    systems, with one kernel."""
    partition = found.subject.disk.root if found.subject.disk is not None else 0
    key = digest(_TAKEN, identity_of(found, store), str(partition), found.subject.kernel, parts.small_init)

    def fill(folder: Path) -> None:
        own_kernel.taken_out(found.subject, found.root, parts.small_init, folder)

    return store.get("system-kernel", key, fill)


def require_same(own: Path, packaged_kernel: Path, subject: SystemSubject) -> None:
    """The packaged kernel of a release is that of the system: its symbols would be somebody else's. (A signature does
    not count: it changes the file, and not the kernel.)"""
    if attribution.banner_of(own) != attribution.banner_of(packaged_kernel):
        raise UserInputError(
            f"the kernel {subject.kernel} of {subject.reference} is not the one that the distribution has packaged",
            hint="install the distribution's kernel in the system: its symbols and source are known",
        )


def _config(found: OpenedSubject, kernel: KernelBaseline) -> dict[str, str]:
    installed = found.subject.installed
    if installed is not None and installed.config:
        return dot_config.parse(found.root.text(installed.config, CONFIG_BYTES))
    return dot_config.parse(Path(kernel.config).read_text())


def disk_of(found: OpenedSubject) -> Disk:
    """The system's disk as each machine gets it: what a guest writes is thrown away."""
    assert found.disk is not None
    return Disk(str(found.disk.path.absolute()), found.disk.format, DiskMode.OVERLAID)


def _baseline(options: FitOptions, found: OpenedSubject, taken: Path) -> Machine:
    """The system's own kernel, with the initial RAM disk and the words that its loader would give it, in the machine
    that is planned for."""
    row = named(options.architecture)
    return Machine(
        board=options.machine,
        memory_bytes=options.memory_bytes,
        kernel=str(taken / KERNEL),
        initrd=str(taken / INITRD),
        words=words(found.subject, row),
        disks=(disk_of(found),),
        network=True,
        cpu_model=options.cpu_model,
        cpus=options.cpus,
        clock=Clock.INSTRUCTIONS,
        acpi=True,
        architecture=row.name,
    )


def words(subject: SystemSubject, row: Architecture, planned: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The command line of both machines: the system's own words, the root by the device that it is here, and what our
    machines need. `planned`: words of a plan."""
    own = tracing.words_of(subject, row)
    more = dict.fromkeys((*row.kernel.words, *planned))
    return (*own, *(word for word in more if word not in own))


def with_exercise(machine: Machine, exercise: SystemExercise, clock: Clock) -> Machine:
    """The machine as an exercise is driven in it: with the ports that it asks from outside."""
    return replace(machine, clock=clock, ports=machine_variants.on_loopback(exercise.ports))
