# SPDX-License-Identifier: Apache-2.0
"""Flat archives: their files, links and first bytes, and a system's tree in one, without unpacking."""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vmtailor.base import figures
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image.attributes import ACLS
from vmtailor.model.systems.tree import Node, NodeKind

#: As many symbolic links are followed on the way to a file.
_MOST_LINKS = 40


@dataclass(frozen=True)
class FlatArchive:
    """`files`: absolute path → bytes; `links`: absolute path → target of a symbolic link, as written; `modes`: absolute
    path of a file → its permissions; `capable`: files with capabilities of their own (security.capability); `listed`:
    files and folders with access control lists, sorted."""

    path: Path
    files: dict[str, int]
    links: dict[str, str]
    _offsets: dict[str, int] = field(repr=False)
    modes: dict[str, int] = field(default_factory=dict)
    capable: frozenset[str] = frozenset()
    listed: tuple[str, ...] = ()

    def head(self, path: str, most: int = 256) -> bytes:
        """Return the first bytes of a file, its links followed inside the archive; empty when there is no such file."""
        return self.content(path, most=most)

    def content(self, path: str, start: int = 0, most: int | None = None) -> bytes:
        """Return the bytes of a file, or a part of them, its links followed inside the archive. The result is empty
        when there is no such file."""
        found = self.resolve(path)
        if found not in self._offsets:
            return b""
        left = max(0, self.files[found] - start)
        with self.path.open("rb") as file:
            file.seek(self._offsets[found] + start)
            return file.read(left if most is None else min(most, left))

    def resolve(self, path: str) -> str:
        """Return the path with all symbolic links followed; as far as it goes when they form a loop."""
        done, left = "", [part for part in path.split("/") if part]
        budget = _MOST_LINKS
        while left:
            part = left.pop(0)
            if part == ".":
                continue
            here = posixpath.dirname(done) if part == ".." else f"{done.rstrip('/')}/{part}"
            target = self.links.get(here)
            if target is None or budget == 0:
                done = here
                continue
            budget -= 1
            left = [p for p in target.split("/") if p] + left
            if target.startswith("/"):
                done = ""
        return done or "/"


def read(path: Path) -> FlatArchive:
    """Read the index of a flat archive (an uncompressed pax tar). Raises UserInputError when it is damaged."""
    files: dict[str, int] = {}
    links: dict[str, str] = {}
    offsets: dict[str, int] = {}
    modes: dict[str, int] = {}
    capable: set[str] = set()
    listed: list[str] = []
    try:
        with tarfile.open(path, "r:", encoding="utf-8", errors="surrogateescape") as tar:
            for member in tar:
                name = posixpath.normpath("/" + member.name.removeprefix("./"))
                if any(f"SCHILY.xattr.{acl}" in member.pax_headers for acl in ACLS):
                    listed.append(name)
                if member.issym():
                    links[name] = member.linkname
                elif member.islnk():
                    target = posixpath.normpath("/" + member.linkname.removeprefix("./"))
                    if target in links:
                        links[name] = links[target]
                        continue
                    files[name], offsets[name] = files.get(target, 0), offsets.get(target, 0)
                    modes[name] = modes.get(target, 0)
                    capable |= {name} if target in capable else set()
                elif member.isfile():
                    files[name], offsets[name] = member.size, member.offset_data
                    modes[name] = member.mode
                    capable |= {name} if "SCHILY.xattr.security.capability" in member.pax_headers else set()
    except (tarfile.TarError, OSError) as error:
        raise UserInputError(f"{path} is damaged: {error}", hint="fetch the image again") from error
    return FlatArchive(
        path=path, files=files, links=links, _offsets=offsets, modes=modes, capable=frozenset(capable),
        listed=tuple(sorted(listed)),
    )  # fmt: skip


class ArchiveTree:
    """A `Tree` of files and links; folders are those that something lies in. Raises UserInputError for a damaged
    one."""

    def __init__(self, archive: Path) -> None:
        self._archive = read(archive)
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
            raise UserInputError(f"{path} has {figures.file_bytes(size)}, more than vmtailor reads of such a file")
        return self._archive.content(path)

    def begin(self, path: str, count: int) -> bytes:
        return self._archive.head(path, count)
