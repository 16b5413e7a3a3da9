# SPDX-License-Identifier: Apache-2.0
"""Machines around engines, made ready outside the scope: a user's system on a disk with its own kernel, or the bundle
of its fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import UserInputError
from vmtailor.base.progress import step
from vmtailor.base.text import plain
from vmtailor.bench.model.job import VM, BenchInside, BenchMachine
from vmtailor.bench.run import kernel_subsystems
from vmtailor.bench.run.image_machine import machine_digest
from vmtailor.bench.run.machine_monitors import ReadyMonitor, with_monitors
from vmtailor.bench.runtimes.guest_runtime import ARCHIVE, ENTER
from vmtailor.booting import fitted_machine
from vmtailor.drivers.distribution import packaged_baseline
from vmtailor.drivers.distribution.selection import of_host
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.guest.attendant_volume import SystemRoot
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.rootfs import boot_disk as disks
from vmtailor.drivers.rootfs.rootfs import Extra, build
from vmtailor.model.architecture import named
from vmtailor.model.image import Image
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.machine import Clock, Disk, Machine
from vmtailor.model.plan import RootFormat
from vmtailor.pipeline.systems import exercise_boots, subjects
from vmtailor.pipeline.systems import inputs as systems

#: Memory of each machine, for engines and for the image while they load it.
MEMORY_BYTES = 1 << 30


@dataclass(frozen=True)
class Around:
    """A system's machine, without the disks of the benchmark. `kernel`: its release; `packaged`: the distribution's
    kernel of the same source; `system_map`: symbols of what it starts; `which`: digits that tell it from others."""

    machine: Machine
    root: SystemRoot
    kernel: str
    packaged: KernelBaseline
    system_map: str
    which: str


def check(references: Sequence[str]) -> None:
    """Check the machines that are named, each `vm:DISK` or `vm:BUNDLE`. Raises UserInputError for what is none, and for
    two that would have one name."""
    names = [_checked(one).stem for one in references]
    if len(set(names)) < len(names):
        raise UserInputError("two machines have one name", hint="rename a disk or a bundle's folder: it names the row")


def _checked(reference: str) -> Path:
    if not reference.startswith(VM) or reference == VM:
        raise UserInputError(
            f"--inside {plain(reference)[:100]!r} names no machine",
            hint="--inside vm:DISK, a system with its engines, or vm:BUNDLE that was fitted to one",
        )
    path = Path(reference.removeprefix(VM))
    if bundle_folder.is_bundle(path):
        if not bundle_folder.is_system(path):
            raise UserInputError(
                f"--inside: {plain(str(path))} is the bundle of a container, and no engine is in it",
                hint="a bundle of a system with its engines: vmtailor fit disk:FILE",
            )
        return path
    if not path.is_file():
        raise UserInputError(f"--inside: {plain(str(path))} is not a disk", hint="make bench-engines builds one")
    disks.disk_of(path)
    return path


def board_of(references: Sequence[str], store: Store) -> str:
    """Return the board of the bundles that are named, so that a disk beside one has it, too; empty where they have
    several, or none is named. Raises UserInputError."""
    paths = [_checked(one) for one in references]
    boards = {bundle_folder.load(path, store).bundle.machine for path in paths if bundle_folder.is_bundle(path)}
    return boards.pop() if len(boards) == 1 else ""


def ready(
    reference: str,
    image: Image,
    image_archive: str,
    store: Store,
    *,
    by_subsystem: bool = True,
    monitored: Sequence[ReadyMonitor] = (),
    board: str = "",
) -> BenchInside:
    """Return the machine, with its kernel's symbols fetched and the image on disks. `image_archive`: the image as
    engines load it; empty where none does. `by_subsystem`: count the kernel by subsystem, which needs its source, too.
    `monitored`: the monitors among the engines; with any, KVM works in the machine, for all of them. `board`: of a
    disk's machine; empty: the usual one. Raises UserInputError, HostError."""
    path = _checked(reference)
    with step(f"read {path.name}"):
        around = _fitted(path, store) if bundle_folder.is_bundle(path) else _own(path, store, board)
    machine = around.machine
    row = named(machine.architecture)
    with step("put the image on disks"):
        more = [entry for one in monitored for entry in one.entries]
        volumes = _volumes(image, image_archive, guest_programs.of(row.name).guest / ENTER, more, store)
    machine = replace(machine, memory_bytes=MEMORY_BYTES, disks=(*machine.disks, *(Disk(str(one)) for one in volumes)))
    known = BenchMachine(
        name=VM + path.stem, machine=with_monitors(machine, monitored), kernel=around.kernel,
        system_map=around.system_map, digest=around.which,
        subsystems=str(kernel_subsystems.known(around.packaged, row.name, store)) if by_subsystem else "",
    )  # fmt: skip
    root = around.root
    return BenchInside(
        machine=known, disk=str(path.absolute()), root=root.device, root_type=root.type, init=root.init,
        writable=root.writable, monitors=tuple(one.row for one in monitored),
    )  # fmt: skip


def _own(path: Path, store: Store, board: str = "") -> Around:
    """Return a system's machine with its own kernel and initial RAM disk."""
    with subjects.opened(f"{subjects.DISK}{path}", store) as found:
        row = named(found.subject.architecture)
        kernel = packaged_baseline.provide(of_host(), row, store, found.subject.kernel)
        taken = systems.taken_out(found, guest_programs.of(row.name), store)
        systems.require_same(taken / systems.KERNEL, Path(kernel.vmlinuz), found.subject)
        words = systems.words(found.subject, row)
        root = exercise_boots.root_of(found.subject, words)
        own, which = systems.disk_of(found), systems.identity_of(found, store)[:12]
    machine = Machine(
        board=board or row.board_names[0], memory_bytes=MEMORY_BYTES, kernel=str(taken / systems.KERNEL),
        initrd=str(taken / systems.INITRD), words=words, disks=(own,), cpu_model=row.emulator.cpu_model, acpi=True,
        architecture=row.name,
    )  # fmt: skip
    return Around(
        machine=machine, root=root, kernel=kernel.release, packaged=kernel, system_map=kernel.system_map, which=which
    )


def _fitted(path: Path, store: Store) -> Around:
    """Return a system's machine as it was fitted, without a network device, as the system's own has none."""
    loaded = bundle_folder.load(path, store)
    row, bundle = named(loaded.bundle.architecture), loaded.bundle
    machine = fitted_machine.machine_of(loaded, fitted_machine.Chosen(clock=Clock.INSTRUCTIONS))
    if lacks := [name for name in _ASKED if loaded.config.get(name, "n") == "n"]:
        raise UserInputError(
            f"the kernel of {plain(str(path))} cannot mount the image's disk: it lacks {', '.join(lacks)}",
            hint=f"vmtailor refit {path} --keep {','.join(lacks)}",
        )
    packaged = packaged_baseline.provide(of_host(), row, store, loaded.system.kernel)
    root = exercise_boots.root_of(loaded.system, bundle.words)
    symbols = str(loaded.file(bundle.system_map))
    return Around(
        machine=replace(machine, network=False), root=root, kernel=f"{bundle.kernel_version} as fitted",
        packaged=packaged, system_map=symbols, which=machine_digest(bundle),
    )  # fmt: skip


#: Symbols that a kernel needs for the disks of the benchmark.
_ASKED = ("EXT4_FS", "VIRTIO_BLK")


def _volumes(image: Image, image_archive: str, enter: Path, more: Sequence[Extra], store: Store) -> tuple[Path, Path]:
    """Return the disk with the image's files, and ours. `enter`: our program for the machine's processor; `more`: files
    of monitors."""

    def of_image(folder: Path) -> None:
        build(Path(image.archive), folder / "disk", RootFormat.EXT4)

    def ours(folder: Path) -> None:
        entries = [Extra(ENTER, data=enter, mode=0o755)]
        entries += [Extra(ARCHIVE, data=Path(image_archive))] if image_archive else []
        entries += more
        build(None, folder / "disk", RootFormat.EXT4, entries)

    key = digest("bench-tree/1", image.digest)
    tree = store.get("bench-volume", key, of_image) / "disk"
    parts = [part for one in more for part in (one.path, one.data)]
    key = digest("bench-ours/1", image.digest if image_archive else "", enter, *parts)
    return tree, store.get("bench-volume", key, ours) / "disk"
