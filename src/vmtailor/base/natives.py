# SPDX-License-Identifier: Apache-2.0
"""Find the native parts: inside the installed package, or compiled on first use in a development tree."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import package_manager
from vmtailor.base.cache.store import locked
from vmtailor.base.errors import HostError
from vmtailor.base.process import CommandFailed, on_path, require_tool, run

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
    "sampler": (0x68000000, 0x6C000000),
    "attendant": (0x7C000000, 0x80000000),
}
_MARK = "vt_mark_"
_LONGEST_NAME = 1024
#: Marks that init sets (native/init).
MARKS = ("init", "entry", "ready", "load", "load_end", "stop", "end")
#: Marks around a monitor in the lab (native/begin).
BEGIN_MARKS = ("monitor", "gone")
#: Marks around a load outside the guest, each with the function of native/load-client that begins then.
LOAD_MARKS = {"load_asks": "stage_run", "load_asked": "exit"}


@dataclass(frozen=True)
class Natives:
    """Guest programs, the QEMU plugins, and the programs that start QEMU. `others`: where the guest programs are when
    they are of another processor than this host's."""

    folder: Path
    others: Path | None = None

    @property
    def guest(self) -> Path:
        """Return the folder of the guest programs."""
        return self.others or self.folder

    @property
    def init(self) -> Path:
        return self.guest / "init"

    @property
    def stage1(self) -> Path:
        return self.guest / "stage1"

    @property
    def client(self) -> Path:
        return self.guest / "client"

    @property
    def load_client(self) -> Path:
        """Return the client that drives loads: many requests, some of them at the same time."""
        return self.guest / "load-client"

    @property
    def builtin(self) -> Path:
        """Return the program that init runs in a container for tars and statistics."""
        return self.guest / "builtin"

    @property
    def collector(self) -> Path:
        """Return the program that watches a system with an init of its own."""
        return self.guest / "collector"

    @property
    def small_init(self) -> Path:
        """Return the init of small initial RAM disks."""
        return self.guest / "small-init"

    @property
    def attendant(self) -> Path:
        """Return the program that drives systems with an init of their own."""
        return self.guest / "attendant"

    @property
    def sampler(self) -> Path:
        """Return the program that samples the figures of such a system."""
        return self.guest / "sampler"

    @property
    def launch(self) -> Path:
        return self.folder / "launch"

    @property
    def supervise(self) -> Path:
        """Return the program that starts a machine by orders, and stays beside it."""
        return self.folder / "supervise"

    @property
    def serve(self) -> Path:
        """Return the program that starts file servers for a machine, and then what starts the machine."""
        return self.folder / "serve"

    @property
    def forward(self) -> Path:
        """Return the program that passes connections on, to ports of this host's loopback."""
        return self.folder / "forward"

    @property
    def begin(self) -> Path:
        """Return the program that starts monitors in the lab, and marks when they are executed, and gone."""
        return self.guest / "begin"

    @property
    def krun_start(self) -> Path:
        """Return the program that starts machines with libkrun."""
        return self.folder / "krun-start"

    def plugin(self, api: int) -> Path:
        """Return the QEMU plugin for one version (PLUGIN_APIS) of the plugin interface."""
        return self.folder / f"libvtplugin-{api}.so"

    def call_plugin(self, api: int) -> Path:
        """Return the QEMU plugin that follows calls, for one version of the plugin interface."""
        return self.folder / f"libvtcalls-{api}.so"

    @property
    def net_guard(self) -> Path:
        """Return the library that QEMU loads to guard its network."""
        return self.folder / "libvtnetguard.so"

    def marks(self) -> dict[str, int]:
        """Return address of each of init's marks: init, entry, ready, load, load_end, stop, end."""
        return mark_addresses(self.init.read_bytes())

    def begin_marks(self) -> dict[str, int]:
        """Return address of each mark around a monitor in the lab: monitor (it is executed), gone."""
        return _marks_among(BEGIN_MARKS, self.begin.read_bytes())

    def load_marks(self) -> dict[str, int]:
        """Return address of each mark around a load that a machine's host drives: load_asks, load_asked."""
        found = elf_symbols(self.load_client.read_bytes())
        return {name: found[symbol] for name, symbol in LOAD_MARKS.items() if symbol in found}

    def attendant_marks(self) -> dict[str, int]:
        """Return the attendant's marks: init (the system's own has been executed), ready, load, load_end, stop."""
        return mark_addresses(self.attendant.read_bytes())


def mark_addresses(init: bytes) -> dict[str, int]:
    """Return the marks of an init, which may be somebody else's. Its other symbols are passed over."""
    return _marks_among(MARKS, init)


def _marks_among(names: Iterable[str], program: bytes) -> dict[str, int]:
    found = elf_symbols(program)
    return {name: found[_MARK + name] for name in sorted(names) if _MARK + name in found}


def locate() -> Natives:
    """Return the native parts. In a development tree they are made when missing or older than their sources.

    Raises HostError when they are not there and cannot be made."""
    tools = ("musl-tools", "gcc", "make")
    if (SOURCES / "Makefile").is_file():
        made = [
            FOLDER / name
            for name in (
                "init",
                "stage1",
                "client",
                "load-client",
                "builtin",
                "attendant",
                "sampler",
                "launch",
                "supervise",
                "serve",
                "forward",
                "guard",
                "libvtnetguard.so",
                "krun-start",
                "begin",
            )
        ]
        if (SOURCES / "tcg-plugin" / "Makefile").is_file():
            there = Natives(FOLDER)
            made += [path for api in PLUGIN_APIS for path in (there.plugin(api), there.call_plugin(api))]
        _up_to_date(FOLDER, made, (), tools)
    natives = Natives(FOLDER)
    guest = (natives.init, natives.stage1, natives.client, natives.load_client, natives.builtin, natives.attendant)
    missing = _missing((*guest, natives.sampler, natives.launch, natives.supervise))
    if missing:
        raise HostError(
            f"this installation lacks its native parts ({missing})",
            hint=f"install it again with a C compiler at hand: {package_manager.install_command('musl-tools', 'make')}",
        )
    return natives


def for_guests(architecture: str, compiler: str, packages: tuple[str, ...]) -> Natives:
    """Return the native parts with the guest programs of another processor, by its folder below native/arch. In a
    development tree they are made like the others. `compiler` is its program, and `packages` the packages that have it.

    Raises HostError when they are not there and cannot be made."""
    natives = Natives(locate().folder, FOLDER / architecture)
    programs = _guest_programs(natives)
    hint = package_manager.install_command(*packages, "make")
    if (SOURCES / "Makefile").is_file():
        if _stale(list(programs)) and on_path(compiler) is None:
            raise HostError(f"the program '{compiler}' is not installed: it compiles what runs in the guest", hint=hint)
        _up_to_date(natives.guest, list(programs), (f"ARCH={architecture}", "guest"), (*packages, "make"))
    if missing := _missing(programs):
        raise HostError(
            f"this installation lacks the guest programs of {architecture} ({missing})",
            hint=f"install it again with their compiler at hand: {hint}",
        )
    return natives


def lacking(architecture: str) -> str:
    """Return the names of the guest programs of another processor that this installation lacks, joined by commas; empty
    in a development tree, which compiles them."""
    if (SOURCES / "Makefile").is_file():
        return ""
    return _missing(_guest_programs(Natives(FOLDER, FOLDER / architecture)))


def _guest_programs(natives: Natives) -> tuple[Path, ...]:
    named = (natives.init, natives.stage1, natives.client, natives.load_client, natives.builtin, natives.attendant)
    return (*named, natives.sampler, natives.collector, natives.small_init, natives.begin)


def _missing(paths: Iterable[Path]) -> str:
    return ", ".join(path.name for path in paths if not path.is_file())


def _up_to_date(folder: Path, made: list[Path], targets: tuple[str, ...], packages: tuple[str, ...]) -> None:
    try:
        with locked(folder / ".lock", "the native parts"):
            if _stale(made):
                _make(folder, targets, packages)
                _seen(folder)
    except OSError as error:  # the tree is another user's: what was made there serves us, too
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        if _stale(made):
            raise HostError(
                f"the native parts in {folder} are missing or old, and cannot be written there",
                hint=f"run 'make -C {SOURCES} OUT={folder}' as the owner of that folder",
            ) from error


def _stale(made: list[Path]) -> bool:
    if not all(path.is_file() for path in made):
        return True
    oldest = min(path.stat().st_mtime for path in made)
    return any(path.stat().st_mtime > oldest for path in SOURCES.rglob("*") if path.is_file())


def _make(folder: Path, targets: tuple[str, ...], packages: tuple[str, ...]) -> None:
    make = require_tool("make")
    try:
        run([make, "-C", str(SOURCES), f"OUT={folder}", *targets], timeout_s=300)
    except CommandFailed as error:
        raise HostError(
            "the native parts could not be compiled",
            hint=package_manager.install_command(*packages),
            details=error.details,
        ) from error


def _seen(folder: Path) -> None:
    """A source that changes only some parts leaves the others older than it: they are as new as they get."""
    for path in folder.iterdir():
        if path.is_file() and not path.name.startswith("."):
            path.touch()


def elf_symbols(data: bytes) -> dict[str, int]:
    """Return names and addresses in the symbol table of a 64-bit little-endian ELF file; empty when it has none that
    can be read."""
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
