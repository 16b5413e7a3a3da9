# SPDX-License-Identifier: Apache-2.0
"""A FAT file system on a disk image, read from its bytes: the EFI system partition, with entries of systemd-boot. It
may be hostile: chains of clusters end where the size says, and folders have bounds."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.disks.file_system import Entry
from vmtailor.drivers.disks.stretches import Stretches
from vmtailor.model.systems.tree import Node, NodeKind

_BROKEN = "for details, run fsck.fat -n on a copy of it"
#: The folder at the top of FAT12 and FAT16, which is no chain of clusters.
_TOP = 0
#: Bytes of one folder, and entries of all.
_MOST_FOLDER, _MOST_ENTRIES = 2 << 20, 200_000
_ROW = 32
_GONE, _LONG, _LABEL, _FOLDER = 0xE5, 0x0F, 0x08, 0x10
#: By the number of clusters: FAT12 below the first, FAT16 below the second.
_FAT16_FROM, _FAT32_FROM = 4085, 65525


@dataclass(frozen=True)
class _Shape:
    """Bytes of a cluster; where the table, the top folder and the first cluster begin; the clusters' number, and bits
    of an entry of the table. `root`: the top folder's cluster; 0 where it lies by itself, with `root_bytes`."""

    cluster: int
    table: int
    top: int
    data: int
    clusters: int
    bits: int
    root: int
    root_bytes: int


class FatTree:
    """A `FileSystem`: an inode is the first cluster of a file or folder."""

    def __init__(self, place: Stretches) -> None:
        self._place = place
        self._shape = _shape_of(place)
        self._entries = 0

    @property
    def root(self) -> int:
        return self._shape.root

    def folders(self, inodes: Sequence[int]) -> dict[int, dict[str, Entry]]:
        """Return the content of directories."""
        return {inode: dict(self._names(inode)) for inode in inodes}

    def targets(self, inodes: Sequence[int]) -> dict[int, str]:
        """Return nothing: FAT has no links."""
        return dict.fromkeys(inodes, "")

    def read(self, inode: int, size: int) -> bytes:
        """Return the content of a file. Raises UserInputError when its clusters end before its size."""
        data = self._content(inode, size)
        if len(data) != size:
            raise self._damaged("a file is shorter than its size")
        return data

    def begin(self, inode: int, count: int) -> bytes:
        """Return the first bytes of a file."""
        return self._content(inode, count)

    def _damaged(self, why: str) -> UserInputError:
        return UserInputError(f"{self._place.name} is damaged: {why}", hint=_BROKEN)

    def _content(self, first: int, most: int) -> bytes:
        found, cluster, shape = bytearray(), first, self._shape
        while len(found) < most and 2 <= cluster < shape.clusters + 2:
            found += self._place.read(shape.data + (cluster - 2) * shape.cluster, shape.cluster)
            cluster = self._next(cluster)
        return bytes(found[:most])

    def _next(self, cluster: int) -> int:
        """Return the cluster behind another; one that is none at the end of a chain."""
        shape = self._shape
        if shape.bits == 32:
            return int(struct.unpack("<I", self._place.read(shape.table + 4 * cluster, 4))[0]) & 0x0FFFFFFF
        if shape.bits == 16:
            return int(struct.unpack("<H", self._place.read(shape.table + 2 * cluster, 2))[0])
        two = int(struct.unpack("<H", self._place.read(shape.table + cluster * 3 // 2, 2))[0])
        return two >> 4 if cluster % 2 else two & 0xFFF

    def _names(self, inode: int) -> Iterator[tuple[str, Entry]]:
        shape = self._shape
        if inode == _TOP and shape.root_bytes:
            data = self._place.read(shape.top, shape.root_bytes)
        else:
            data = self._content(inode, _MOST_FOLDER)
        long: dict[int, bytes] = {}
        for at in range(0, len(data) - _ROW + 1, _ROW):
            row = data[at : at + _ROW]
            if row[0] == 0:
                return
            self._entries += 1
            if self._entries > _MOST_ENTRIES:
                raise self._damaged("its directories have no end")
            if row[0] == _GONE:
                long = {}
            elif row[11] & 0x3F == _LONG:
                long[row[0] & 0x3F] = row[1:11] + row[14:26] + row[28:32]
            else:
                name = _long(long) or _short(row)
                long = {}
                if not row[11] & _LABEL and name not in (".", "..") and "/" not in name:
                    yield name, self._entry(row)

    def _entry(self, row: bytes) -> Entry:
        high, low, size = struct.unpack("<H4xHI", row[20:32])
        cluster = (high << 16 if self._shape.bits == 32 else 0) | low
        if row[11] & _FOLDER:
            return Entry(cluster, Node(NodeKind.FOLDER))
        return Entry(cluster, Node(NodeKind.FILE, size))


def _long(parts: dict[int, bytes]) -> str:
    """Return a long name from its rows, which are numbered; empty where they are not whole."""
    if sorted(parts) != list(range(1, len(parts) + 1)):
        return ""
    text = b"".join(parts[number] for number in sorted(parts)).decode("utf-16-le", "replace")
    return text.partition("\0")[0]


def _short(row: bytes) -> str:
    name, extension = (row[a:b].decode("cp437").rstrip() for a, b in ((0, 8), (8, 11)))
    name = name.lower() if row[12] & 0x08 else name
    extension = extension.lower() if row[12] & 0x10 else extension
    return f"{name}.{extension}" if extension else name


def _shape_of(place: Stretches) -> _Shape:
    head = place.read(0, 512)
    sector, per_cluster, reserved, tables, entries, short = struct.unpack_from("<HBHBHH", head, 11)
    table_short, total_long, table_long = (
        struct.unpack_from("<H", head, 22)[0], *struct.unpack_from("<II", head, 32)
    )  # fmt: skip
    total, table = short or total_long, table_short or table_long
    top = (reserved + tables * table) * sector
    data = top + entries * _ROW
    sound = (
        sector in (512, 1024, 2048, 4096) and per_cluster in (1 << n for n in range(8)) and 0 < tables <= 4 and reserved
        and total * sector <= place.size_bytes and data < total * sector
    )  # fmt: skip
    if not sound:
        raise UserInputError(f"{place.name} is damaged: its first sector makes no sense", hint=_BROKEN)
    cluster = sector * per_cluster
    clusters = (total * sector - data) // cluster
    bits = 32 if clusters >= _FAT32_FROM or not table_short else 16 if clusters >= _FAT16_FROM else 12
    if table * sector * 8 < (clusters + 2) * bits:
        raise UserInputError(f"{place.name} is damaged: its table is too short", hint=_BROKEN)
    root = int(struct.unpack_from("<I", head, 44)[0]) if bits == 32 else _TOP
    return _Shape(
        cluster=cluster, table=reserved * sector, top=top, data=data, clusters=clusters, bits=bits, root=root,
        root_bytes=entries * _ROW if bits != 32 else 0,
    )  # fmt: skip
