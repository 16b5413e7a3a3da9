# SPDX-License-Identifier: Apache-2.0
"""The digest of a package's code and data: two installations with the same one work alike."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from vmtailor.base.files.digests import sha256_of

#: The folder of this program's own package.
PACKAGE = Path(__file__).resolve().parent.parent.parent
#: Endings of the files that decide what it does.
_ENDINGS = (".py", ".toml", ".js", ".css", ".html", ".j2")


def digest_of_all(package: Path = PACKAGE) -> str:
    """Return the digest of a package's code and data, names and contents: hex SHA-256."""
    return digest_of(package, sorted(path for path in package.rglob("*") if path.suffix in _ENDINGS))


def digest_of(package: Path, files: Iterable[Path]) -> str:
    """Return the digest of some of a package's files, names and contents: hex SHA-256."""
    total = hashlib.sha256()
    for path in files:
        total.update(hashlib.sha256(str(path.relative_to(package)).encode("utf-8", "surrogatepass")).digest())
        total.update(bytes.fromhex(sha256_of(path)))
    return total.hexdigest()
