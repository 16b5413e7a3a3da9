# SPDX-License-Identifier: Apache-2.0
"""The lab's folder: its disk, with the kernel and the initial RAM disk that start it. tools/lab.py makes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vmtailor.base.cache.store import Store, require_own
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.base.files.regular_files import read_regular
from vmtailor.model.checks import Check, Need, State

#: The version of labs that this program can use; benchmarks/lab/system.toml has the same number.
VERSION = "2"
#: Its folder in the cache, of which all files are one entry, and its files.
FOLDER = "lab"
RECORD, DISK, KERNEL, INITRD, SYMBOLS = "lab.json", "disk.raw", "kernel", "initrd", "symbols"
#: A word for the lab among a machine's extras: no memory of the lab comes in huge pages.
SMALL_PAGES = "small-pages"
_MAKE = "make lab, in a source tree of vmtailor, builds it"
_MOST_RECORD = 1 << 20


@dataclass(frozen=True)
class Lab:
    """The lab. `version`: as its disk says; `kernel`: its release; `monitors`: name → version of each that it has;
    `digest`: of its disk."""

    SCHEMA: ClassVar[str] = "vmtailor/lab/1"

    version: str
    architecture: str
    kernel: str
    monitors: dict[str, str]
    digest: str


def check(store: Store | None = None) -> Check:
    """Return whether there is a lab that can be used, and which monitors it has."""
    why = "starts machines by other monitors under KVM (verify --lab)"
    try:
        lab, _ = load(store)
    except HostError as error:
        return Check(name="lab", state=State.MISSING, need=Need.OPTIONAL, found=error.message, why=why, fix=error.hint)
    found = ", ".join(f"{name} {version}" for name, version in sorted(lab.monitors.items()))
    return Check(name="lab", state=State.OK, need=Need.OPTIONAL, found=f"{found}; Linux {lab.kernel}", why=why)


def folder(store: Store | None = None) -> Path:
    """Return the place of the lab in the cache."""
    return (store or Store()).root / FOLDER


def load(store: Store | None = None) -> tuple[Lab, Path]:
    """Return the lab and its folder, marked as used now. Raises HostError where there is none, where a file is missing,
    and where it is of another version or another user's."""
    store = store or Store()
    place = folder(store)
    require_own(place)
    if not (place / RECORD).exists():
        raise HostError("there is no lab on this host", hint=_MAKE)
    try:
        lab = records.from_bytes(
            Lab, read_regular(place / RECORD, "the lab's record", _MOST_RECORD), "the lab's record"
        )
    except UserInputError as error:
        raise HostError(error.message, hint=_MAKE) from error
    if lab.version != VERSION:
        raise HostError(f"the lab is of version {lab.version[:20]!r}, and {VERSION!r} is needed", hint=_MAKE)
    for name in (DISK, KERNEL, INITRD, SYMBOLS):
        if not (place / name).is_file():
            raise HostError(f"the lab has no {name}", hint=_MAKE)
    store.used(place / RECORD)
    return lab, place
