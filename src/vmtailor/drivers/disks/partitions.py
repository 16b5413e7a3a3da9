# SPDX-License-Identifier: Apache-2.0
"""Read the partition table of a disk and the content of each part: libblkid and libfdisk, through their programs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from vmtailor.base.errors import UserInputError
from vmtailor.base.process import CommandFailed
from vmtailor.base.text import plain
from vmtailor.drivers.disks.sandbox import run_shut_in
from vmtailor.model.systems.system import Partition, TableKind

#: Partitions that are looked at; a GPT has room for 128.
MOST_PARTITIONS = 128
#: Bytes that one call prints at most.
_MOST_BYTES = 1 << 20
_TIMEOUT_S = 30.0
_KINDS = {"dos": TableKind.MBR, "gpt": TableKind.GPT}
#: Status of blkid when it knows nothing, or sees signs of several things.
_NOTHING, _SEVERAL = 2, 8
_HINT = "give a raw or qcow2 image of a whole disk, with an MBR or a GPT, or of one ext4 file system"
#: The protective MBR, which is all that is left of a GPT that is gone.
_PROTECTED = "PMBR"
_CUT_OFF = "the image may have been cut off: get it again, whole"
#: Types that a loader starts from: the EFI system partition, and where GRUB lies on a GPT for a BIOS.
EFI = ("c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "ef")
BIOS_BOOT = "21686148-6449-6e6f-744e-656564454649"


def probe(disk: Path, offset: int = 0, size: int = 0) -> dict[str, str]:
    """Return what libblkid finds at a place of a disk, by its names (TYPE, PTTYPE, UUID …); empty for nothing."""
    where = ["-O", str(offset), "-S", str(size)] if size else []
    done = run_shut_in(
        "blkid", ["-p", "-o", "export", *where, str(disk)], shown=(disk,), package="util-linux",
        most_bytes=_MOST_BYTES, timeout_s=_TIMEOUT_S, ok=(0, _NOTHING, _SEVERAL),
    )  # fmt: skip
    if done.returncode == _SEVERAL:
        return {"TYPE": "several things at once"}
    pairs = (line.partition("=") for line in done.text.splitlines())
    return {name: _unescaped(value) for name, found, value in pairs if found}


def _unescaped(value: str) -> str:
    return value.replace("\\ ", " ").replace("\\\\", "\\")[:200]


def read(disk: Path, size_bytes: int, name: str) -> tuple[TableKind, tuple[Partition, ...]]:
    """Return the table of a disk, and its partitions with their content. Raises UserInputError for a table of another
    kind, or one that makes no sense. `name`: of the disk, in messages."""
    whole = probe(disk)
    kind = whole.get("PTTYPE", "")
    if not kind or whole.get("TYPE"):  # a file system with code of a loader in its first sector looks like a table
        return TableKind.NONE, (_described(Partition(0, 0, size_bytes), whole),)
    if kind == _PROTECTED:
        raise UserInputError(f"{name} has a damaged partition table: its GPT is not there", hint=_CUT_OFF)
    if kind not in _KINDS:
        raise UserInputError(f"{name} has a partition table of the unsupported kind {plain(kind)}", hint=_HINT)
    found = parse(_listed(disk, name), size_bytes, name)
    return _KINDS[kind], tuple(_described(one, probe(disk, one.start_bytes, one.size_bytes)) for one in found)


def names(disk: Path) -> dict[int, str]:
    """Return the names that a GPT gives its partitions, by their numbers; a stranger's, of at most 36 signs."""
    table = msgspec.json.decode(_listed(disk, disk.name))["partitiontable"]
    rows = [(_number(row, table), str(row.get("name", ""))[:36]) for row in table.get("partitions", ())]
    return {number: name for number, name in rows if name}


def _listed(disk: Path, name: str) -> bytes:
    """Return a table as sfdisk prints it in JSON."""
    try:
        return run_shut_in(
            "sfdisk", ["--json", str(disk)], shown=(disk,), package="fdisk", most_bytes=_MOST_BYTES,
            timeout_s=_TIMEOUT_S,
        ).stdout  # fmt: skip
    except CommandFailed as error:
        raise UserInputError(f"{name} has a damaged partition table", hint=_HINT, details=error.details) from error


def parse(data: bytes, size_bytes: int, name: str) -> tuple[Partition, ...]:
    """Return the layout that `sfdisk --json` prints. Raises UserInputError for partitions that reach beyond the disk or
    into each other."""
    try:
        table: Mapping[str, Any] = msgspec.json.decode(data)["partitiontable"]
        unit = int(table.get("sectorsize", 512))
        rows = [_partition(row, table, unit) for row in table.get("partitions", ())]
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserInputError(f"{name} has a damaged partition table", hint=_HINT, details=plain(str(error))) from error
    if len(rows) > MOST_PARTITIONS:
        raise UserInputError(f"{name} has {len(rows)} partitions; at most {MOST_PARTITIONS} are read", hint=_HINT)
    # An extended partition holds the logical ones.
    used = sorted((one for one in rows if one.type not in ("5", "f", "85")), key=lambda one: one.start_bytes)
    for one in used:
        if one.start_bytes <= 0 or one.size_bytes <= 0 or one.start_bytes + one.size_bytes > size_bytes:
            raise UserInputError(f"{name}: partition {one.number} reaches beyond the disk", hint=_CUT_OFF)
    for before, after in itertools.pairwise(used):
        if after.start_bytes < before.start_bytes + before.size_bytes:
            raise UserInputError(f"{name}: partitions {before.number} and {after.number} overlap", hint=_HINT)
    return tuple(sorted(used, key=lambda one: one.number))


def _partition(row: Mapping[str, Any], table: Mapping[str, Any], unit: int) -> Partition:
    number = _number(row, table)
    # An entry of an MBR has no name of its own: Linux makes one of the disk's.
    own = str(row.get("uuid", "")) or f"{str(table.get('id', '')).removeprefix('0x')}-{number:02x}"
    return Partition(
        number, int(row["start"]) * unit, int(row["size"]) * unit, str(row["type"]).lower()[:40],
        partition_uuid=own[:40].lower(),
    )  # fmt: skip


def _number(row: Mapping[str, Any], table: Mapping[str, Any]) -> int:
    return int(str(row["node"]).removeprefix(str(table["device"])).lstrip("p"))


def _described(one: Partition, found: Mapping[str, str]) -> Partition:
    content, uuid, label = (found.get(name, "") for name in ("TYPE", "UUID", "LABEL"))
    return replace(one, content=content, uuid=uuid, label=label)
