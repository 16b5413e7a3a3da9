# SPDX-License-Identifier: Apache-2.0
"""A system's tree on a disk: its root file system, with those of /boot and of the EFI system partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmtailor.base import figures
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.disks.file_system import Entry, FileSystem
from vmtailor.model.systems.tree import Node, NodeKind


class DiskTree:
    """A `Tree`: paths become inode numbers as their folders are listed."""

    def __init__(self, root: FileSystem, name: str) -> None:
        self._name = name
        self._root = root
        self._mounted: dict[str, FileSystem] = {}
        self._listed: dict[str, dict[str, Entry]] = {}

    def mount(self, place: str, system: FileSystem) -> None:
        """Put another file system in its place, such as `/boot`."""
        self._mounted[place] = system
        for path in [path for path in self._listed if path == place or path.startswith(f"{place}/")]:
            del self._listed[path]

    def folders(self, paths: Sequence[str]) -> Mapping[str, Mapping[str, Node]]:
        self._list(paths)
        return {
            path: {name: entry.node for name, entry in self._listed[path].items()}
            for path in paths
            if path in self._listed
        }

    def targets(self, paths: Sequence[str]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for system, some in self._by_system(paths).items():
            inodes = {
                path: entry.inode for path in some if (entry := self._entry(path)) and entry.node.kind is NodeKind.LINK
            }
            told = system.targets(list(inodes.values())) if inodes else {}
            found.update({path: told[inode] for path, inode in inodes.items()})
        return found

    def read(self, path: str, most: int) -> bytes:
        entry = self._entry(path)
        if entry is None or entry.node.kind is not NodeKind.FILE:
            return b""
        if entry.node.size > most:
            size = figures.file_bytes(entry.node.size)
            raise UserInputError(f"{self._name}: {path} has {size}, more than vmtailor reads of such a file")
        return self._system(path).read(entry.inode, entry.node.size) if entry.node.size else b""

    def begin(self, path: str, count: int) -> bytes:
        entry = self._entry(path)
        if entry is None or entry.node.kind is not NodeKind.FILE:
            return b""
        return self._system(path).begin(entry.inode, min(count, entry.node.size))

    def _system(self, path: str) -> FileSystem:
        within = [place for place in self._mounted if path == place or path.startswith(f"{place}/")]
        return self._mounted[max(within, key=len)] if within else self._root

    def _by_system(self, paths: Sequence[str]) -> dict[FileSystem, list[str]]:
        found: dict[FileSystem, list[str]] = {}
        for path in paths:
            found.setdefault(self._system(path), []).append(path)
        return found

    def _entry(self, path: str) -> Entry | None:
        if path == "/" or path in self._mounted:
            return Entry(self._system(path).root, Node(NodeKind.FOLDER))
        above, _, name = path.rpartition("/")
        self._list([above or "/"])
        return self._listed.get(above or "/", {}).get(name)

    def _list(self, paths: Sequence[str]) -> None:
        for system, some in self._by_system([path for path in paths if path not in self._listed]).items():
            inodes = {
                path: entry.inode
                for path in some
                if (entry := self._entry(path)) and entry.node.kind is NodeKind.FOLDER
            }
            told = system.folders(list(inodes.values())) if inodes else {}
            self._listed.update({path: told[inode] for path, inode in inodes.items()})
