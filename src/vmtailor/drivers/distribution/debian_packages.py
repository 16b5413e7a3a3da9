# SPDX-License-Identifier: Apache-2.0
"""Debian's control files and version numbers, as its own rules read and order them (the library python-debian)."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

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
    """A key in the order of dpkg: 6.9 < 6.12 < 6.18~rc1 < 6.18. Raises ValueError for what is no version."""
    from debian.debian_support import NativeVersion

    return NativeVersion(version)


def upstream_version(version: str) -> str:
    """The upstream part of a package version, without what marks it as a pre-release or rebuild: 6.18~rc1-1 → 6.18."""
    return str(version_key(version).upstream_version).partition("~")[0]
