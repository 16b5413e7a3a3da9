# SPDX-License-Identifier: Apache-2.0
"""The folder of a processor's lab: its disk, with the kernel and the initial RAM disk that start it. tools/lab.py makes
it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vmtailor.base.cache.store import Store, require_own
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.base.files.regular_files import read_regular
from vmtailor.model.architecture import Architecture, every, named, presumed_name
from vmtailor.model.checks import Check, Need, State

#: The version of labs that this program can use; benchmarks/lab/system.toml has the same number.
VERSION = "4"
#: Its folder in the cache, of which all files are one entry, and its files. That of other processors has their name.
FOLDER = "lab"
RECORD, DISK, KERNEL, INITRD, SYMBOLS = "lab.json", "disk.raw", "kernel", "initrd", "symbols"
#: A word for the lab among a machine's extras: no memory of the lab comes in huge pages.
SMALL_PAGES = "small-pages"
_MOST_RECORD = 1 << 20


@dataclass(frozen=True)
class Lab:
    """The lab. `version`: as its disk says; `kernel`: its release; `monitors`: name → version of each that it has;
    `digest`: of its disk; `sizes`: its files, in bytes; `made_from`: the digest of what it was built from."""

    SCHEMA: ClassVar[str] = "vmtailor/lab/1"

    version: str
    architecture: str
    kernel: str
    monitors: dict[str, str]
    digest: str
    sizes: dict[str, int]
    made_from: str


def sizes(place: Path) -> dict[str, int]:
    """Return the bytes of each file of a lab, but its record. Raises HostError for one that is missing."""
    found = {}
    for name in (DISK, KERNEL, INITRD, SYMBOLS):
        try:
            found[name] = (place / name).stat().st_size
        except OSError as error:
            raise HostError(f"the lab has no {name}") from error
    return found


def checks(store: Store | None = None) -> tuple[Check, ...]:
    """Return whether there is a lab for this host's processor that can be used, and which monitors it has. Those for
    other processors are checked where they are there."""
    store = store or Store()
    rows = (row for row in every() if row.emulator.lab_cpu)
    return tuple(_check(row, store) for row in rows if row.is_host or (store.root / folder_name(row.name)).exists())


def _check(row: Architecture, store: Store) -> Check:
    name, why = f"lab{_for(row)}", "starts machines by other monitors under KVM (verify --lab)"
    try:
        lab, _ = load(row.name, store)
    except HostError as error:
        return Check(name=name, state=State.MISSING, need=Need.OPTIONAL, found=error.message, why=why, fix=error.hint)
    found = ", ".join(f"{name} {version}" for name, version in sorted(lab.monitors.items()))
    return Check(name=name, state=State.OK, need=Need.OPTIONAL, found=f"{found}; Linux {lab.kernel}", why=why)


def _for(row: Architecture) -> str:
    return "" if row.is_host else f" for {row.title}"


def folder_name(architecture: str) -> str:
    """Return the name of the folder in the cache that the lab for a processor has."""
    return FOLDER if architecture == presumed_name() else f"{FOLDER}-{architecture}"


def make_command(architecture: str) -> str:
    """Return the command that builds the lab for a processor."""
    return "make lab" if named(architecture).is_host else f"make lab ARCH={architecture}"


def load(architecture: str, store: Store | None = None) -> tuple[Lab, Path]:
    """Return the lab for a processor and its folder, marked as used now. Raises HostError where there is none, where a
    file is missing or of another size, and where it is of another version or another user's."""
    store = store or Store()
    place = store.root / folder_name(architecture)
    require_own(place)
    make = f"{make_command(architecture)}, in a source tree of vmtailor, builds it"
    if not (place / RECORD).exists():
        raise HostError(f"there is no lab{_for(named(architecture))} on this host", hint=make)
    try:
        lab = records.from_bytes(
            Lab, read_regular(place / RECORD, "the lab's record", _MOST_RECORD), "the lab's record"
        )
    except UserInputError as error:
        raise HostError(error.message, hint=make) from error
    if lab.version != VERSION:
        raise HostError(f"the lab is of version {lab.version[:20]!r}, and {VERSION!r} is needed", hint=make)
    try:
        found = sizes(place)
    except HostError as error:
        raise HostError(error.message, hint=make) from error
    for name, size in found.items():
        if size != lab.sizes.get(name):
            raise HostError(f"the lab's {name} has {size} bytes, and had {lab.sizes.get(name)} when built", hint=make)
    store.used(place / RECORD)
    return lab, place
