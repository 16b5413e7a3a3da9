# SPDX-License-Identifier: Apache-2.0
"""The tree that layers make, lower to upper, in memory: no path of the host is ever touched.

Names are resolved inside the image as a kernel would after chroot: symbolic links on the way are followed, the last
component is not. A whiteout hides what lower layers left, wherever in its layer it stands.
"""

from __future__ import annotations

import tarfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from vmtailor.drivers.image import attributes
from vmtailor.drivers.image.allowance import DEPTH

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
#: Bookkeeping of the old aufs driver, no content; but files of several names lie in its folder PLINKS, whose own names
#: are hard links to them.
AUFS = ".wh..wh."
PLINKS = ".wh..wh.plnk"
LINKS_FOLLOWED = 40
PATH_BYTES = 4095
#: Components of symbolic links walked in all: a bound on work, far above any real image.
WALK_LIMIT = 50_000_000


class LayerNode:
    """One inode. `target`: a symbolic link's text, a device's (major, minor), a sparse file's map of (offset, length).
    Content: `size` bytes at `offset` of the uncompressed layer `layer`. `linked`: it may have several names."""

    __slots__ = (
        "children",
        "gid",
        "kind",
        "layer",
        "linked",
        "mode",
        "mtime",
        "offset",
        "size",
        "target",
        "uid",
        "xattrs",
    )

    def __init__(self, kind: bytes, mode: int, uid: int, gid: int, mtime: int | str) -> None:
        self.kind = kind
        self.mode = mode
        self.uid = uid
        self.gid = gid
        self.mtime = mtime
        self.xattrs: tuple[tuple[str, str], ...] = ()
        self.target: str | tuple[int, int] | tuple[tuple[int, int], ...] | None = None
        self.layer = 0
        self.offset = 0
        self.size = 0
        self.linked = False
        self.children: dict[str, LayerNode] | None = {} if kind == tarfile.DIRTYPE else None


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a layer: a node under a name, or (`node` None) one more name for what is found at `link`. `header`:
    owner, mode, time and attributes that such an entry gives the file."""

    parts: tuple[str, ...]
    node: LayerNode | None
    link: tuple[str, ...] = ()
    header: LayerNode | None = None

    @property
    def weight(self) -> int:
        """Return bytes of names and attributes, roughly."""
        total = sum(map(len, self.parts)) + sum(map(len, self.link))
        described = self.node or self.header
        if described is not None:
            total += sum(len(name) + len(value) for name, value in described.xattrs)
        target = None if self.node is None else self.node.target
        if target is not None:
            total += len(target) if isinstance(target, str) else 64 * len(target)
        return total


def implied_directory() -> LayerNode:
    """Return a directory that no entry describes."""
    return LayerNode(tarfile.DIRTYPE, 0o755, 0, 0, 0)


class LayerTree:
    """The merged image. Methods raise ValueError with what is wrong; the caller knows in which layer."""

    def __init__(self) -> None:
        self.root = implied_directory()
        self._ghosts: dict[tuple[int, str], LayerNode] = {}
        self._plinks: dict[str, LayerNode] = {}
        self._walked = 0

    def add_layer(self, entries: Iterable[TreeEntry]) -> None:
        """Put one layer on top. All of its whiteouts act on what is below, before its own entries come in."""
        self._ghosts, self._plinks = {}, {}
        additions, whiteouts = [], []
        for entry in entries:
            name = entry.parts[-1] if entry.parts else ""
            if entry.parts[:1] == (PLINKS,) and entry.node is not None and entry.node.kind == tarfile.REGTYPE:
                self._plinks[name] = entry.node
            elif name == OPAQUE or (name.startswith(WHITEOUT) and not name.startswith(AUFS)):
                whiteouts.append(entry.parts)
            elif not any(part.startswith(AUFS) for part in entry.parts):
                additions.append(entry)
        own = {entry.parts for entry in additions if entry.node is not None and entry.node.children is not None}
        for parts in whiteouts:
            if not self._is_new(parts[:-1], own):
                self._white_out(parts)
        for entry in additions:
            self._add(entry)
        self._ghosts, self._plinks = {}, {}

    def _is_new(self, parts: tuple[str, ...], own: Collection[tuple[str, ...]]) -> bool:
        """Return whether the layer itself puts a directory at, or above, a path that was something else before. A link
        in that place no longer leads to hidden files."""
        for length in range(1, len(parts) + 1):
            if parts[:length] in own:
                found = self._walk(parts[: length - 1], create=False)
                below = (found[0].children or {}).get(parts[length - 1]) if found else None
                if below is not None and below.children is None:
                    return True
        return False

    def lookup(self, path: str, *, follow: bool = True) -> LayerNode | None:
        """Return the node at a path inside the image; None when there is nothing, or the links go in circles."""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        for _ in range(LINKS_FOLLOWED):
            if not parts:
                return self.root
            try:
                found = self._walk(parts[:-1], create=False)
            except ValueError:
                return None
            if found is None:
                return None
            parent, above = found
            if parts[-1] == "..":
                parts = above[:-1]
                continue
            child = (parent.children or {}).get(parts[-1])
            if child is None or child.kind != tarfile.SYMTYPE or not follow:
                return child
            target = str(child.target)
            start = [] if target.startswith("/") else above
            parts = start + [part for part in target.split("/") if part not in ("", ".")]
        return None

    def _walk(self, parts: Iterable[str], *, create: bool) -> tuple[LayerNode, list[str]] | None:
        """Return the directory at a path, links followed inside the image, and its real path. What is missing, or is no
        directory, is made one with `create`, and gives None without."""
        todo = list(parts)
        todo.reverse()
        nodes, names = [self.root], list[str]()
        followed = 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if names:
                    nodes.pop()
                    names.pop()
                continue
            here = nodes[-1].children
            assert here is not None
            child = here.get(part)
            if child is not None and child.kind == tarfile.SYMTYPE:
                followed += 1
                steps = str(child.target).split("/")
                self._walked += len(steps)
                if followed > LINKS_FOLLOWED or self._walked > WALK_LIMIT:
                    raise ValueError(f"symbolic links at {part[:200]!r} go in circles")
                if steps[0] == "":
                    del nodes[1:], names[:]
                todo.extend(reversed(steps))
                continue
            if child is None or child.children is None:
                if not create:
                    return None
                child = here[part] = implied_directory()
            nodes.append(child)
            names.append(part)
        if len(names) > DEPTH:
            raise ValueError(f"symbolic links lead to a path {len(names)} deep; at most {DEPTH} are read")
        if sum(map(len, names)) + len(names) > PATH_BYTES:
            raise ValueError("symbolic links lead to a path that is too long")
        return nodes[-1], names

    def _white_out(self, parts: tuple[str, ...]) -> None:
        name = parts[-1][len(WHITEOUT) :]
        if name in ("", ".", ".."):
            raise ValueError(f"a whiteout is called {parts[-1]!r}")
        found = self._walk(parts[:-1], create=False)
        if found is None:
            return
        parent = found[0]
        assert parent.children is not None
        if parts[-1] == OPAQUE:
            gone = dict(parent.children)
            parent.children.clear()
        else:
            hidden = parent.children.pop(name, None)
            gone = {} if hidden is None else {name: hidden}
        for name, node in gone.items():
            self._ghosts[id(parent), name] = node

    def _add(self, entry: TreeEntry) -> None:
        node = entry.node
        if not entry.parts:
            if node is not None and node.children is not None:
                self._describe(self.root, node)
                return
            raise ValueError("its root is not a directory")
        found = self._walk(entry.parts[:-1], create=True)
        assert found is not None
        here = found[0].children
        assert here is not None
        name = entry.parts[-1]
        if node is None:
            node = self._link_target(entry.link)
            if node is None:
                raise ValueError(
                    f"{'/'.join(entry.parts)!r} is a hard link to {'/'.join(entry.link)!r}, which is not there"
                )
            node.linked = True
            if entry.header is not None and entry.link[:1] != (PLINKS,):
                _describe_again(node, entry.header)
        present = here.get(name)
        if present is not None and present.children is not None and node.children is not None:
            self._describe(present, node)
        else:
            here[name] = node

    @staticmethod
    def _describe(directory: LayerNode, by: LayerNode) -> None:
        directory.mode, directory.uid, directory.gid = by.mode, by.uid, by.gid
        directory.mtime, directory.xattrs = by.mtime, by.xattrs

    def _link_target(self, parts: tuple[str, ...]) -> LayerNode | None:
        """Return the target of a hard link: as the tree is now, a file that a whiteout of this layer has just
        hidden, or one that aufs put aside."""
        if parts[:1] == (PLINKS,):
            return self._plinks.get(parts[-1])
        found = self._walk(parts[:-1], create=False) if parts else None
        node = (found[0].children or {}).get(parts[-1]) if found else None
        if node is None:
            level = [self.root] if parts else []
            for part in parts:
                level = [
                    child
                    for parent in level
                    for child in ((parent.children or {}).get(part), self._ghosts.get((id(parent), part)))
                    if child is not None
                ]
            node = next((candidate for candidate in level if candidate.children is None), None)
        if node is not None and node.children is not None:
            raise ValueError(f"{'/'.join(parts)!r} is a directory, and hard-linked")
        return node

    def walk(self) -> Iterator[tuple[str, LayerNode]]:
        """Yield all paths, parents before children, siblings sorted; the root is the empty path."""
        stack = [("", self.root)]
        while stack:
            path, node = stack.pop()
            yield path, node
            if node.children:
                prefix = f"{path}/" if path else ""
                stack.extend((prefix + name, node.children[name]) for name in sorted(node.children, reverse=True))


def _describe_again(node: LayerNode, header: LayerNode) -> None:
    """Give a file what the header of one more name of it says, as engines do: they make the link, then set owner,
    attributes, mode and time of its file. A symbolic link has no mode, and users' attributes are for files alone."""
    node.uid, node.gid, node.mtime = header.uid, header.gid, header.mtime
    if node.kind != tarfile.SYMTYPE:
        node.mode = header.mode
    if header.xattrs:
        kept = dict(node.xattrs) | {
            name: value for name, value in header.xattrs if attributes.has_place(name, value, node.kind)
        }
        node.xattrs = tuple(sorted(kept.items()))
