# SPDX-License-Identifier: Apache-2.0
"""Named volumes: a disk each, with a file system in it, in a folder below the user's state.

A volume's file takes no more of the disk than what was written to it. Machines lock it while they use it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vmtailor.base import process
from vmtailor.base.disk_full import disk_full_is_a_host_error
from vmtailor.base.errors import AnswerNo, HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.base.text import plain
from vmtailor.drivers.host import user_folders
from vmtailor.drivers.shares import ext4_disks
from vmtailor.model.machine import Disk, DiskMode

#: Bytes that a volume may hold unless its maker says otherwise. Nothing of them is taken before it is written.
USUAL_BYTES = 16 << 30
#: As docker has it; one character is no volume, so that a drive's letter is none.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{1,127}")
_DISK, _RECORD = "disk.raw", "volume.json"


# vmtailor/volume/1: the first.
@dataclass(frozen=True, kw_only=True)
class NamedVolume:
    """A volume. `created`: RFC 3339. `size_bytes`: of its disk."""

    SCHEMA: ClassVar[str] = "vmtailor/volume/1"

    name: str
    created: str
    size_bytes: int
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class VolumeState:
    """`taken_bytes`: of this host's disk. `in_use`: a machine has it."""

    volume: NamedVolume
    path: Path
    taken_bytes: int
    in_use: bool


def require_name(name: str) -> str:
    """Return a volume's name. Raises UserInputError for what is none."""
    if not _NAME.fullmatch(name):
        raise UserInputError(
            f"'{plain(name[:200])}' is not the name of a volume",
            hint="two letters, digits, '_', '.' or '-' at least; a folder of the host begins with / or ./",
        )
    return name


def _root() -> Path:
    return user_folders.state_home() / "volumes"


def names() -> tuple[str, ...]:
    """Return the names of all volumes, in order."""
    with contextlib.suppress(FileNotFoundError):
        return tuple(sorted(one.name for one in os.scandir(_root()) if _NAME.fullmatch(one.name)))
    return ()


def create(name: str, size_bytes: int = USUAL_BYTES, labels: tuple[tuple[str, str], ...] = ()) -> bool:
    """Make a volume, and return whether there was none of that name. Raises HostError where the host cannot make a file
    system; UserInputError for a size that none can have."""
    require_name(name)
    ext4_disks.require_size("a volume", size_bytes)
    process.require_tool("mkfs.ext4", "e2fsprogs")
    user_folders.private(_root().parent)
    root = user_folders.private(_root())
    with _locked(root):
        if (root / name).is_dir():
            return False
        made = root / f".new-{name}"
        _remove(made)  # of a process that was killed
        made.mkdir(mode=0o700)
        with disk_full_is_a_host_error(root):
            ext4_disks.make(made / _DISK, size_bytes)
            created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            records.save(NamedVolume(name=name, created=created, size_bytes=size_bytes, labels=labels), made / _RECORD)
            made.rename(root / name)
    return True


def state(name: str) -> VolumeState:
    """Return what is known of a volume. Raises AnswerNo where there is none."""
    folder = _folder(name)
    with _opened(folder) as disk:
        busy = not _lock(disk)
        taken = os.fstat(disk).st_blocks * 512
    return VolumeState(records.load(NamedVolume, folder / _RECORD), folder / _DISK, taken, busy)


def remove(name: str) -> None:
    """Remove a volume and all that is in it. Raises AnswerNo where there is none, UserInputError where a machine uses
    it."""
    folder = _folder(name)
    with _locked(_root()), _opened(folder) as disk:
        if not _lock(disk):
            raise _busy(name)
        gone = _root() / f".new-{name}"
        _remove(gone)
        folder.rename(gone)
        _remove(gone)


@contextlib.contextmanager
def in_use(name: str) -> Iterator[Disk]:
    """Yield the disk of a volume, made where there is none, and hold it against other machines. Raises UserInputError
    where another has it."""
    disk, descriptor = held(name)
    try:
        yield disk
    finally:
        os.close(descriptor)


def held(name: str) -> tuple[Disk, int]:
    """Return the disk of a volume, made where there is none, and the descriptor that holds it against other machines as
    long as anybody has it. Raises UserInputError where another has it."""
    create(name)
    folder = _folder(name)
    with _opened(folder) as disk:
        if not _lock(disk):
            raise _busy(name)
        return Disk(str(folder / _DISK), mode=DiskMode.WRITTEN), os.dup(disk)


def _busy(name: str) -> UserInputError:
    return UserInputError(f"the volume {name} is in use by a running machine", hint="stop that machine first")


def _folder(name: str) -> Path:
    folder = _root() / require_name(name)
    if not folder.is_dir():
        raise AnswerNo(f"there is no volume {name}", hint="vmtailor volume ls names them")
    return folder


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    try:
        disk = os.open(folder / _DISK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise HostError(
            f"the volume {folder.name} cannot be opened: {os.strerror(error.errno or 0).lower()}",
            hint=f"vmtailor volume rm {folder.name} removes it",
        ) from error
    try:
        yield disk
    finally:
        os.close(disk)


def _lock(disk: int) -> bool:
    """Take the lock of a volume, and return whether nobody has it."""
    try:
        fcntl.flock(disk, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    held = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _remove(folder: Path) -> None:
    for name in (_DISK, _RECORD):
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        folder.rmdir()
