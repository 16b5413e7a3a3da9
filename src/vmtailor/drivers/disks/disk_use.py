# SPDX-License-Identifier: Apache-2.0
"""Refuse disk images that are in use on this host: mounted by a loop device, or locked by a program."""

from __future__ import annotations

import fcntl
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain

_LOOPS = Path("/sys/block")
_MOST_PATH = 4096


def require_unused(path: Path, loops: Path = _LOOPS) -> None:
    """Raise UserInputError for an image that a loop device of this host has, or another program has locked (flock).
    Running machines of QEMU's are seen when the disk is opened."""
    real = path.resolve()
    for file in sorted(loops.glob("loop*/loop/backing_file")):
        try:
            backing = file.read_text(errors="surrogateescape")[:_MOST_PATH].strip()
        except OSError:  # it was detached meanwhile
            continue
        if backing.removesuffix(" (deleted)") == str(real):
            device = f"/dev/{file.parts[-3]}"
            raise UserInputError(
                f"{path} is in use: {device} has it", hint=f"unmount what is on it, then: losetup -d {device}"
            )
    with real.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserInputError(
                f"{plain(str(path))} is in use: another program has locked it", hint="end that program first"
            ) from None
        except OSError:  # a file system without locks
            return
