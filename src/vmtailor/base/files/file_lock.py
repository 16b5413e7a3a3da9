# SPDX-License-Identifier: Apache-2.0
"""A lock that a process holds by a file's descriptor, also by one that it inherited, as long as it lives."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

#: Seconds between two tries.
_PAUSE_S = 0.01


@contextlib.contextmanager
def tried(path: Path, patience_s: float = 0.0) -> Iterator[int | None]:
    """Hold the lock of a file, which is made where it does not exist, while the block runs. Yields its descriptor, or
    None where another process has it. `patience_s`: how long to try again, for who only looks lets go at once."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + patience_s
    try:
        while not _taken(lock):
            if time.monotonic() >= end:
                yield None
                return
            time.sleep(_PAUSE_S)
        yield lock
    finally:
        os.close(lock)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: str | Path) -> bool:
    """Return whether a process holds the lock of a file; False where there is no such file, or it cannot be read."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
