# SPDX-License-Identifier: Apache-2.0
"""The inputs of a system's fit: the system, its exercise, its own kernel with symbols and source, and the machine for
the comparison."""

from __future__ import annotations

from pathlib import Path

from vmtailor.analysis.changes import choice
from vmtailor.analysis.systems.root import RootTree
from vmtailor.base import manual
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import Natives
from vmtailor.drivers.disks import ext4
from vmtailor.drivers.host import digest_cache
from vmtailor.model.architecture import Architecture, named
from vmtailor.model.boots.system_exercise import SystemExercise, SystemReadyKind
from vmtailor.model.kernel import KernelFiles
from vmtailor.model.machine import Clock, Disk, DiskMode, Machine
from vmtailor.model.option import OptionSubject, refuse
from vmtailor.model.plan import Plan
from vmtailor.model.systems.system import Init, InitKind, System
from vmtailor.model.systems.tree import NodeKind
from vmtailor.model.systems.units import UnitsMode
from vmtailor.pipeline import keys
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.systems import mapped_root, system_kernel
from vmtailor.pipeline.systems.subjects import disk_path
from vmtailor.stages.boot import boot_attribution, own_kernel
from vmtailor.stages.system_files import OpenedSystem

#: Raise it when what is taken out of a system changes.
_TAKEN = "2"


def refuse_for_images(options: FitOptions) -> None:
    """Raise UserInputError for options that do not apply to a system with an init of its own, and for changes
    impossible on one."""
    choice.for_system(options.tries, options.files)
    for path, _ in options.files:
        ext4.require_plain(path)
    disk = disk_path(options.reference) is not None
    refuse(options, OptionSubject.DISK if disk else OptionSubject.TREE, options.reference)
    if options.exercise_file is None:
        raise UserInputError(
            f"{options.reference} is a system, and needs an exercise that says what it is for",
            hint=f"write an exercise and give it: --exercise FILE ({manual.command('exercise')} says how)"
            + ("" if disk else "; or name one program of it: --entrypoint"),
        )


def refuse_console(exercise: SystemExercise) -> None:
    """Raise UserInputError for an exercise whose ready is a line of the console on the instruction clock. The host sees
    that line, and there an idle guest does not wait for the host."""
    if exercise.ready.kind is SystemReadyKind.LOG:
        raise UserInputError(
            f"{exercise.origin}: ready by a line of the console cannot be measured on the instruction clock",
            hint="ask from inside: kind = unit, command, tcp or http",
        )


def refuse_units(options: FitOptions, init: Init) -> None:
    """Raise UserInputError when units are to be masked and the init has none."""
    if init.kind is not InitKind.SYSTEMD and (options.mask or options.units is not UnitsMode.KEEP):
        name = "--mask" if options.mask else "--units"
        raise UserInputError(f"{name} is for systemd, and the init of {options.reference} is {init.program}")


def refuse_files(options: FitOptions, root: RootTree) -> None:
    """Raise UserInputError for files to try whose folder is missing in the system, and for missing files to remove."""
    for path, wanted in options.files:
        above = path.rpartition("/")[0] or "/"
        folder = root.node(above)
        if folder is None or folder.kind is not NodeKind.FOLDER:
            raise UserInputError(f"--try-file {path}: {options.reference} has no folder {above}")
        if wanted is None and root.node(path) is None:
            raise UserInputError(f"--try-file {path}=: {options.reference} has no such file")


def identity_of(found: OpenedSystem, store: Store) -> str:
    """Return the digest of a disk's content. A file that does not change is read only once, also by later runs."""
    assert found.disk is not None
    path = found.disk.path.absolute()
    with path.open("rb") as file:
        identity = digest_cache.sha256_of(file, store)
    keys.note_content(path, identity)
    return identity


#: Files taken out of a system, in its folder.
KERNEL, INITRD = "kernel", "initrd"


def taken_out(found: OpenedSystem, parts: Natives, store: Store) -> Path:
    """Return the folder with the kernel and the initial RAM disk that the loader would start. One disk may have several
    systems, with one kernel."""
    partition = found.subject.disk.root if found.subject.disk is not None else 0
    key = digest(_TAKEN, identity_of(found, store), str(partition), found.subject.kernel, parts.small_init)

    def fill(folder: Path) -> None:
        own_kernel.taken_out(found.subject, found.root, parts.small_init, folder)

    return store.get("system-kernel", key, fill)


def require_same(own: Path, packaged_kernel: Path, subject: System) -> None:
    """Require that the packaged kernel of a release is the system's own, since its symbols are used. (A signature does
    not count: it changes the file, and not the kernel.)"""
    if boot_attribution.banner_of(own) != boot_attribution.banner_of(packaged_kernel):
        raise UserInputError(
            f"the kernel {subject.kernel} of {subject.reference} is not the one that the distribution has packaged",
            hint="install the distribution's kernel in the system: its symbols and source are known",
        )


def disk_of(found: OpenedSystem) -> Disk:
    """Return the system's disk as each machine gets it: what a guest writes is thrown away."""
    assert found.disk is not None
    return Disk(str(found.disk.path.absolute()), found.disk.format, DiskMode.OVERLAID)


def words(
    subject: System, architecture: Architecture, planned: tuple[str, ...] = (), *, direct: bool = False
) -> tuple[str, ...]:
    """Return the command line of both machines: the system's own words, the root by its device here, and the words that
    our machines need. `planned`: words of a plan. `direct`: for a kernel without the system's initial RAM disk."""
    direct = direct or not mapped_root.has_initrd(subject)
    own = system_kernel.words_of(subject, architecture, direct=direct)
    more = dict.fromkeys((*architecture.kernel.words, *planned))
    return (*own, *(word for word in more if word not in own))


def fitted(options: FitOptions, subject: System, disk: Disk, made: Plan, kernel: KernelFiles) -> Machine:
    """Return the machine that fits a system: its disk, with a kernel that was built from a plan."""
    return Machine(
        board=made.machine,
        memory_bytes=options.memory_bytes,
        kernel=kernel.image,
        words=words(subject, named(made.architecture), tuple(word.id for word in made.words), direct=True),
        disks=(disk,),
        network=made.network,
        cpu_model=options.cpu_model,
        cpus=made.cpus,
        clock=Clock.INSTRUCTIONS,
        architecture=made.architecture,
    )
