# SPDX-License-Identifier: Apache-2.0
"""The disk of a system's own that its bundle keeps (`run --keep-state`)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmtailor.base.disk_full import disk_full_is_a_host_error
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import durable, plain_files
from vmtailor.base.files.holes import copy_with_holes
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.model.bundle import STATES
from vmtailor.model.machine import Disk, DiskMode


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
                durable.place(made, state)
            finally:
                made.unlink(missing_ok=True)
    finally:
        os.close(held)


@contextmanager
def kept_state(files: BundleFolder) -> Iterator[Disk]:
    """Yield the disk that a system's changes are kept in, made where there is none, and held against other machines.

    A bundle may be a stranger's: QEMU writes to this file, so it must be one of this folder alone. Raises
    UserInputError for a link, and for a file that has another name or owner, too."""
    own = files.root
    state = files.path / STATES[own.format]
    if not os.path.lexists(state):
        _first_state(files.path, Path(own.path), state)
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
                f"{state} is in use by a running machine",
                hint="shut that machine down first, or run without --keep-state",
            ) from None
        yield Disk(str(state), own.format, DiskMode.WRITTEN)
