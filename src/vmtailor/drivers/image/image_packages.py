# SPDX-License-Identifier: Apache-2.0
"""The distribution packages in an image, read from the package databases in its flat archive. All of it is untrusted:
sizes, counts and characters are bounded."""

from __future__ import annotations

import itertools
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

DATABASE_BYTES = 64 << 20
PACKAGES_MAX = 50_000
TEXT_MAX = 256

#: Names, versions and architectures in both package systems; anything else is no package.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.:~_^-]*")
_OS_RELEASE = ("usr/lib/os-release", "etc/os-release")
_DPKG = re.compile(r"var/lib/dpkg/(status|status\.d/[^/]+)")
_DPKG_LIST = "/var/lib/dpkg/status"
_APK = ("lib/apk/db/installed", "usr/lib/apk/db/installed")
_RPM = (
    "var/lib/rpm/rpmdb.sqlite",
    "usr/lib/sysimage/rpm/rpmdb.sqlite",
    "var/lib/rpm/Packages",
    "var/lib/rpm/Packages.db",
)


@dataclass(frozen=True, order=True)
class InstalledPackage:
    """An installed package. `system` is the package system: `deb` or `apk`."""

    system: str
    name: str
    version: str
    architecture: str = ""
    source: str = ""


@dataclass(frozen=True)
class Inventory:
    """The packages that an image's databases list. `distribution` and `release` come from os-release. `unread` names
    databases in formats that are not understood, so that nobody takes silence for absence."""

    distribution: str
    release: str
    packages: tuple[InstalledPackage, ...]
    unread: tuple[str, ...] = ()


def read_inventory(archive: Path) -> Inventory:
    """Return the packages in a flat archive."""
    found: set[InstalledPackage] = set()
    unread: list[str] = []
    names: dict[str, str] = {}
    with tarfile.open(archive, "r:", encoding="utf-8", errors="surrogateescape") as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # it would keep every header in memory
            reader = _reader_of(member.name)
            if member.name in _RPM:
                unread.append(member.name)
            elif member.isreg() and (reader is not None or member.name in _OS_RELEASE):
                file = tar.extractfile(member)
                if file is None or member.size > DATABASE_BYTES:
                    unread.append(member.name)
                    continue
                text = file.read().decode("utf-8", "replace")
                if reader is None:
                    names.update(os_release(text))
                else:
                    found.update(itertools.islice(reader(text), PACKAGES_MAX))
    if len(found) > PACKAGES_MAX:
        unread.append(f"all but the first {PACKAGES_MAX} packages")
    packages = tuple(sorted(found)[:PACKAGES_MAX])
    return Inventory(names.get("ID", ""), names.get("VERSION_ID", ""), packages, tuple(sorted(unread)))


def inventory_of(text_of: Callable[[str, int], str], distribution: str, release: str) -> Inventory:
    """Return the packages of a root tree. `text_of` reads its files by path and up to a number of bytes; it gives an
    empty text for a missing one."""
    found = set(itertools.islice(dpkg_packages(text_of(_DPKG_LIST, DATABASE_BYTES)), PACKAGES_MAX))
    return Inventory(distribution, release, tuple(sorted(found)))


def _reader_of(name: str) -> Callable[[str], Iterator[InstalledPackage]] | None:
    if _DPKG.fullmatch(name) and not name.endswith(".md5sums"):
        return dpkg_packages
    return apk_packages if name in _APK else None


def _clean(text: str) -> str:
    return "".join(c for c in text.strip() if c.isprintable())[:TEXT_MAX]


def os_release(text: str) -> dict[str, str]:
    """Return ID and VERSION_ID of an os-release file, as far as they make sense."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: word for key, _, value in pairs if key in ("ID", "VERSION_ID") and (word := _word(value, "\"'"))}


def _word(text: str, quotes: str = "") -> str:
    word = _clean(text).strip(quotes)
    return word if _WORD.fullmatch(word) else ""


def dpkg_packages(text: str) -> Iterator[InstalledPackage]:
    """Yield packages of a dpkg status file that are installed."""
    for stanza in text.split("\n\n"):
        fields = {}
        for line in stanza.splitlines():
            key, colon, value = line.partition(":")
            if colon and not line[:1].isspace():
                fields[key.lower()] = _clean(value)
        # Images without dpkg itself (status.d) have no Status line.
        installed = fields.get("status", "install ok installed").split()[-1:] == ["installed"]
        source = fields.get("source", "").split(" ")[0]
        name, version = _word(fields.get("package", "")), _word(fields.get("version", ""))
        if installed and name and version:
            yield InstalledPackage(
                system="deb",
                name=name,
                version=version,
                architecture=_word(fields.get("architecture", "")),
                source=_word(source),
            )


def apk_packages(text: str) -> Iterator[InstalledPackage]:
    """Yield packages of an apk database."""
    for stanza in text.split("\n\n"):
        fields = {line[:1]: _clean(line[2:]) for line in stanza.splitlines() if line[1:2] == ":"}
        name, version, architecture, source = (_word(fields.get(key, "")) for key in "PVAo")
        if name and version:
            yield InstalledPackage(system="apk", name=name, version=version, architecture=architecture, source=source)
