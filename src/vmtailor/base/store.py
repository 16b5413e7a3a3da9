# SPDX-License-Identifier: Apache-2.0
"""The cache: folders named by the content they depend on, filled once, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from vmtailor.base.errors import HostError


def cache_root() -> Path:
    """`$XDG_CACHE_HOME/vmtailor`, or `~/.cache/vmtailor`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "vmtailor"


def digest(*parts: str | bytes | Path) -> str:
    """Hex SHA-256 over strings, bytes and the contents of files, each with its length, so that no two lists collide."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                inner = hashlib.file_digest(file, "sha256").digest()
        else:
            inner = hashlib.sha256(part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part).digest()
        total.update(inner)
    return total.hexdigest()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file beside the thing it guards; a second process waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def disk_full_is_a_host_error(where: Path) -> Iterator[None]:
    """Turn ENOSPC into the error that a user should see."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HostError(
                f"no space is left in {where}", hint="free some, or set XDG_CACHE_HOME elsewhere"
            ) from error
        raise


class Store:
    """Folders under `root/KIND/KEY`. `get` fills a missing one through a temporary folder and a rename."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or cache_root()

    def path(self, kind: str, key: str) -> Path:
        return self.root / kind / key[:40]

    def has(self, kind: str, key: str) -> bool:
        return self.path(kind, key).is_dir()

    def get(self, kind: str, key: str, fill: Callable[[Path], None]) -> Path:
        """The folder for `key`; `fill(folder)` makes its contents when it is not there yet. Safe across processes."""
        final = self.path(kind, key)
        if final.is_dir():
            return final
        with disk_full_is_a_host_error(self.root), locked(self.root / "locks" / f"{kind}-{key[:40]}"):
            if final.is_dir():
                return final
            final.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(dir=final.parent, prefix=".filling-"))
            try:
                fill(temporary)
                temporary.chmod(0o755)
                temporary.rename(final)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        return final
