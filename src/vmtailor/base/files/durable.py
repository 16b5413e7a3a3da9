# SPDX-License-Identifier: Apache-2.0
"""Put finished files in their place so that a power cut leaves the old ones or the new ones, whole: their content is
on the disk before they get their name, and the name is before anybody builds on it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

#: Files of a tree that are written to the disk one by one; a larger tree by its whole file system, which takes as long
#: as all that is unwritten there.
_ONE_BY_ONE = 64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: Linux: take two names in one step (include/uapi/linux/fs.h); the folder that paths begin from (fcntl.h).
_RENAME_EXCHANGE, _AT_FDCWD = 2, -100
#: Errors of a file system that cannot exchange names, or has nothing to write to a disk.
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def place(made: Path, to: Path) -> None:
    """Give a file, or a folder with all that is in it, its final name; what has that name is replaced. Both names are
    on one file system. Raises OSError, for a full disk among others: `to` is then what it was."""
    settle(made)
    made.replace(to)
    settle_names(to.parent)


def exchange(one: Path, other: Path) -> None:
    """Exchange the names of a finished folder and of what is beside it, in one step where the file system can. Raises
    OSError; both are then where they were. Without such a step a power cut may leave the second at `ONE-spare`."""
    settle(one)
    if not _exchanged(one, other):
        spare = one.with_name(f"{one.name}-spare")
        try:
            other.rename(spare)
            one.rename(other)
        finally:
            if not os.path.lexists(other) and os.path.lexists(spare):
                spare.rename(other)
        spare.rename(one)
    settle_names(other.parent)


def settle(made: Path) -> None:
    """Return when a file's content, or that of a whole tree, is on the disk. Raises OSError where it cannot be."""
    mode = made.lstat().st_mode
    if stat.S_ISREG(mode):
        _settle_one(made, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    elif stat.S_ISDIR(mode):
        _settle_tree(made)


def settle_names(folder: Path) -> None:
    """Return when the names in a folder are on the disk."""
    _settle_one(folder, _FOLDER)


def _settle_tree(top: Path) -> None:
    files, folders = list[Path](), [top]
    for path, mode in _below(top):
        if stat.S_ISDIR(mode):
            folders.append(path)
        elif stat.S_ISREG(mode):
            files.append(path)
        if len(files) + len(folders) > _ONE_BY_ONE:
            _settle_file_system(top)
            return
    for path in files:
        _settle_one(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    for path in reversed(folders):
        _settle_one(path, _FOLDER)


def _below(top: Path) -> Iterator[tuple[Path, int]]:
    waiting = [top]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    waiting.append(Path(entry.path))
                yield Path(entry.path), mode


def _settle_one(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def _settle_file_system(folder: Path) -> None:
    descriptor = os.open(folder, _FOLDER)
    try:
        _call("syncfs", descriptor)
    finally:
        os.close(descriptor)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two names; returns whether the file system can."""
    try:
        _call("renameat2", _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE))
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        return False
    return True


def _call(name: str, *words: object) -> None:
    """Call a function of the C library that Python has not."""
    library = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(AttributeError):  # an older library
        if getattr(library, name)(*words) == 0:
            return
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
