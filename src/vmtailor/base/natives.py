# SPDX-License-Identifier: Apache-2.0
"""Where the native parts are: inside the installed package, or compiled on first use in a development tree."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import installing
from vmtailor.base.cache.store import locked
from vmtailor.base.errors import HostError
from vmtailor.base.process import CommandFailed, require_tool, run

PACKAGE = Path(__file__).resolve().parent.parent
#: Sources beside the package's `src`, in a development tree only.
SOURCES = PACKAGE.parent.parent / "native"
FOLDER = PACKAGE / "_native"
#: Versions of QEMU's plugin interface that the plugin is built for: 1 is QEMU 7.2's, 4 that of 9.2 and later.
PLUGIN_APIS = (1, 4)

#: Address ranges of the guest's own programs (native/Makefile links each at its start).
ADDRESSES = {
    "init": (0x70000000, 0x74000000),
    "stage1": (0x74000000, 0x78000000),
    "client": (0x78000000, 0x7C000000),
}
_MARK = "vt_mark_"
_LONGEST_NAME = 1024
#: What init marks (native/init).
MARKS = ("init", "entry", "ready", "load", "load_end", "stop", "end")


@dataclass(frozen=True)
class Natives:
    """Guest programs, the QEMU plugin, and the program that starts QEMU."""

    folder: Path

    @property
    def init(self) -> Path:
        return self.folder / "init"

    @property
    def stage1(self) -> Path:
        return self.folder / "stage1"

    @property
    def client(self) -> Path:
        return self.folder / "client"

    @property
    def attendant(self) -> Path:
        """What drives systems with an init of their own."""
        return self.folder / "attendant"

    @property
    def launch(self) -> Path:
        return self.folder / "launch"

    def plugin(self, api: int) -> Path:
        """The QEMU plugin for one version (PLUGIN_APIS) of the plugin interface."""
        return self.folder / f"libvtplugin-{api}.so"

    @property
    def net_guard(self) -> Path:
        """What QEMU loads to guard its network."""
        return self.folder / "libvtnetguard.so"

    def marks(self) -> dict[str, int]:
        """Address of each of init's marks: init, entry, ready, load, load_end, stop, end."""
        return mark_addresses(self.init.read_bytes())


def mark_addresses(init: bytes) -> dict[str, int]:
    """The marks of an init, which may be somebody else's: what else its symbols say is passed over."""
    found = elf_symbols(init)
    return {name: found[_MARK + name] for name in sorted(MARKS) if _MARK + name in found}


def locate() -> Natives:
    """The native parts. In a development tree they are made when missing or older than their sources.

    Raises HostError when they are not there and cannot be made."""
    if (SOURCES / "Makefile").is_file():
        with locked(FOLDER / ".lock"):
            if _stale():
                _make()
                _seen()
    natives = Natives(FOLDER)
    missing = [
        path.name
        for path in (natives.init, natives.stage1, natives.client, natives.attendant, natives.launch)
        if not path.is_file()
    ]
    if missing:
        raise HostError(
            f"this installation lacks its native parts ({', '.join(missing)})",
            hint=f"install it again with a C compiler at hand: {installing.command('musl-tools', 'make')}",
        )
    return natives


def _stale() -> bool:
    made = [FOLDER / name for name in ("init", "stage1", "client", "attendant", "launch", "guard", "libvtnetguard.so")]
    if (SOURCES / "tcg-plugin" / "Makefile").is_file():
        made += [Natives(FOLDER).plugin(api) for api in PLUGIN_APIS]
    if not all(path.is_file() for path in made):
        return True
    oldest = min(path.stat().st_mtime for path in made)
    return any(path.stat().st_mtime > oldest for path in SOURCES.rglob("*") if path.is_file())


def _make() -> None:
    make = require_tool("make")
    try:
        run([make, "-C", str(SOURCES), f"OUT={FOLDER}"], timeout_s=300)
    except CommandFailed as error:
        raise HostError(
            "the native parts could not be compiled",
            hint=installing.command("musl-tools", "gcc", "make"),
            details=error.details,
        ) from error


def _seen() -> None:
    """A source that changes only some parts leaves the others older than it: they are as new as they get."""
    for path in FOLDER.iterdir():
        if path.is_file() and not path.name.startswith("."):
            path.touch()


def elf_symbols(data: bytes) -> dict[str, int]:
    """Names and addresses in the symbol table of a 64-bit little-endian ELF file; empty when it has none that can be
    read."""
    try:
        return _elf_symbols(data)
    except (struct.error, ValueError, IndexError, OverflowError):
        return {}


def _elf_symbols(data: bytes) -> dict[str, int]:
    if data[:6] != b"\x7fELF\x02\x01":
        return {}
    offset, size, count = struct.unpack_from("<Q", data, 0x28)[0], *struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    symbols: dict[str, int] = {}
    for _, kind, _, _, start, length, link, *_ in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names = sections[link][4]
        for at in range(start, start + length, 24):
            name_at, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", data, at)
            end = data.index(b"\0", names + name_at, names + name_at + _LONGEST_NAME)
            symbols[data[names + name_at : end].decode("ascii", "replace")] = value
        break  # there is one; a second would only make this longer
    return symbols
