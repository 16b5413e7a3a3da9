# SPDX-License-Identifier: Apache-2.0
"""Tell who uses the cache. Each process holds a locked file there while it lives; each entry has the time of its last
use."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: The folder of the cache with a file for each process that uses it.
USERS = "users"
_GATE = "gate"
_held: dict[Path, int] = {}


def announce(root: Path) -> None:
    """Say, for as long as this process lives, that it uses the cache at `root`. A cache that cannot be written needs no
    such word: nothing is removed from it."""
    if root in _held:
        return
    with contextlib.suppress(OSError):
        folder = root / USERS
        folder.mkdir(mode=0o700, exist_ok=True)
        with _locked(folder / _GATE, fcntl.LOCK_SH):
            descriptor, _ = tempfile.mkstemp(prefix=f"{os.getpid()}-", dir=folder)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            _held[root] = descriptor


@contextlib.contextmanager
def nobody_comes(root: Path) -> Iterator[None]:
    """Keep further processes from using the cache during the block: they wait."""
    with _locked(root / USERS / _GATE, fcntl.LOCK_EX):
        yield


def others(root: Path) -> list[tuple[int, float]]:
    """Return process number and start, in seconds of the epoch, of every other process that uses the cache now. Files
    of those that are gone are removed."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(root / USERS):
            if entry.name == _GATE:
                continue
            with contextlib.suppress(OSError), _opened(entry.path) as descriptor:
                own = root in _held and os.path.sameopenfile(descriptor, _held[root])
                if own:
                    continue
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    found.append((int(entry.name.partition("-")[0]), os.fstat(descriptor).st_mtime))
                else:
                    Path(entry.path).unlink()
    return found


def used(path: Path) -> None:
    """Mark an entry as used now."""
    with contextlib.suppress(OSError):  # of a cache that cannot be written nothing is ever removed
        os.utime(path)


@contextlib.contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
