# SPDX-License-Identifier: Apache-2.0
"""A small XFS of our own entries, for machines whose kernels know no other file system. mkfs.xfs takes a list of files;
nothing is mounted, and no root is needed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmtailor.base.disk_full import disk_full_is_a_host_error
from vmtailor.base.errors import BuildError
from vmtailor.base.process import CommandFailed, require_tool, run
from vmtailor.drivers.rootfs.rootfs import CONSOLE, UUID, Extra, ExtraKind

#: The least that mkfs.xfs makes; the file has holes.
SIZE_BYTES = 300 << 20
#: Features that the oldest kernels have whose systems are fitted; newer ones have them as well.
_FEATURES = ("-m", f"crc=1,finobt=1,reflink=0,rmapbt=0,bigtime=0,inobtcount=0,uuid={UUID}", "-i", "sparse=0")
_TIMEOUT_S = 60.0


def write(out: Path, entries: Sequence[Extra]) -> None:
    """Write a file system of entries with plain names and paths of at most two parts, such as `config` and
    `dev/console`. Raises HostError where mkfs.xfs is missing or the disk is full, BuildError with what it said."""
    program = require_tool("mkfs.xfs", "xfsprogs")
    with disk_full_is_a_host_error(out.parent), tempfile.TemporaryDirectory(dir=out.parent, prefix=".xfs-") as name:
        work = Path(name)
        listed = work / "list"
        lines = ["-", "0 0", "d--755 0 0", *_lines(_by_folder([CONSOLE, *entries]), work), "$", "$"]
        listed.write_text("\n".join(lines) + "\n")
        made = work / "image"
        with made.open("wb") as file:
            file.truncate(SIZE_BYTES)
        try:
            run([program, "-q", *_FEATURES, "-p", str(listed), str(made)], timeout_s=_TIMEOUT_S)
        except CommandFailed as error:
            raise BuildError("mkfs.xfs could not make the disk of the attendant", details=error.details) from error
        made.chmod(0o644)
        made.replace(out)


def _by_folder(entries: Sequence[Extra]) -> dict[str, list[Extra]]:
    """Return entries by the folder that they are in; "" for the topmost. A folder is named though nothing is in it."""
    found: dict[str, list[Extra]] = {"": []}
    for one in entries:
        above, _, _ = one.path.rpartition("/")
        if one.kind is ExtraKind.DIRECTORY:
            found.setdefault(one.path, [])
        else:
            found.setdefault(above, []).append(one)
    return found


def _lines(folders: dict[str, list[Extra]], work: Path) -> Iterator[str]:
    """Yield the list as mkfs.xfs reads it. Content goes to files in `work`, under names of ours."""
    for folder, entries in folders.items():
        if folder:
            yield f"{folder} d--755 0 0"
        for number, one in enumerate(entries):
            name = one.path.rpartition("/")[2]
            if one.kind is ExtraKind.CHARACTER_DEVICE:
                yield f"{name} c--{one.mode:03o} 0 0 {one.device[0]} {one.device[1]}"
            elif one.kind is ExtraKind.SYMLINK:
                yield f"{name} l--{one.mode:03o} 0 0 {one.target}"
            else:
                content = work / f"{folder or 'top'}-{number}"
                content.write_bytes(one.data if isinstance(one.data, bytes) else one.data.read_bytes())
                yield f"{name} ---{one.mode:03o} 0 0 {content}"
        if folder:
            yield "$"
