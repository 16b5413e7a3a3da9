# SPDX-License-Identifier: Apache-2.0
"""Needs of a program in the host's file system: itself, its libraries; of QEMU, its modules and firmware, too."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from vmtailor.base.errors import VmtailorError
from vmtailor.base.files.elf import interpreter_of
from vmtailor.base.process import run

#: Below the folder that has QEMU's bin: where distributions and QEMU's own `make install` put firmware. `-L help` says
#: the same, and costs as much as a start.
_FIRMWARE = (
    "share/qemu", "share/seabios", "share/seavgabios", "share/ipxe", "lib/ipxe/qemu", "share/qemu-firmware",
    "share/OVMF", "share/edk2", "share/edk2-ovmf", "share/vgabios",
)  # fmt: skip
#: Bytes of a program in which its linker is named.
_HEAD_BYTES = 8192
_LINKER_CACHE = Path("/etc/ld.so.cache")
_LIBRARY = re.compile(r"(?<!\S)(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)


def is_script(program: Path) -> bool:
    """Return whether an interpreter runs it."""
    with program.open("rb") as file:
        return file.read(4) != b"\x7fELF"


def listed(program: Path) -> str:
    """Return what the dynamic linker says that a program loads; empty when it loads nothing.

    The program's own linker is asked: `ldd` is a script, for a shell that a host need not have."""
    with program.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    linker = None if head.startswith(b"#!") else interpreter_of(head)
    if linker is None:
        return ""
    try:
        return run([linker, "--list", str(program)], timeout_s=20, ok=range(256)).text
    except VmtailorError:
        return ""


def needs(program: Path, libraries: str) -> tuple[str, ...]:
    """Return files and folders, none below another. `program` without links; `libraries`: what `listed` said of it.

    Folders of libraries are taken whole: what modules load is not known beforehand."""
    found = {program}
    if _LINKER_CACHE.is_file():
        found.add(_LINKER_CACHE)
    for name in _LIBRARY.findall(libraries):
        found |= {Path(name).parent, Path(name).resolve().parent}
    prefix = program.parent.parent
    for module in (*prefix.glob("lib/qemu/*.so"), *prefix.glob("lib64/qemu/*.so"), *prefix.glob("lib/*/qemu/*.so")):
        found.add(module.parent)
    for folder in (prefix / name for name in _FIRMWARE):
        if folder.is_dir():
            found.add(folder)
            found |= {link.resolve().parent for link in folder.iterdir() if link.is_symlink() and link.exists()}
    return outermost(found)


def outermost(paths: Iterable[Path]) -> tuple[str, ...]:
    """Return paths without those that lie below others, in order. The root itself is never one: nothing needs all there
    is."""
    every = {path for path in paths if path != Path("/")}
    return tuple(sorted(str(path) for path in every if not any(above in every for above in path.parents)))
