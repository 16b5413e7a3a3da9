# SPDX-License-Identifier: Apache-2.0
"""The trace of a system from its disk: its own kernel started directly, our way into its root, every call seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.guests import machine_variants
from vmtailor.analysis.systems.module_index import ModuleIndex
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import temporary
from vmtailor.base.natives import Natives
from vmtailor.base.notation import module_name
from vmtailor.drivers.rootfs.initramfs import load_order
from vmtailor.model.architecture import Architecture, named
from vmtailor.model.boots.workload import OwnInit
from vmtailor.model.machine import Disk, DiskMode, Machine
from vmtailor.model.systems.system import SubjectKind, System
from vmtailor.model.watched.system_trace import SystemTrace
from vmtailor.pipeline.systems import mapped_root, subjects
from vmtailor.stages import system_watch
from vmtailor.stages.boot import own_kernel
from vmtailor.stages.system_files import OpenedSystem
from vmtailor.stages.system_watch import SystemTraceInputs

#: Bytes that are read of a kernel, of one module, and of the lists of modules.
KERNEL_BYTES, MODULE_BYTES, LIST_BYTES = 256 << 20, 64 << 20, 64 << 20
#: Words that say where the root is, or that the loader adds for itself.
_NOT_KEPT = ("root", "rootfstype", "initrd", "BOOT_IMAGE", "rdinit", "init")


@dataclass(frozen=True)
class SystemKernel:
    """A system's own kernel, on the host. `modules`: the index of its folder. `way_in`: the modules that lead to the
    root."""

    file: Path
    modules: ModuleIndex
    way_in: tuple[tuple[str, bytes], ...]


def kernel_of(found: OpenedSystem, folder: Path) -> SystemKernel:
    """Copy the kernel that starts by default out of a system, into `folder`.

    Raises UserInputError when it has none."""
    installed = found.subject.installed
    if installed is None or not installed.image:
        raise UserInputError(f"{found.subject.reference} has no kernel to start it with")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "vmlinuz"
    file.write_bytes(found.root.read(installed.image, KERNEL_BYTES))
    where = f"/lib/modules/{installed.release}"
    alias, dep, builtin = (
        found.root.text(f"{where}/modules.{name}", LIST_BYTES) for name in ("alias", "dep", "builtin")
    )
    index = ModuleIndex.read(alias, dep, builtin)
    return SystemKernel(file, index, _way_in(found, where, dep, index))


def _way_in(found: OpenedSystem, where: str, dep: str, index: ModuleIndex) -> tuple[tuple[str, bytes], ...]:
    """Return the modules that the root's disk and file system need, each after what it needs."""
    wanted = own_kernel.way_in(found.subject)
    needed = index.with_needs(name for name in wanted if name in index.paths)
    with temporary.held_folder() as modules:
        (modules / "kernel").mkdir()
        for line in dep.splitlines():
            path = line.partition(":")[0]
            base = path.rpartition("/")[2]
            if ".ko" in base and module_name(base.partition(".ko")[0]) in needed:
                (modules / "kernel" / base).write_bytes(found.root.read(f"{where}/{path}", MODULE_BYTES))
        return tuple(load_order(modules, wanted))


def words_of(subject: System, architecture: Architecture, *, direct: bool = True) -> tuple[str, ...]:
    """Return the system's own command line, with its root by its device here. `direct`: no initial RAM disk of the
    system's makes the volume that its root is on, so that the kernel is told to."""
    entry = subject.entry
    own = entry.words if entry is not None else (subject.root_word, f"console={architecture.kernel.console}")
    root = (f"root={mapped_root.device_of(subject, direct=direct)}", *mapped_root.words_of(subject, direct=direct))
    kept = [word for word in own if word.partition("=")[0] not in _NOT_KEPT]
    init = () if subject.init.path in ("", "/sbin/init") else (f"init={subject.init.path}",)
    console = () if any(is_serial(word, architecture) for word in kept) else (f"console={architecture.kernel.console}",)
    return (*root, *kept, *console, *init, *(() if {"ro", "rw"} & {*kept} else ("ro",)), "panic=-1")


def is_serial(word: str, architecture: Architecture) -> bool:
    """Return whether a word of a command line sends the kernel's messages to a serial line of such machines."""
    return word.startswith(f"console={architecture.kernel.console.rstrip('0123456789')}")


def machine_of(found: OpenedSystem, kernel: SystemKernel, *, memory_bytes: int, cpus: int) -> Machine:
    """Return the usual machine with the system's disk, which is never written, and its own kernel.

    Raises UserInputError for a system that is on no disk."""
    subject = found.subject
    if subject.kind is not SubjectKind.DISK or found.disk is None:
        raise UserInputError(f"{subject.reference} is on no disk", hint="systems are traced from disks: disk:FILE")
    architecture = named(subject.architecture)
    root = Disk(str(found.disk.path.absolute()), found.disk.format, DiskMode.OVERLAID)
    return replace(
        machine_variants.usual(architecture), memory_bytes=memory_bytes, cpus=cpus, kernel=str(kernel.file),
        disks=(root,), words=words_of(subject, architecture),
    )  # fmt: skip


def traced(
    found: OpenedSystem, workload: OwnInit, folder: Path, natives: Natives, *, memory_bytes: int, cpus: int = 1
) -> SystemTrace:
    """Trace a system into `folder`; what that has already is taken as it is. Raises UserInputError for a system of
    another processor than the host's, GuestError where the system does not get ready as it is."""
    subjects.require_host(found.subject)
    with temporary.held_folder(folder.parent) as scratch:
        kernel = kernel_of(found, scratch)
        machine = machine_of(found, kernel, memory_bytes=memory_bytes, cpus=cpus)
        machine = replace(machine, ports=machine_variants.on_loopback(workload.ports))
        inputs = SystemTraceInputs(
            subject=found.subject.reference,
            machine=machine,
            workload=workload,
            modules=kernel.modules,
            way_in=kernel.way_in,
            natives=natives,
        )
        return system_watch.trace(inputs, folder, scratch)
