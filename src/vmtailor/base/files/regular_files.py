# SPDX-License-Identifier: Apache-2.0
"""Regular files: opened without waiting for ever, and written whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import IO

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import durable

_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device", stat.S_IFLNK: "a symbolic link", stat.S_IFREG: "a file",
}  # fmt: skip


def kind_of(mode: int) -> str:
    """Return the kind of a file in words, by its mode."""
    return _KINDS.get(stat.S_IFMT(mode), "no file")


def open_regular(path: Path, what: str, *, hint: str = "give a regular file") -> IO[bytes]:
    """Open a file that must be a regular one; messages call it `what`. Never blocks.

    Raises UserInputError: another kind, not there, not readable."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        if "\0" in str(path):
            raise UserInputError(f"{what} {str(path)!r} holds a NUL", hint=hint)
        # Looked at before it is opened, too: opening some devices has effects, and a socket cannot be opened.
        _require(path.stat().st_mode, path, what, hint)
        handle = os.open(path, flags)
    except OSError as error:
        words = (error.strerror or "").lower()
        raise UserInputError(f"{what} {path} cannot be read: {words}", hint=hint) from error
    try:
        _require(os.fstat(handle).st_mode, path, what, hint)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _require(mode: int, path: Path, what: str, hint: str) -> None:
    if not stat.S_ISREG(mode):
        raise UserInputError(f"{what} {path} cannot be read: it is {kind_of(mode)}", hint=hint)


def read_regular(path: Path, what: str, most: int, *, hint: str = "give a regular file") -> bytes:
    """Return the content of a regular file of at most `most` bytes. Raises UserInputError, as `open_regular` does, and
    for a larger one."""
    with open_regular(path, what, hint=hint) as file:
        data = file.read(most + 1) or b""  # None: of a file of /proc that would wait for more to say
    if len(data) > most:
        raise UserInputError(f"{what} {path} is larger than {most} bytes", hint=hint)
    return data


def write_atomic(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write a file under a temporary name beside it, then rename: a power cut leaves the old file or the new one.
    `private`: for its owner alone, as in the cache."""
    path.parent.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.chmod(0o600 if private else 0o644)
        durable.place(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


_HINT = "name another path with -o"


def make_folder(path: Path) -> None:
    """Make a folder, and those above it. Raises UserInputError where it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UserInputError(f"the folder {path} cannot be made: {_words(error)}", hint=_HINT) from error


def write_output(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. Raises UserInputError where it cannot be written."""
    try:
        write_atomic(path, data)
    except (FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise UserInputError(f"{path} cannot be written: {_words(error)}", hint=_HINT) from error


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
