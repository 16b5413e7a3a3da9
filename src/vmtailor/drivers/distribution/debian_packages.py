# SPDX-License-Identifier: Apache-2.0
"""Debian's packages: control files, version numbers, and the files in a .deb."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from vmtailor.base import process
from vmtailor.base.errors import HostError
from vmtailor.base.files.digests import SHA256


@dataclass(frozen=True)
class Package:
    """One version of a binary package, as the package lists describe it."""

    name: str
    version: str
    size_bytes: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def parse_stanzas(text: str) -> tuple[Package, ...]:
    """Read binary packages from control files. Stanzas that lack a field, or have a value that is none, are passed
    over."""
    # Imported late: most starts find their answer in the cache.
    from debian.deb822 import Packages

    packages = []
    for stanza in Packages.iter_paragraphs(text.splitlines(), use_apt_pkg=False):
        with contextlib.suppress(KeyError, ValueError):
            package = Package(
                stanza["Package"],
                stanza["Version"],
                int(stanza["Size"]),
                stanza["SHA256"].lower(),
            )
            version_key(package.version)
            if SHA256.fullmatch(package.sha256):
                packages.append(package)
    return tuple(packages)


def version_key(version: str) -> Any:
    """Return a key in the order of dpkg: 6.9 < 6.12 < 6.18~rc1 < 6.18. Raises ValueError for a text that is no
    version."""
    from debian.debian_support import NativeVersion

    return NativeVersion(version)


def upstream_version(version: str) -> str:
    """Return the upstream part of a package version, without marks of a pre-release or rebuild: 6.18~rc1-1 → 6.18."""
    return str(version_key(version).upstream_version).partition("~")[0]


#: Seconds that dpkg-deb may take to end once all was read.
_END_S = 60.0


@contextlib.contextmanager
def open_deb(deb: Path, *, whole: bool = False) -> Iterator[tarfile.TarFile]:
    """Open the files of a .deb as a stream: read the members in their order. `whole`: all are read, and it is an error
    if there are not all. Raises HostError for a damaged package."""
    dpkg_deb = process.require_tool("dpkg-deb", "dpkg")
    hint = f"delete {deb.parent}, then try again"
    with process.spawn([dpkg_deb, "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        try:
            with tarfile.open(fileobj=running.stdout, mode="r|") as archive:
                yield archive
        except tarfile.TarError as error:
            raise HostError(f"{deb} is damaged: {error}", hint=hint) from error
        if not whole:
            return
        while running.stdout.read(1 << 20):
            pass  # what fills the last block
        # A stream that ends between two members looks like an archive of fewer.
        if (code := running.wait(_END_S)) != 0:
            raise HostError(f"{deb} is damaged: dpkg-deb ended with status {code}", hint=hint)


def extract(
    deb: Path, place: Callable[[str], Path | None], *, on_bytes: Callable[[int], None] | None = None
) -> tuple[Path, ...]:
    """Write the regular files of a .deb for which `place(name)` gives a path. Names come without the leading `./`."""
    written = []
    with open_deb(deb, whole=True) as archive:
        for name, source in _files(archive):
            if on_bytes is not None:
                on_bytes(archive.offset)
            if (target := place(name)) is not None:
                _write(source, target)
                written.append(target)
    return tuple(written)


def extract_one(deb: Path, wanted: str, target: Path) -> None:
    """One file; reading stops behind it, which saves most of a large package."""
    with open_deb(deb) as archive:
        for name, source in _files(archive):
            if name == wanted:
                _write(source, target)
                return


def _files(archive: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of each regular file; the content is there until the next one is asked for."""
    for member in archive:
        source = archive.extractfile(member) if member.isfile() else None
        if source is not None:
            yield member.name.removeprefix("./"), source


def _write(source: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
