# SPDX-License-Identifier: Apache-2.0
"""The superblock of an XFS, and a look at its log: it must be empty."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.disks.stretches import Stretches

BROKEN = "for details, run xfs_repair -n on a copy of it"
_SUPER_BYTES = 512
#: Features that change how files are found: others are refused by number.
_KINDS, _META_UUID, _NEEDS_REPAIR = 0x1, 0x4, 0x10
_KNOWN = _KINDS | 0x2 | _META_UUID | 0x8 | _NEEDS_REPAIR | 0x20 | 0x40 | 0x80
_KINDS_BEFORE = 0x200
#: A log has at most so many bytes; it is read in pieces.
_MOST_LOG, _PIECE, _SECTOR = (2 << 30) - 1, 8 << 20, 512
_RECORD = b"\xfe\xed\xba\xbe"
_HEADER_ROOM = 32 << 10
_UNMOUNTED = 0x20


@dataclass(frozen=True)
class Geometry:
    """The numbers that lead to files, in bytes and blocks. `group_bits`, `inode_bits`: of a block within its group, and
    of an inode within its block. `checked`: of version 5, where each block has a header of its own; `kinds`: entries of
    directories tell the kind of file. `log`: first block and blocks of the log."""

    block: int
    blocks: int
    root: int
    group_blocks: int
    group_bits: int
    inode: int
    inode_bits: int
    folder_block: int
    checked: bool
    kinds: bool
    log: tuple[int, int]


def geometry(place: Stretches) -> Geometry:
    """Return the shape of a file system. Raises UserInputError for one that is damaged, or of an unknown kind."""
    data = place.read(0, _SUPER_BYTES)
    if data[:4] != b"XFSB":
        raise UserInputError(f"{place.name} is not an XFS", hint=BROKEN)
    block, blocks = struct.unpack_from(">IQ", data, 4)
    log_start, root = struct.unpack_from(">QQ", data, 48)
    group_blocks, groups, _, log_blocks, version = struct.unpack_from(">IIIIH", data, 84)
    sector, inode, per_block = struct.unpack_from(">HHH", data, 102)
    block_bits, inode_bits, group_bits = data[120], data[123], data[124]
    folder_bits, old_features = data[192], struct.unpack_from(">I", data, 200)[0]
    incompatible = struct.unpack_from(">I", data, 216)[0]
    checked = version & 0xF == 5
    sound = (
        block in (512 << n for n in range(8)) and 1 << block_bits == block and sector >= _SECTOR
        and inode in (256 << n for n in range(4)) and per_block == block // inode and 1 << inode_bits == per_block
        and 0 < group_blocks <= 1 << group_bits <= 1 << 31 and groups > 0 and folder_bits <= 7
        and (groups - 1) * group_blocks < blocks <= groups * group_blocks and blocks * block <= place.size_bytes
        and block << folder_bits <= 1 << 16
    )  # fmt: skip
    if version & 0xF not in (4, 5) or not sound or data[126]:
        raise UserInputError(f"{place.name} is damaged: its superblock makes no sense", hint=BROKEN)
    if checked and incompatible & _NEEDS_REPAIR:
        raise UserInputError(f"{place.name} needs repair, as it says itself", hint=BROKEN)
    if checked and incompatible & ~_KNOWN:
        raise UserInputError(
            f"{place.name} is an XFS with unknown features (0x{incompatible & ~_KNOWN:x})",
            hint="give the tree as an archive: rootfs:ARCHIVE",
        )
    if not log_start:
        raise UserInputError(
            f"{place.name} has its log on another disk", hint="give the tree as an archive: rootfs:ARCHIVE"
        )
    kinds = bool(incompatible & _KINDS if checked else old_features & _KINDS_BEFORE)
    group, inside = log_start >> group_bits, log_start & ((1 << group_bits) - 1)
    first = group * group_blocks + inside
    if log_blocks * block > _MOST_LOG or first + log_blocks > blocks or not log_blocks:
        raise UserInputError(f"{place.name} is damaged: its log is nowhere", hint=BROKEN)
    return Geometry(
        block=block, blocks=blocks, root=root, group_blocks=group_blocks, group_bits=group_bits, inode=inode,
        inode_bits=inode_bits, folder_block=block << folder_bits, checked=checked, kinds=kinds, log=(first, log_blocks),
    )  # fmt: skip


def require_clean(place: Stretches, shape: Geometry) -> None:
    """Raise UserInputError for a file system that was not unmounted: what its log still holds is not in place. A log
    ends with a record of its own when it is empty."""
    start, size = shape.log[0] * shape.block, shape.log[1] * shape.block
    newest, at = b"", 0
    for piece in range(0, size, _PIECE):
        data = place.read(start + piece, min(_PIECE, size - piece))
        heads = data[::_SECTOR]
        number = heads.find(_RECORD[:1])
        while number >= 0:
            header = data[number * _SECTOR : number * _SECTOR + 28]
            # By cycle and block, which is the order in which they were written.
            if header[:4] == _RECORD and header[16:24] >= newest:
                newest, at = header[16:24], piece + number * _SECTOR
            number = heads.find(_RECORD[:1], number + 1)
    if not newest:
        raise UserInputError(f"{place.name} is damaged: its log has no record", hint=BROKEN)
    header = place.read(start + at, _SECTOR)
    version, operations, room = (struct.unpack_from(">I", header, offset)[0] for offset in (8, 40, 320))
    sectors = max(1, -(-min(room, 1 << 20) // _HEADER_ROOM)) if version & 2 else 1
    operation = place.read(start + (at + sectors * _SECTOR) % size, 16)
    if operations != 1 or not operation[9] & _UNMOUNTED:
        raise UserInputError(
            f"{place.name} was not cleanly unmounted: its machine runs, or was switched off",
            hint="start the machine and shut it down: its log is replayed then",
        )
