# SPDX-License-Identifier: Apache-2.0
"""What results depend on, as keys of the cache."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path

from vmtailor.base import records
from vmtailor.base.natives import Natives
from vmtailor.base.store import digest
from vmtailor.drivers import qemu_program
from vmtailor.model.exercise import Exercise
from vmtailor.model.machine import Machine

# Part of every key: raise it when what is traced, judged or counted changes.
LAYOUT = "7"


@cache
def _content(path: str, _mtime_ns: int, _size: int) -> str:
    return digest(Path(path))


def content(path: Path) -> str:
    """The digest of a file, read once in a run."""
    status = path.stat()
    return _content(str(path), status.st_mtime_ns, status.st_size)


def of_machine(machine: Machine) -> str:
    """What a machine is, whatever its files are called."""
    files = [machine.kernel, *([machine.initrd] if machine.initrd else []), *(disk.path for disk in machine.disks)]
    bare = replace(machine, kernel="", initrd=None, disks=())
    return digest(records.to_bytes(bare), *(content(Path(file)) for file in files))


def of_run(machine: Machine, exercise: Exercise, natives: Natives, *more: str) -> str:
    """What one boot with the exercise depends on: machine, exercise, our native parts, QEMU."""
    parts = [content(path) for path in (natives.init, natives.client, natives.stage1)]
    parts.append(content(natives.plugin(qemu_program.plugin_api())))
    version = ".".join(str(part) for part in qemu_program.installed().version)
    return digest(LAYOUT, of_machine(machine), records.to_bytes(exercise), *parts, version, *more)


def content_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def code() -> str:
    """The digest of this program's own code and data: what was decided by another version is decided again."""
    package = Path(__file__).resolve().parent.parent
    files = sorted(
        path for path in package.rglob("*") if path.suffix in (".py", ".toml", ".js", ".css", ".html", ".j2")
    )
    return digest(*(part for path in files for part in (str(path.relative_to(package)), path)))
