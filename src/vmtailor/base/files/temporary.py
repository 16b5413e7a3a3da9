# SPDX-License-Identifier: Apache-2.0
"""Temporary files: the folder that the user chose, and that nothing stays in it, even of a process that was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from vmtailor.base.disk_full import ANYWHERE, no_space
from vmtailor.base.errors import HostError

#: Prefix of our temporary folders, wherever they are.
PREFIX = "vmtailor-held-"
#: More bytes than a compiler needs for one line, or a machine for its last words.
_LEAST_BYTES = 1 << 20
_HINT = "free some space, or point TMPDIR to another disk"


def require_usable() -> None:
    """Raise HostError when the folder that TMPDIR names takes no file. Python would silently use another folder; the
    programs that we start would fail one by one."""
    folder = os.environ.get("TMPDIR")
    if not folder:
        return
    try:
        with tempfile.TemporaryFile(dir=Path(folder).absolute()) as file:
            file.write(b"room?")
            file.flush()
    except OSError as error:
        raise HostError(
            f"the folder for temporary files, {folder}, cannot be used: {os.strerror(error.errno or 0).lower()}"
            f"{_free(folder)}",
            hint=_HINT,
        ) from error


def require_room(folder: Path) -> None:
    """Raise DiskFull when the disk of a folder for temporary files has no room for what a small program writes. Whoever
    has run a program that hides such an error asks behind it, while its files are still there."""
    status = os.statvfs(folder)
    blocks = status.f_bfree if os.geteuid() == 0 else status.f_bavail
    if blocks * status.f_frsize < _LEAST_BYTES:
        raise no_space(f"in {folder.parent} for temporary files", elsewhere=ANYWHERE)


@contextlib.contextmanager
def held_folder(where: Path | None = None, prefix: str = PREFIX) -> Iterator[Path]:
    """Make a folder for us alone, and remove it when the block is left. Its process holds a lock on it. The next call
    for the same place removes folders of ours that no process locks any more.

    `where`: the folder that it is made in; by default that for temporary files. `prefix`: of its name, which nothing
    but such folders has there."""
    where = Path(tempfile.gettempdir()) if where is None else where
    sweep(where, prefix)
    while True:
        folder = Path(tempfile.mkdtemp(dir=where, prefix=prefix))
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # somebody else swept it before it was opened
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_at(folder, lock):
            break
        os.close(lock)  # or before it was locked
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep(where: Path, prefix: str = PREFIX) -> None:
    """Remove our folders there whose processes are gone."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(where):
            if entry.name.startswith(prefix):
                with contextlib.suppress(OSError):
                    _remove_if_dead(Path(entry.path))


def left_behind(where: Path, prefix: str = PREFIX) -> list[Path]:
    """Return our folders there whose processes are gone, by name."""
    found = []
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(where), key=lambda entry: entry.name):
            if entry.name.startswith(prefix) and _is_dead(Path(entry.path)):
                found.append(Path(entry.path))
    return found


def _is_dead(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        finally:
            os.close(lock)
    return False


def _remove_if_dead(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(lock).st_uid != os.geteuid():
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(folder, lock):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _is_at(folder: Path, descriptor: int) -> bool:
    try:
        there = os.lstat(folder)
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return stat.S_ISDIR(there.st_mode) and (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _free(folder: str) -> str:
    with contextlib.suppress(OSError):
        return f" ({shutil.disk_usage(folder).free // 1024} KiB are free there)"
    return ""
