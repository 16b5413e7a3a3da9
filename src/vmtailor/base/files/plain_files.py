# SPDX-License-Identifier: Apache-2.0
"""Files of a folder that somebody else may have made: regular files that lie in it, and nothing that leads elsewhere.

Such a folder can hold a link to a file of the host, an endless FIFO, or a device that acts when it is opened. A record
in it can name `../../etc/passwd`. So names are plain, and every step is taken from the folder's own descriptor without
following a link. Each file is examined before it is opened for reading."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from vmtailor.base import notation
from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import kind_of
from vmtailor.base.text import plain

#: A name in a folder, or in a folder of it: no way up, nothing hidden, nothing that a terminal or a shell would obey.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}(?:/[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127})?")
_HINT = "a bundle holds plain files only; get it again, or fit the image again"


def is_name(name: str) -> bool:
    """Return whether a text is the plain name of a file in a folder, or in a folder of it."""
    return _NAME.fullmatch(name) is not None


def require_name(name: str, where: Path) -> str:
    """Return a name that a record gives to a file of its own folder (`kernel`, `trace/trace.json`).

    Raises UserInputError for anything else: absolute paths, `..`, deeper folders, control characters."""
    if not is_name(name):
        raise UserInputError(f"{where} names a file '{plain(name)}', which is not a plain name", hint=_HINT)
    return name


@contextlib.contextmanager
def folder_of(folder: Path, name: str = "") -> Iterator[int]:
    """Return a descriptor of the folder that a name is in. The user may name the folder itself through links; a folder
    in it must not be a link."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        inner, slash, _ = name.rpartition("/")
        if slash:
            outer, opened = opened, os.open(inner, _FOLDER, dir_fd=opened)
            os.close(outer)
        yield opened
    finally:
        os.close(opened)


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def opened(folder: Path, name: str) -> Iterator[BufferedReader]:
    """Open a regular file of a folder for reading. Raises UserInputError for one that is missing, a link, a folder, a
    FIFO, a socket or a device. A name that is not plain is refused, too."""
    require_name(name, folder)
    with contextlib.ExitStack() as stack:
        try:
            at = stack.enter_context(folder_of(folder, name))
            # O_PATH looks without opening: no device acts, no FIFO waits. What is read then is this very inode.
            looked_at = os.open(name.rpartition("/")[2], os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            stack.callback(os.close, looked_at)
            mode = os.fstat(looked_at).st_mode
            if not stat.S_ISREG(mode):
                raise UserInputError(f"{folder / name} is {kind_of(mode)}, not a regular file", hint=_HINT)
            file = stack.enter_context(open(f"/proc/self/fd/{looked_at}", "rb"))  # noqa: PTH123
        except FileNotFoundError:
            raise UserInputError(
                f"{folder} lacks its file {name}", hint="get it again, or fit the image again"
            ) from None
        except OSError as error:
            raise UserInputError(f"{folder / name} cannot be read: {error.strerror}", hint=_HINT) from error
        yield file


def read(folder: Path, name: str, most_bytes: int) -> bytes:
    """Return the content of a regular file of a folder. Raises UserInputError as `opened` does, and for a longer
    file."""
    with opened(folder, name) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise UserInputError(f"{folder / name} is larger than {notation.mebibytes(most_bytes)}", hint=_HINT)
        return file.read(most_bytes)


def has(folder: Path, name: str) -> bool:
    """Return whether a folder has a regular file of this name."""
    try:
        with opened(folder, name):
            return True
    except UserInputError:
        return False


def ours_alone(folder: Path, name: str) -> bool:
    """Return whether nobody but us and root can change a file or replace it. Owner and rights of the file and of all
    folders above it are checked."""
    path = folder.resolve() / name
    for one in (path, *path.parents):
        status = one.lstat()
        if status.st_uid not in (0, os.geteuid()):
            return False
        others_write = bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        # In a sticky folder such as /tmp, others can neither remove nor rename what is not theirs.
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if others_write and not sticky:
            return False
    return True
