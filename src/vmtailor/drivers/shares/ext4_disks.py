# SPDX-License-Identifier: Apache-2.0
"""Disks with an empty ext4 file system, which take no more of the host's disk than what is written to them."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base import process
from vmtailor.base.errors import UserInputError

#: Smallest disk: a journal has room in it.
LEAST_BYTES, MOST_BYTES = 8 << 20, 16 << 40
_MKFS_S = 120.0
# What nothing needs but a whole system's check is left out; tables are written when they are used.
_OPTIONS = ("-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0", "-m", "0")


def require_size(what: str, size_bytes: int) -> None:
    """Raise UserInputError for a size that no disk can have."""
    if not LEAST_BYTES <= size_bytes <= MOST_BYTES:
        raise UserInputError(f"{what} cannot hold {size_bytes} bytes", hint="from 8M to 16T")


def command() -> tuple[str, ...]:
    """Return the command that makes the file system, without the disk. Raises HostError where the host has none."""
    return (process.require_tool("mkfs.ext4", "e2fsprogs"), "-q", "-F", *_OPTIONS)


def make(disk: Path, size_bytes: int) -> None:
    """Make a disk, for us alone, where there is no file yet. Raises HostError where the host has no `mkfs.ext4`, and
    OSError."""
    argv = command()
    with disk.open("xb") as file:
        file.truncate(size_bytes)
    disk.chmod(0o600)
    process.run([*argv, str(disk)], timeout_s=_MKFS_S)
