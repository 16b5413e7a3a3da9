# SPDX-License-Identifier: Apache-2.0
"""What is written where the user says: what stands in the way is his to mend, and is said so."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.records import write_atomic

_HINT = "name another place with -o"


def make_folder(path: Path) -> None:
    """Make a folder, and those above it. Raises UserInputError where it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UserInputError(f"the folder {path} cannot be made: {_words(error)}", hint=_HINT) from error


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. Raises UserInputError where it cannot be written."""
    try:
        write_atomic(path, data)
    except (FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise UserInputError(f"{path} cannot be written: {_words(error)}", hint=_HINT) from error


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
