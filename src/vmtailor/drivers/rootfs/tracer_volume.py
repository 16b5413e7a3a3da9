# SPDX-License-Identifier: Apache-2.0
"""The tools volume: the host's strace with its loader and libraries, as a read-only disk of its own.

The tracer never uses the container's libraries, so it works in any image. One tracer runs on the baseline and on the
tailored machine. Layout: `strace`, `ld.so`, `lib/`."""

from __future__ import annotations

import re
from pathlib import Path

from vmtailor.base.errors import HostError
from vmtailor.base.files.elf import interpreter, needed, shared_name
from vmtailor.base.process import CommandFailed, require_tool, run
from vmtailor.drivers.rootfs.rootfs import Extra, ExtraKind, build
from vmtailor.model.plan import RootFormat

_LIBRARY = re.compile(r"^[ \t]*(\S+) => (/\S.*?) \(0x[0-9a-f]+\)$", re.MULTILINE)


def libraries(program: Path) -> tuple[str, dict[str, Path]]:
    """Return the loader of a program, and the libraries it would load: name → file. The loader itself is asked."""
    loader = interpreter(program.read_bytes())
    if not loader:
        return "", {}
    try:
        listed = run([loader, "--list", str(program)], timeout_s=30).text
    except CommandFailed as error:
        raise HostError(f"the libraries of {program} cannot be listed", details=error.details) from error
    return loader, {name: Path(path) for name, path in _LIBRARY.findall(listed)}


def libraries_among(program: Path, folder: Path) -> tuple[str, dict[str, Path]]:
    """Return the loader and libraries of a program that this host cannot run, from a folder that has them. Raises
    HostError when one is not there."""
    loader = interpreter(program.read_bytes())
    if not loader:
        return "", {}
    files = {path.name: path for path in sorted(folder.iterdir())}
    named = {shared_name(path.read_bytes()) or name: path for name, path in files.items()}
    found: dict[str, Path] = {}
    open_names = list(needed(program.read_bytes()))
    while open_names:
        name = open_names.pop()
        if name in found:
            continue
        if name not in named:
            raise HostError(f"{program.name} needs {name}, which is in none of its packages")
        found[name] = named[name]
        open_names += needed(named[name].read_bytes())
    inside = files.get(Path(loader).name)
    if inside is None:
        raise HostError(f"the loader {loader} of {program.name} is in none of its packages")
    found.pop(inside.name, None)
    return str(inside), found


def write_tools_volume(
    out: Path, form: RootFormat = RootFormat.EROFS, program: Path | None = None, among: Path | None = None
) -> None:
    """Write the tools volume: of this host's strace, or of `program`, whose libraries are in the folder `among`. Raises
    HostError when strace is missing."""
    program = program or Path(require_tool("strace"))
    loader, found = libraries(program) if among is None else libraries_among(program, among)
    if not loader:
        raise HostError(f"{program} is linked statically", hint="install the distribution's strace")
    entries = [
        Extra("strace", data=program, mode=0o755),
        Extra("ld.so", data=Path(loader), mode=0o755),
        Extra("lib", ExtraKind.DIRECTORY, mode=0o755),
        *(Extra(f"lib/{name}", data=path, mode=0o755) for name, path in sorted(found.items())),
    ]
    build(None, out, form, entries)
