# SPDX-License-Identifier: Apache-2.0
"""An XFS on a disk image, read from its bytes: inodes, extents, directories, symbolic links
(docs/decisions/0074-xfs-and-lvm-are-read-as-bytes.md). It may be hostile: every number is checked before it is used."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.disks import xfs_log
from vmtailor.drivers.disks.file_system import Entry
from vmtailor.drivers.disks.stretches import Stretches
from vmtailor.drivers.disks.xfs_log import BROKEN
from vmtailor.model.systems.tree import Node, NodeKind

_KINDS = {0o10: NodeKind.FILE, 0o04: NodeKind.FOLDER, 0o12: NodeKind.LINK}
#: Ways in which an inode keeps its content.
_LOCAL, _EXTENTS, _BTREE = 1, 2, 3
#: Bytes of a directory, and of a symbolic link's target, at most; extents of one file; names of all directories.
_MOST_FOLDER, _MOST_TARGET, _MOST_EXTENTS, _MOST_NAMES = 16 << 20, 4095, 1 << 20, 2_000_000
_MOST_LEVELS = 9
_REALTIME, _LARGE_COUNTS = 0x1, 0x10
_BLOCKS_KEPT = 4096


@dataclass(frozen=True)
class _Inode:
    """`fork`: the bytes within the inode that hold its content, or say where it is. `extents`: how many there are."""

    number: int
    mode: int
    form: int
    size: int
    extents: int
    realtime: bool
    fork: bytes

    @property
    def kind(self) -> NodeKind:
        return _KINDS.get(self.mode >> 12, NodeKind.OTHER)


class Xfs:
    """A `FileSystem`. Raises UserInputError when it is not whole, clean and of a known kind."""

    def __init__(self, place: Stretches) -> None:
        self._place = place
        self._shape = xfs_log.geometry(place)
        xfs_log.require_clean(place, self._shape)
        self._read_names = 0
        self._block = lru_cache(maxsize=_BLOCKS_KEPT)(self._read_block)

    @property
    def root(self) -> int:
        return self._shape.root

    def folders(self, inodes: Sequence[int]) -> dict[int, dict[str, Entry]]:
        """Return the content of directories. Raises UserInputError where one cannot be read whole."""
        found = {}
        for number in inodes:
            inode = self._inode(number)
            if inode.kind is not NodeKind.FOLDER:
                raise self._damaged("a directory is none")
            entries = {}
            for name, other in self._names(inode):
                self._read_names += 1
                if self._read_names > _MOST_NAMES:
                    raise self._damaged("its directories have no end")
                text = name.decode("utf-8", "surrogateescape")
                if text not in (".", "..") and text and "/" not in text and "\0" not in text:
                    entries[text] = Entry(other, self._node(other))
            found[number] = entries
        return found

    def targets(self, inodes: Sequence[int]) -> dict[int, str]:
        """Return the targets of symbolic links; empty for an inode that is none."""
        return {number: self._target(self._inode(number)) for number in inodes}

    def read(self, inode: int, size: int) -> bytes:
        """Return the content of a file of `size` bytes. Raises UserInputError when it has not so many."""
        found = self._inode(inode)
        if found.kind is not NodeKind.FILE or found.size != size:
            raise self._damaged(f"a file has {found.size} bytes, not {size}")
        return self._content(found, size)

    def begin(self, inode: int, count: int) -> bytes:
        """Return the first bytes of a file. Holes are zeros."""
        found = self._inode(inode)
        return self._content(found, min(count, found.size)) if found.kind is NodeKind.FILE else b""

    def _damaged(self, why: str) -> UserInputError:
        return UserInputError(f"{self._place.name} is damaged: {why}", hint=BROKEN)

    def _node(self, number: int) -> Node:
        inode = self._inode(number)
        return Node(inode.kind, inode.size if inode.kind is NodeKind.FILE else 0)

    def _read_block(self, number: int) -> bytes:
        """Return one block; numbers are counted through all allocation groups."""
        return self._place.read(number * self._shape.block, self._shape.block)

    def _linear(self, number: int) -> int:
        """Return the block's number through all groups; in the file system it is a group's and one within that."""
        shape = self._shape
        group, inside = number >> shape.group_bits, number & ((1 << shape.group_bits) - 1)
        if inside >= shape.group_blocks or group * shape.group_blocks + inside >= shape.blocks:
            raise self._damaged("it refers to what lies beyond its end")
        return group * shape.group_blocks + inside

    def _inode(self, number: int) -> _Inode:
        shape = self._shape
        at = number & ((1 << shape.inode_bits) - 1)
        data = self._block(self._linear(number >> shape.inode_bits))[at * shape.inode : (at + 1) * shape.inode]
        if len(data) < shape.inode or data[:2] != b"IN":
            raise self._damaged("an inode is none")
        mode, version, form = struct.unpack_from(">HBB", data, 2)
        size = struct.unpack_from(">Q", data, 56)[0]
        extents, fork_words, flags = (
            struct.unpack_from(">I", data, 76)[0],
            data[82],
            struct.unpack_from(">H", data, 90)[0],
        )
        start = 100
        if version == 3:
            start = 176
            if struct.unpack_from(">Q", data, 120)[0] & _LARGE_COUNTS:
                extents = struct.unpack_from(">Q", data, 24)[0]
        end = start + 8 * fork_words if fork_words else shape.inode
        return _Inode(
            number=number, mode=mode, form=form, size=size, extents=extents, realtime=bool(flags & _REALTIME),
            fork=data[start:end],
        )  # fmt: skip

    def _content(self, inode: _Inode, count: int) -> bytes:
        """Return the first bytes of what an inode holds; holes, and what was never written, are zeros."""
        if inode.realtime:
            raise UserInputError(
                f"{self._place.name} keeps files on a realtime device, which is not read",
                hint="give the tree as an archive: rootfs:ARCHIVE",
            )
        found = bytearray(count)
        block = self._shape.block
        for offset, start, blocks in self._extents(inode):
            first = offset * block
            if first >= count:
                break  # they are in order
            size = min(blocks * block, count - first)
            found[first : first + size] = self._place.read(self._linear(start) * block, size)
        return bytes(found)

    def _extents(self, inode: _Inode) -> Iterator[tuple[int, int, int]]:
        """Yield the written extents of an inode: block within the file, first block, number of blocks."""
        if inode.extents > _MOST_EXTENTS:
            raise self._damaged(f"a file has {inode.extents} extents")
        if inode.form == _EXTENTS:
            records: Iterator[bytes] = iter((inode.fork[: 16 * inode.extents],))
            if 16 * inode.extents > len(inode.fork):
                raise self._damaged("an inode has more extents than room")
        elif inode.form == _BTREE:
            records = self._leaves(inode)
        else:
            raise self._damaged(f"an inode is of the form {inode.form}")
        end = 0
        for data in records:
            for high, low in struct.iter_unpack(">QQ", data):
                offset, blocks = (high >> 9) & ((1 << 54) - 1), low & 0x1FFFFF
                if offset < end or not blocks:
                    raise self._damaged("the extents of a file are in no order")
                end = offset + blocks
                if not high >> 63:
                    yield offset, (high & 0x1FF) << 43 | low >> 21, blocks

    def _leaves(self, inode: _Inode) -> Iterator[bytes]:
        """Yield the records of an inode's tree of extents: down to the first leaf, and along their row."""
        levels, count = struct.unpack_from(">HH", inode.fork)
        room = (len(inode.fork) - 4) // 16
        if not 0 < levels <= _MOST_LEVELS or not 0 < count <= room:
            raise self._damaged("a tree of extents begins wrong")
        header, magic = (72, b"BMA3") if self._shape.checked else (24, b"BMAP")
        places = (self._shape.block - header) // 16
        number, seen = struct.unpack_from(">Q", inode.fork, 4 + 8 * room)[0], 0
        for level in range(levels - 1, -1, -1):
            data = self._block(self._linear(number))
            told, count = struct.unpack_from(">HH", data, 4)
            if data[:4] != magic or told != level or not 0 < count <= (places if level else (len(data) - header) // 16):
                raise self._damaged("a tree of extents is none")
            if level:
                number = struct.unpack_from(">Q", data, header + 8 * places)[0]
        while True:
            yield data[header : header + 16 * count]
            seen += count
            number = struct.unpack_from(">Q", data, 16)[0]
            if number == (1 << 64) - 1:
                break
            data = self._block(self._linear(number))
            told, count = struct.unpack_from(">HH", data, 4)
            if data[:4] != magic or told or not count or count > (len(data) - header) // 16 or seen > inode.extents:
                raise self._damaged("a tree of extents is none")

    def _target(self, inode: _Inode) -> str:
        if inode.kind is not NodeKind.LINK:
            return ""
        if not 0 < inode.size <= _MOST_TARGET:
            raise self._damaged("a symbolic link has no target")
        if inode.form == _LOCAL:
            return inode.fork[: inode.size].decode("utf-8", "surrogateescape")
        found, block = b"", self._shape.block
        for _, start, blocks in self._extents(inode):
            data = self._place.read(self._linear(start) * block, min(blocks * block, 2 * _MOST_TARGET + block))
            for at in range(0, len(data), block):
                if self._shape.checked and data[at : at + 4] != b"XSLM":
                    raise self._damaged("the target of a symbolic link is none")
                found += data[at + (56 if self._shape.checked else 0) : at + block]
            if len(found) >= inode.size:
                break
        return found[: inode.size].decode("utf-8", "surrogateescape")

    def _names(self, inode: _Inode) -> Iterator[tuple[bytes, int]]:
        """Yield the names of a directory with their inodes."""
        if inode.form == _LOCAL:
            yield from self._short_names(inode.fork[: inode.size])
            return
        if inode.size > _MOST_FOLDER:
            raise self._damaged(f"a directory has {inode.size} bytes")
        data, size = self._content(inode, inode.size), self._shape.folder_block
        for at in range(0, len(data), size):
            if any(data[at : at + 4]):  # not a hole
                yield from self._block_names(data[at : at + size])

    def _short_names(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        if len(data) < 6:
            raise self._damaged("a directory is cut off")
        width, form = (8, ">Q") if data[1] else (4, ">I")
        at, kind = 2 + width, 1 if self._shape.kinds else 0
        for _ in range(data[0]):
            if at + 3 > len(data) or at + 3 + data[at] + kind + width > len(data):
                raise self._damaged("a directory is cut off")
            end = at + 3 + data[at]
            yield data[at + 3 : end], struct.unpack_from(form, data, end + kind)[0]
            at = end + kind + width

    def _block_names(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        header, magics = (64, (b"XDB3", b"XDD3")) if self._shape.checked else (16, (b"XD2B", b"XD2D"))
        if data[:4] not in magics:
            raise self._damaged("a directory is none")
        end = len(data)
        if data[:4] == magics[0]:  # the index of a directory of one block is at its end
            end -= 8 + 8 * struct.unpack_from(">I", data, len(data) - 8)[0]
        at, kind = header, 1 if self._shape.kinds else 0
        while at + 12 <= end:
            if data[at : at + 2] == b"\xff\xff":
                length = struct.unpack_from(">H", data, at + 2)[0]
            else:
                size = data[at + 8]
                if at + 9 + size > end:
                    raise self._damaged("a directory is cut off")
                yield data[at + 9 : at + 9 + size], struct.unpack_from(">Q", data, at)[0]
                length = 9 + size + kind + 2 + 7 & ~7
            if length < 8 or length % 8:
                raise self._damaged("a directory has an entry without length")
            at += length
