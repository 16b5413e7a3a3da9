# SPDX-License-Identifier: Apache-2.0
"""A system's tree in a flat archive: an image's, or one made of a folder or a tar file."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.words import figures
from vmtailor.drivers.image import flat_archive
from vmtailor.model.systems.tree import Node, NodeKind


class ArchiveTree:
    """A `Tree` of files and links; folders are those that something lies in. Raises UserInputError for a damaged
    one."""

    def __init__(self, archive: Path) -> None:
        self._archive = flat_archive.read(archive)
        self._folders: dict[str, dict[str, Node]] = {"/": {}}
        for path in self._archive.links:
            self._add(path, Node(NodeKind.LINK))
        for path, size in self._archive.files.items():
            self._add(path, Node(NodeKind.FILE, size))

    def _add(self, path: str, node: Node) -> None:
        while path != "/":
            above, name = posixpath.split(path)
            known = above in self._folders
            self._folders.setdefault(above, {})[name] = node
            if known:
                return
            path, node = above, Node(NodeKind.FOLDER)

    def folders(self, paths: Sequence[str]) -> Mapping[str, Mapping[str, Node]]:
        return {path: self._folders[path] for path in paths if path in self._folders}

    def targets(self, paths: Sequence[str]) -> Mapping[str, str]:
        return {path: self._archive.links[path] for path in paths if path in self._archive.links}

    def read(self, path: str, most: int) -> bytes:
        size = self._archive.files.get(path, 0)
        if size > most:
            raise UserInputError(f"{path} has {figures.file_bytes(size)}, more than is read of such a file")
        return self._archive.content(path)

    def begin(self, path: str, count: int) -> bytes:
        return self._archive.head(path, count)
