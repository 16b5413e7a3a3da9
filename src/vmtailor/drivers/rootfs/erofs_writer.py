# SPDX-License-Identifier: Apache-2.0
"""Write an erofs root file system without mkfs.erofs, for images that its older versions cannot be given
(docs/decisions/0055-a-writer-of-erofs.md): long names and attributes, and folders deeper than a host's path.

The format is the plain one that every kernel since 5.4 reads: extended inodes, no compression, no checksum. Equal trees
give equal bytes. Source of the layout: fs/erofs/erofs_fs.h and Documentation/filesystems/erofs.rst of Linux 6.12."""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO
from uuid import UUID

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image.layer_tree import LayerNode, LayerTree
from vmtailor.drivers.image.layers import Layer, contents_of, device_of

BLOCK = 4096
_SUPERBLOCK_AT, _SUPERBLOCK_BYTES = 1024, 128
_MAGIC = 0xE0F5E1E2
#: Flag of the superblock: the time of an inode is that of its content.
_MTIME = 2
#: Inodes are counted in slots. Ours take two, so that none lies in two blocks.
_SLOT, _INODE_BYTES = 32, 64
_FIRST = _SUPERBLOCK_AT + _SUPERBLOCK_BYTES
#: Layouts of content, beside the bit of an extended inode: in blocks of its own; its last part behind the inode.
_PLAIN, _INLINE = 1, 1 | 2 << 1
_NOWHERE = 0xFFFFFFFF
_DIRENT = struct.Struct("<QHBx")
_INODE = struct.Struct("<HHHHQIIIIQII16x")
_ATTRIBUTE = struct.Struct("<BBH")
_ATTRIBUTES_HEAD = 12
#: Bytes of one attribute's value, and of all attributes of a file with their names, that the format has room for.
_VALUE_BYTES = 0xFFFF
_ATTRIBUTES_BYTES = 4 * (0xFFFF - 1)
_KINDS = {
    tarfile.REGTYPE: (0o100000, 1), tarfile.DIRTYPE: (0o040000, 2), tarfile.CHRTYPE: (0o020000, 3),
    tarfile.BLKTYPE: (0o060000, 4), tarfile.FIFOTYPE: (0o010000, 5), tarfile.SYMTYPE: (0o120000, 7),
}  # fmt: skip
#: Numbers of the namespaces of attributes; the names of access control lists are one whole.
_NAMESPACES = {
    b"user.": 1, b"system.posix_acl_access": 2, b"system.posix_acl_default": 3, b"trusted.": 4, b"security.": 6,
}  # fmt: skip


@dataclass(eq=False, slots=True)
class _Inode:
    """An inode and its place. `above`: that of the folder it lies in. `names`: sorted, of a folder alone. `data`: the
    content of folders and links. `at`: offset of the inode; `block`: its first block of content; `inline`: bytes of
    content behind the inode."""

    node: LayerNode
    above: _Inode | None
    attributes: bytes
    links: int = 0
    names: list[tuple[bytes, _Inode]] = field(default_factory=list)
    size: int = 0
    data: bytes = b""
    at: int = 0
    block: int = _NOWHERE
    inline: int = 0

    @property
    def head(self) -> int:
        return _INODE_BYTES + len(self.attributes)

    @property
    def number(self) -> int:
        return self.at // _SLOT


def write(tree: LayerTree, layers: Sequence[Layer], out: IO[bytes], uuid: str, built: int) -> None:
    """Write the file system to a new file that can seek. `built`: seconds since 1970. Raises UserInputError for an
    attribute that the format has no room for."""
    inodes = _inodes(tree)
    end = _placed(inodes)
    blocks = _with_blocks(inodes, -(-end // BLOCK))
    out.truncate(blocks * BLOCK)
    _put(out, _SUPERBLOCK_AT, _superblock(inodes[0], len(inodes), blocks, uuid, built))
    for serial, inode in enumerate(inodes, start=1):
        if inode.names:
            inode.data = _folder(inode)
        _put(out, inode.at, _packed(inode, serial) + inode.attributes)
        if inode.data:
            _put_content(out, inode, iter([inode.data]))
    files: dict[int, list[tuple[str, LayerNode]]] = {}
    places = {id(inode.node): inode for inode in inodes if inode.node.kind == tarfile.REGTYPE}
    for inode in places.values():
        files.setdefault(inode.node.layer, []).append(("", inode.node))
    for _, node, content in contents_of(files, layers):
        _put_content(out, places[id(node)], content)


def _inodes(tree: LayerTree) -> list[_Inode]:
    """Return the inodes of a tree, its root first, each once, folders with their names."""
    root = _Inode(tree.root, None, _attributes("", tree.root))
    found, known, stack = [root], {id(tree.root): root}, [("", root)]
    while stack:
        path, folder = stack.pop()
        folder.links += 2
        for name, node in (folder.node.children or {}).items():
            inode = known.get(id(node))
            if inode is None:
                inode = known[id(node)] = _Inode(node, folder, _attributes(f"{path}/{name}", node))
                found.append(inode)
                _measure(inode)
                if node.children is not None:
                    stack.append((f"{path}/{name}", inode))
            if node.children is None:
                inode.links += 1
            else:
                folder.links += 1
            folder.names.append((_bytes(name), inode))
        folder.names += [(b".", folder), (b"..", folder.above or folder)]
        folder.names.sort(key=lambda item: item[0])
        *full, last = _folder_blocks(folder.names)
        folder.size = len(full) * BLOCK + sum(_DIRENT.size + len(name) for name, _ in last)
    return found


def _measure(inode: _Inode) -> None:
    if inode.node.kind == tarfile.SYMTYPE:
        inode.data = _bytes(str(inode.node.target))
        inode.size = len(inode.data)
    elif inode.node.kind == tarfile.REGTYPE:
        inode.size = inode.node.size


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _attributes(path: str, node: LayerNode) -> bytes:
    """Return the attributes of a file as they follow its inode."""
    packed = bytearray()
    for text, content in node.xattrs:
        name, value = _bytes(text), _bytes(content)
        prefix = next(prefix for prefix in _NAMESPACES if name.startswith(prefix))
        if len(value) > _VALUE_BYTES:
            raise _too_long(path, f"the attribute {text[:80]}", len(value), _VALUE_BYTES)
        packed += _ATTRIBUTE.pack(len(name) - len(prefix), _NAMESPACES[prefix], len(value))
        packed += name[len(prefix) :] + value
        packed += bytes(-len(packed) % 4)
    if len(packed) > _ATTRIBUTES_BYTES:
        raise _too_long(path, "all its attributes", len(packed), _ATTRIBUTES_BYTES)
    return bytes(_ATTRIBUTES_HEAD) + bytes(packed) if packed else b""


def _too_long(path: str, what: str, size: int, most: int) -> UserInputError:
    return UserInputError(
        f"{path[:200] or '/'} has {size} bytes in {what}; a root file system holds {most}",
        hint="take the attribute off that file in the image (setfattr -x NAME FILE)",
    )


def _placed(inodes: Sequence[_Inode]) -> int:
    """Give every inode its place, and return where the last ends. The last part of content lies behind the inode where
    that takes less room than a block."""
    at = _FIRST
    for inode in inodes:
        tail = inode.size % BLOCK
        at += -at % _INODE_BYTES
        if tail:
            fits = (at + inode.head) % BLOCK + tail <= BLOCK
            if not fits and inode.head % BLOCK + tail <= BLOCK and -at % BLOCK < BLOCK - tail:
                at, fits = at - at % BLOCK + BLOCK, True
            inode.inline = tail if fits else 0
        inode.at = at
        at += inode.head + inode.inline
    return at


def _with_blocks(inodes: Sequence[_Inode], block: int) -> int:
    """Give content its blocks, from `block` on, in the order in which it is written; return the number of all."""
    for inode in sorted(inodes, key=lambda one: (one.node.kind == tarfile.REGTYPE, one.node.layer, one.node.offset)):
        count = -(-(inode.size - inode.inline) // BLOCK)
        if count:
            inode.block = block
            block += count
    return block


def _folder_blocks(names: Sequence[tuple[bytes, _Inode]]) -> Iterator[Sequence[tuple[bytes, _Inode]]]:
    """Yield the names of a folder block by block: none lies in two."""
    start, used = 0, 0
    for at, (name, _) in enumerate(names):
        size = _DIRENT.size + len(name)
        if used + size > BLOCK:
            yield names[start:at]
            start, used = at, 0
        used += size
    yield names[start:]


def _folder(folder: _Inode) -> bytes:
    """Return the content of a folder: in each block entries, then their names."""
    blocks = []
    for names in _folder_blocks(folder.names):
        at, entries = _DIRENT.size * len(names), bytearray()
        for name, inode in names:
            entries += _DIRENT.pack(inode.number, at, _KINDS[inode.node.kind][1])
            at += len(name)
        blocks.append(bytes(entries) + b"".join(name for name, _ in names))
    return b"".join(block.ljust(BLOCK, b"\0") for block in blocks[:-1]) + blocks[-1]


def _packed(inode: _Inode, serial: int) -> bytes:
    node = inode.node
    seconds, _, fraction = str(node.mtime).partition(".")
    place = inode.block
    if node.kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
        major, minor = device_of(node)
        place = minor & 0xFF | major << 8 | (minor & ~0xFF) << 12
    counted = 1 + (len(inode.attributes) - _ATTRIBUTES_HEAD) // 4 if inode.attributes else 0
    return _INODE.pack(
        _INLINE if inode.inline else _PLAIN, counted, _KINDS[node.kind][0] | node.mode, 0, inode.size, place, serial,
        node.uid, node.gid, int(seconds), int(fraction.ljust(9, "0")[:9] or 0), inode.links,
    )  # fmt: skip


def _superblock(root: _Inode, inodes: int, blocks: int, uuid: str, built: int) -> bytes:
    head = struct.pack(
        "<IIIBBHQQIIII", _MAGIC, 0, _MTIME, BLOCK.bit_length() - 1, 0, root.number, inodes, built, 0, blocks, 0, 0
    )
    return (head + UUID(uuid).bytes).ljust(_SUPERBLOCK_BYTES, b"\0")


def _put(out: IO[bytes], at: int, data: bytes) -> None:
    out.seek(at)
    out.write(data)


def _put_content(out: IO[bytes], inode: _Inode, pieces: Iterator[bytes]) -> None:
    """Write content to its blocks, and its last part behind the inode where it belongs there."""
    left, tail = inode.size - inode.inline, b""
    out.seek(inode.block * BLOCK if left else 0)
    for piece in pieces:
        if left:
            out.write(piece[:left])
        tail += piece[left:]
        left = max(0, left - len(piece))
    if tail:
        _put(out, inode.at + inode.head, tail)
