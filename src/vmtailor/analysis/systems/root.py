# SPDX-License-Identifier: Apache-2.0
"""Paths inside a system's tree, links followed as after chroot, within bounds: the tree may be hostile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from vmtailor.model.systems.tree import Node, NodeKind, Tree

#: Links on the way to one file, as in the kernel.
LINKS_FOLLOWED = 40
#: Steps of one path, links' texts included.
_MOST_STEPS = 1000
#: Entries and depth of one walk.
MOST_ENTRIES, MOST_DEPTH = 50_000, 32


class RootTree:
    """A tree with its links: every path may be any that a program of the system would use."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._folders: dict[str, Mapping[str, Node]] = {}
        self._targets: dict[str, str] = {}

    def resolve(self, path: str) -> str:
        """Return the real path, all links followed; empty when there is nothing, or the links go in circles."""
        todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        real, links, steps = "", 0, 0
        while todo:
            part = todo.pop()
            steps += 1
            if steps > _MOST_STEPS:
                return ""
            if part == "..":
                real = real.rpartition("/")[0]
                continue
            node = self.folder(real or "/").get(part)
            here = f"{real}/{part}"
            if node is None:
                return ""
            if node.kind is NodeKind.LINK:
                target, links = self.target(here), links + 1
                if not target or links > LINKS_FOLLOWED:
                    return ""
                real = "" if target.startswith("/") else real
                todo.extend(part for part in reversed(target.split("/")) if part not in ("", "."))
                continue
            real = here
        return real or "/"

    def node(self, path: str) -> Node | None:
        """Return the node at a path, its links followed; None for nothing."""
        real = self.resolve(path)
        if not real:
            return None
        above, _, name = real.rpartition("/")
        return self.folder(above or "/").get(name) if name else Node(NodeKind.FOLDER)

    def is_file(self, path: str) -> bool:
        found = self.node(path)
        return found is not None and found.kind is NodeKind.FILE

    def names(self, path: str) -> Mapping[str, Node]:
        """Return the names in a folder, the way to it resolved; none for what is no folder."""
        real = self.resolve(path)
        return self.folder(real) if real else {}

    def read(self, path: str, most: int) -> bytes:
        """Return the content of a file; empty when there is none. Raises UserInputError for more than `most` bytes."""
        real = self.resolve(path)
        found = self.node(path)
        return self._tree.read(real, most) if found is not None and found.kind is NodeKind.FILE else b""

    def begin(self, path: str, count: int) -> bytes:
        """Return the first bytes of a file; empty when there is none."""
        real = self.resolve(path)
        return self._tree.begin(real, count) if real and self.is_file(path) else b""

    def text(self, path: str, most: int = 1 << 20) -> str:
        """Return a file as text."""
        return self.read(path, most).decode("utf-8", "replace")

    def target(self, path: str) -> str:
        """Return the text of the link at a real path; empty for none."""
        if path not in self._targets:
            self.learn_targets([path])
        return self._targets[path]

    def learn_targets(self, paths: Iterable[str]) -> None:
        """Ask for many links at once."""
        wanted = [path for path in paths if path not in self._targets]
        if wanted:
            found = self._tree.targets(wanted)
            self._targets.update({path: found.get(path, "") for path in wanted})

    def folder(self, path: str) -> Mapping[str, Node]:
        """Return the nodes in the folder at a real path; none for what is no folder."""
        if path not in self._folders:
            self._learn([path])
        return self._folders[path]

    def _learn(self, paths: Sequence[str]) -> None:
        wanted = [path for path in paths if path not in self._folders]
        if wanted:
            found = self._tree.folders(wanted)
            self._folders.update({path: found.get(path, {}) for path in wanted})

    def walk(self, path: str) -> Iterator[tuple[str, Node]]:
        """Everything below a folder, links not followed: (path below it, node). Ends early in a tree that is too large
        or too deep to be one of modules or units."""
        top = self.resolve(path)
        level, count = [top] if top else [], 0
        for _ in range(MOST_DEPTH):
            self._learn(level)
            below = []
            for folder in level:
                for name, node in sorted(self._folders[folder].items()):
                    here = f"{folder.rstrip('/')}/{name}"
                    yield here.removeprefix(top).lstrip("/"), node
                    count += 1
                    if count >= MOST_ENTRIES:
                        return
                    if node.kind is NodeKind.FOLDER:
                        below.append(here)
            if not below:
                return
            level = below
