# SPDX-License-Identifier: Apache-2.0
"""A root tree that is read and never mounted: on a disk, in an archive. What it holds is untrusted."""

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
        """Return the nodes in folders: path → name → node. A path that is no folder is left out."""

    def targets(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Return the texts of symbolic links. A path that is none is left out."""

    def read(self, path: str, most: int) -> bytes:
        """The content of a file. Raises UserInputError for one that has more than `most` bytes; empty when there is
        none."""

    def begin(self, path: str, count: int) -> bytes:
        """The first bytes of a file, however long it is: at most `count`."""
