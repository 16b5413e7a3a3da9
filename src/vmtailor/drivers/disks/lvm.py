# SPDX-License-Identifier: Apache-2.0
"""LVM volumes on a disk image: labels and metadata of its physical volumes, read as bytes. Nothing is activated."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.disks import lvm_text, partitions
from vmtailor.drivers.disks.lvm_text import LogicalVolume, VolumeGroup
from vmtailor.drivers.disks.stretches import Stretches, joined
from vmtailor.model.systems.system import LinearVolume, Partition, VolumeSegment

#: libblkid's name of a partition that is a physical volume.
MEMBER = "LVM2_member"
#: The label is in one of the first sectors.
_LABEL_SECTORS, _SECTOR = 4, 512
_LABEL, _TYPE = b"LABELONE", b"LVM2 001"
_METADATA = b" LVM2 x[5A%r0N*>"
#: Bytes of a metadata area's header, and of the longest text that is read.
_HEADER, _MOST_TEXT = 512, 4 << 20
_CRC_START = 0xF597A6CF
#: Areas that a label lists.
_MOST_AREAS = 16
_HINT = "for details, run pvck --dump headers on a copy of it"


@dataclass(frozen=True)
class Volumes:
    """The volumes of a disk. `linear`: those that can be read. `unlike`: names of others, with what they are."""

    linear: tuple[LinearVolume, ...] = ()
    unlike: tuple[tuple[str, str], ...] = ()


def read(raw: Path, size_bytes: int, parts: Iterable[Partition], name: str) -> Volumes:
    """Return the logical volumes whose physical volumes are partitions of a disk, or the disk itself, with their
    content. Raises UserInputError for labels and metadata that make no sense. `name`: of the disk, in messages."""
    found: dict[str, Partition] = {}
    groups: dict[str, VolumeGroup] = {}
    for one in parts:
        if one.content != MEMBER:
            continue
        where = f"{name}, partition {one.number}" if one.number else name
        place = Stretches(raw, ((one.start_bytes, min(one.size_bytes, size_bytes - one.start_bytes)),), where)
        own, text = _metadata(place)
        found[own] = one
        if text:
            group = lvm_text.parse(text, where)
            known = groups.get(group.id)
            if known is None or group.sequence > known.sequence:
                groups[group.id] = group
    linear, unlike = [], []
    numbered = {one.number: one for one in found.values()}
    for group in groups.values():
        for volume in group.volumes:
            why = volume.unlike or _elsewhere(volume, found)
            if why:
                unlike.append((f"{group.name}/{volume.name}", why))
            else:
                linear.append(_described(_placed(group, volume, found), raw, numbered))
    return Volumes(tuple(linear), tuple(unlike))


def place_of(volume: LinearVolume, raw: Path, parts: Iterable[Partition], name: str) -> Stretches:
    """Return where a volume's bytes lie."""
    starts = {one.number: one.start_bytes for one in parts}
    pieces = [(starts.get(one.partition, 0) + one.start_bytes, one.size_bytes) for one in volume.segments]
    return Stretches(raw, joined(pieces), f"{name}, volume {volume.full_name}")


def _elsewhere(volume: LogicalVolume, found: dict[str, Partition]) -> str:
    for one in volume.segments:
        part = found.get(one.physical)
        if part is None:
            return "on a physical volume that is not on this disk"
        if one.start_bytes + one.size_bytes > part.size_bytes:
            raise UserInputError(f"the volume {volume.name} reaches beyond its partition {part.number}", hint=_HINT)
    return ""


def _placed(group: VolumeGroup, volume: LogicalVolume, found: dict[str, Partition]) -> LinearVolume:
    segments = tuple(
        VolumeSegment(found[one.physical].number, one.start_bytes, one.size_bytes) for one in volume.segments
    )
    return LinearVolume(group.name, volume.name, f"LVM-{group.id}{volume.id}", segments)


def _described(volume: LinearVolume, raw: Path, parts: dict[int, Partition]) -> LinearVolume:
    """Return a volume with what it contains, told by its first segment: there are all signs that are looked for."""
    first = volume.segments[0]
    told = partitions.probe(raw, parts[first.partition].start_bytes + first.start_bytes, first.size_bytes)
    content, uuid, label = (told.get(name, "") for name in ("TYPE", "UUID", "LABEL"))
    return replace(volume, content=content, uuid=uuid, label=label)


def _metadata(place: Stretches) -> tuple[str, str]:
    """Return a physical volume's id, and its newest text; none for one that carries no copy."""
    head = place.read(0, min(_LABEL_SECTORS * _SECTOR, place.size_bytes))
    at = next(
        (n for n in range(0, len(head), _SECTOR) if head[n : n + 8] == _LABEL and head[n + 24 : n + 32] == _TYPE), None
    )
    if at is None:
        raise UserInputError(f"{place.name} has no LVM label", hint=_HINT)
    start = at + struct.unpack_from("<I", head, at + 20)[0]
    if start + 40 > len(head):
        raise UserInputError(f"{place.name} has a damaged LVM label", hint=_HINT)
    own = head[start : start + 32].decode("ascii", "replace")
    lists, position = list[list[tuple[int, int]]](), start + 40
    while len(lists) < 2:  # of data, then of metadata; each ends with zeros
        areas = list[tuple[int, int]]()
        while True:
            if position + 16 > len(head) or len(areas) > _MOST_AREAS:
                raise UserInputError(f"{place.name} has a damaged LVM label", hint=_HINT)
            area = struct.unpack_from("<QQ", head, position)
            position += 16
            if area[0] == 0:
                break
            areas.append(area)
        lists.append(areas)
    for offset, size in lists[1]:
        if text := _text(place, offset, size):
            return own, text
    return own, ""


def _text(place: Stretches, start: int, size: int) -> str:
    """Return the current text of a metadata area: it is a ring behind its header."""
    header = place.read(start, _HEADER)
    if header[4:20] != _METADATA:
        raise UserInputError(f"{place.name} has a damaged LVM metadata area", hint=_HINT)
    own_start, own_size = struct.unpack_from("<QQ", header, 24)
    offset, length, told = struct.unpack_from("<QQI", header, 40)
    if not offset or not length:
        return ""
    if (
        own_start != start
        or own_size > size
        or not _HEADER <= offset < own_size
        or length > min(_MOST_TEXT, own_size - _HEADER)
    ):
        raise UserInputError(f"{place.name} has a damaged LVM metadata area", hint=_HINT)
    first = min(length, own_size - offset)
    data = place.read(start + offset, first) + place.read(start + _HEADER, length - first)
    if _checksum(data) != told:
        raise UserInputError(f"{place.name} has damaged LVM metadata: its checksum is another", hint=_HINT)
    return data.rstrip(b"\0").decode("utf-8", "replace")


def _checksum(data: bytes) -> int:
    """Return LVM's checksum: a CRC with a start of its own, and no inversion."""
    return zlib.crc32(data, _CRC_START ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
