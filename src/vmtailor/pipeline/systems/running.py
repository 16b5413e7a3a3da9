# SPDX-License-Identifier: Apache-2.0
"""`run` of a system's bundle: its machine with its console, and a disk that forgets or keeps what is written."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from vmtailor.base.cache.store import disk_full_is_a_host_error
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files import plain_files, temporary
from vmtailor.base.files.holes import copy_with_holes
from vmtailor.base.output import note
from vmtailor.base.words.text import plural
from vmtailor.booting import console
from vmtailor.drivers.host import bundle_folder, terminal
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.host.caught_signals import caught
from vmtailor.drivers.qemu.accelerator import best_accelerator
from vmtailor.model.bundle import STATES, SYSTEM
from vmtailor.model.machine import Disk, DiskFormat, DiskMode, Machine
from vmtailor.model.option import OptionSubject, refuse
from vmtailor.pipeline.bundles import machine_of
from vmtailor.pipeline.running import ports
from vmtailor.pipeline.running.run import RunOptions


def is_system(folder: Path) -> bool:
    """Whether a path is the bundle of a system with an init of its own. Raises UserInputError for a damaged bundle."""
    return bundle_folder.is_bundle(folder) and bundle_folder.load_any(folder).lists(SYSTEM)


def run_system(options: RunOptions) -> int:
    """Start a system's machine and relay its console until it ends. Raises GuestError when its kernel gave up,
    UserInputError for options that only containers have."""
    files = bundle_folder.load_any(options.bundle)
    refuse(options, OptionSubject.SYSTEM, options.bundle)
    terminal.require_streams()
    published = ports.chosen(options.ports)
    temporary.require_usable()
    with _disk(options, files) as disk:
        machine = replace(_machine(options, files), disks=(disk,), ports=published)
        interactive = options.interactive or os.isatty(0)
        told = ports.announced(options.ports, published)
        if told:
            note(told.rstrip("\n"))
        if os.isatty(0):
            note(f"{console.LEAVE_NAME} ends the machine")
        with caught() as signals:
            finished = console.attached(machine, signals, interactive=interactive)
    if finished.lost:
        raise GuestError(
            f"the system is lost: {finished.lost}", hint=f"vmtailor explain {files.path} --failure 'MESSAGE'"
        )
    if finished.end.returncode and not finished.left:
        raise GuestError(f"QEMU ended with status {finished.end.returncode}", details=finished.end.stderr)
    return 0


def _machine(options: RunOptions, files: BundleFolder) -> Machine:
    bundle = files.bundle
    if options.cpus is not None and options.cpus > bundle.cpus:
        raise UserInputError(
            f"the bundle was fitted to {plural(bundle.cpus, 'CPU')}, and its kernel has no more",
            hint=f"fit the system with --cpus {options.cpus}",
        )
    if options.ports and not bundle.network:
        raise UserInputError("this machine has no network device, so no port can be published")
    accelerator = options.accelerator or best_accelerator(bundle.architecture)
    machine = machine_of(files.path, bundle, accelerator=accelerator, memory_bytes=options.memory_bytes)
    return replace(
        machine, cpus=options.cpus or machine.cpus, network=bundle.network, outbound=options.outbound,
        host_loopback=options.host_loopback,
    )  # fmt: skip


def disk_of(files: BundleFolder) -> Disk:
    """The disk of a system's bundle: what is written to it is thrown away. Raises UserInputError for a damaged one."""
    name = files.bundle.root
    form = DiskFormat.QCOW2 if name.endswith(f".{DiskFormat.QCOW2}") else DiskFormat.RAW
    return Disk(str(files.file(name)), form, DiskMode.OVERLAID)


@contextmanager
def _disk(options: RunOptions, files: BundleFolder) -> Iterator[Disk]:
    """The system's disk: as it was fitted, and what is written to it thrown away; or one of its own that is kept.

    Raises UserInputError as `_kept_state` does."""
    own = disk_of(files)
    if not options.keep_state:
        yield own
        return
    with _kept_state(files, Path(own.path), own.format) as state:
        yield Disk(str(state), own.format, DiskMode.WRITTEN)


def _first_state(folder: Path, root: Path, state: Path) -> None:
    """Make the file from the disk as it was fitted; of two starts at once, one does."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        made = state.with_name(f".{state.name}-new")
        made.unlink(missing_ok=True)  # of a start that was killed
        if os.path.lexists(state):
            return
        with disk_full_is_a_host_error(folder):
            try:
                copy_with_holes(root, made)
                made.chmod(0o600)
                made.rename(state)
            finally:
                made.unlink(missing_ok=True)
    finally:
        os.close(held)


@contextmanager
def _kept_state(files: BundleFolder, root: Path, form: DiskFormat) -> Iterator[Path]:
    """The file that a system's changes are kept in, made where there is none, and held against other machines.

    A bundle may be a stranger's: QEMU writes to this file, so it must be one of this folder alone. Raises
    UserInputError for a link, and for a file that has another name or owner, too."""
    state = files.path / STATES[form]
    if not os.path.lexists(state):
        _first_state(files.path, root, state)
    with plain_files.opened(files.path, state.name) as held:
        found = os.fstat(held.fileno())
        if found.st_nlink != 1 or found.st_uid != os.geteuid():
            why = "has another name, too" if found.st_nlink != 1 else "is somebody else's file"
            raise UserInputError(
                f"{state} {why}, and would be written to", hint="remove it: the next run makes one of its own"
            )
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserInputError(
                f"{state} is in use by a running machine", hint="shut that down first, or leave --keep-state out"
            ) from None
        yield state
