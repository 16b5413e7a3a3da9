# SPDX-License-Identifier: Apache-2.0
"""A file system on a disk image, of any kind: its tree by inode numbers, only read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from vmtailor.model.systems.tree import Node


@dataclass(frozen=True)
class Entry:
    """One entry of a directory."""

    inode: int
    node: Node


class FileSystem(Protocol):
    """Each call takes several inodes, since what answers may be a program that is started for it. Raises UserInputError
    for a file system that is damaged."""

    @property
    def root(self) -> int:
        """Return the inode of the topmost directory."""

    def folders(self, inodes: Sequence[int]) -> dict[int, dict[str, Entry]]:
        """Return the content of directories."""

    def targets(self, inodes: Sequence[int]) -> dict[int, str]:
        """Return the targets of symbolic links."""

    def read(self, inode: int, size: int) -> bytes:
        """Return the content of a file of `size` bytes."""

    def begin(self, inode: int, count: int) -> bytes:
        """Return the first bytes of a file, at most `count`."""
