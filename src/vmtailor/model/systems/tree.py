# SPDX-License-Identifier: Apache-2.0
"""A root tree that is read and never mounted: on a disk, in an archive. Its content is untrusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class NodeKind(StrEnum):
    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"  # a device, a pipe, a socket


@dataclass(frozen=True)
class Node:
    """One entry of a folder. `size`: bytes of a file; 0 for others."""

    kind: NodeKind
    size: int = 0


class Tree(Protocol):
    """Reads a tree by real paths: absolute, without links on the way, `/` for its root. Each call takes several paths,
    since what answers may be a program that is started for it. Names are text in UTF-8, other bytes as surrogates."""

    def folders(self, paths: Sequence[str]) -> Mapping[str, Mapping[str, Node]]:
        """Return the content of folders: path → name → node. A path that is no folder is left out."""

    def targets(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Return the targets of symbolic links, as written. A path that is no link is left out."""

    def read(self, path: str, most: int) -> bytes:
        """Return the content of a file. Raises UserInputError for one that has more than `most` bytes; empty when there
        is none."""

    def begin(self, path: str, count: int) -> bytes:
        """Return the first bytes of a file, however long it is: at most `count`."""
