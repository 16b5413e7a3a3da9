# SPDX-License-Identifier: Apache-2.0
"""The process that holds a lock of the cache, as its file tells those that wait: its number, since when, how far."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

#: Bytes that are read of a lock's file.
_MOST = 400
#: Seconds between two words of a holder.
_SAY_S = 1.0
_own = threading.local()


@dataclass(frozen=True)
class LockHolder:
    """A process that holds a lock. `since_s`: seconds of the epoch. `said`: how far it is; empty when it said nothing
    yet."""

    pid: int
    since_s: int
    said: str

    def words(self, now_s: float) -> str:
        """Return `process 812, for 3 min: compiling the kernel: 42 %`."""
        length = max(0, int(now_s - self.since_s))
        time_held = f"{length // 60} min" if length >= 60 else f"{length} s"
        return f"process {self.pid}, for {time_held}{': ' if self.said else ''}{self.said}"


@contextlib.contextmanager
def holding(descriptor: int) -> Iterator[None]:
    """Tell those that wait for a lock who holds it, during the block. `descriptor`: of the lock's file."""
    held: list[tuple[int, int]] = _own.__dict__.setdefault("held", [])
    mine = (descriptor, int(time.time()))
    _write(*mine, "")
    held.append(mine)
    try:
        yield
    finally:
        held.remove(mine)
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)


def say(text: str) -> None:
    """Write how far this thread's work is to the files of the locks that it holds, at most once a second."""
    held = _own.__dict__.get("held", ())
    if held and time.monotonic() - _own.__dict__.get("last", 0.0) >= _SAY_S:
        _own.last = time.monotonic()
        for descriptor, since in held:
            _write(descriptor, since, text)


def read(descriptor: int) -> LockHolder | None:
    """Return the holder that a lock's file names; None when it names none, as those of older versions do."""
    try:
        words = os.pread(descriptor, _MOST, 0).decode("utf-8", "replace").split(maxsplit=2)
        return LockHolder(int(words[0]), int(words[1]), words[2].strip() if len(words) > 2 else "")
    except (OSError, ValueError, IndexError):
        return None


def _write(descriptor: int, since_s: int, said: str) -> None:
    with contextlib.suppress(OSError):  # a lock that cannot be written still holds
        text = f"{os.getpid()} {since_s} {said}"[: _MOST // 4].encode("utf-8", "replace")
        os.pwrite(descriptor, text.ljust(_MOST), 0)
