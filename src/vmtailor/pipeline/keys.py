# SPDX-License-Identifier: Apache-2.0
"""Keys of the cache: everything that a result depends on."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

from vmtailor.base.cache.store import digest
from vmtailor.base.files import own_code, records
from vmtailor.base.files.digests import sha256_of
from vmtailor.base.natives import Natives
from vmtailor.booting import given_environment
from vmtailor.drivers.monitors import monitors
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.exercise import Exercise
from vmtailor.model.machine import Machine

_PACKAGE = own_code.PACKAGE


#: SHA-256 of files that this run has read, by path, modification time and size.
_read: dict[tuple[str, int, int], str] = {}


def content(path: Path) -> str:
    """Return the digest of a file's content, which is read once in a run."""
    name = _name(path)
    if name not in _read:
        _read[name] = sha256_of(path)
    return _read[name]


def note_content(path: Path, sha256: str) -> None:
    """Note a file's SHA-256, so that `content` does not read the file again. (A disk has gigabytes.)"""
    _read[_name(path)] = sha256


def _name(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return str(path), status.st_mtime_ns, status.st_size


def of_machine(machine: Machine) -> str:
    """Return the digest of a machine, whatever its files are called."""
    files = [*machine.files.values(), *(disk.path for disk in machine.disks)]
    nameless = tuple(replace(disk, path="") for disk in machine.disks)
    bare = replace(machine, kernel="", initrd=None, disks=nameless)
    return digest(records.to_bytes(bare), *(content(Path(file)) for file in files))


def of_run(
    judge: ModuleType, machine: Machine, exercise: Exercise | SystemExercise, natives: Natives, *more: str
) -> str:
    """Return the digest of everything that one boot with the exercise depends on: the code of the stage that judges
    it, machine, exercise, our native parts, QEMU with its firmware."""
    own = (natives.init, natives.client, natives.load_client, natives.builtin, natives.stage1)
    parts = [content(path) for path in own]
    identity = monitors.of(machine).identity(machine.architecture, natives)
    tools = [content(one) if isinstance(one, Path) else one for one in identity]
    given = given_environment.given().key
    return digest(
        code_of(judge.__name__), of_machine(machine), records.to_bytes(exercise), *parts, *tools, *more, *given
    )


@cache
def code() -> str:
    """Return the digest of this program's own code and data, so that no other version's result is reused."""
    return own_code.digest_of_all(_PACKAGE)


@cache
def code_of(module: str) -> str:
    """Return the digest of one module's code, of everything that it imports of this program, and of the data that these
    read. After a change of a rule, older judgements are not reused; results that do not depend on it are."""
    files = set(_imported(module, {}).values())
    return own_code.digest_of(_PACKAGE, sorted(files | _data_of(files)))


def _data_of(files: Iterable[Path]) -> set[Path]:
    """Return the data that these modules may read: files in no folder, and folders whose names they have in quotes."""
    code = "".join(path.read_text("utf-8") for path in files)
    data = _PACKAGE / "data"
    named = [folder for folder in data.iterdir() if folder.is_dir() and f'"{folder.name}"' in code]
    return {path for folder in (data, *named) for path in folder.glob("*.toml")}


def _imported(module: str, found: dict[str, Path]) -> dict[str, Path]:
    """Return the files of a module and of what it imports from this program, directly or not; none for another's
    module."""
    path = _PACKAGE.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if module.partition(".")[0] != _PACKAGE.name or module in found or not file.is_file():
        return found
    found[module] = file
    for node in ast.walk(ast.parse(file.read_bytes())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        base = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in [*base, *(".".join([*base, name]) for name in names)]:
            _imported(name, found)
    if module == monitors.__name__:  # which imports drivers by their names in rows of data
        for driver in monitors.drivers():
            _imported(driver, found)
    return found
