# SPDX-License-Identifier: Apache-2.0
"""Processors of this host, booked by several processes that work side by side. Without `begin` nothing is booked: a
program on its own lets its host's scheduler decide."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from vmtailor.base import concurrency

#: Seconds between two looks.
_LOOK_S = 0.05


class CoreShare(Enum):
    """The share of the host that a piece of work takes: a counted boot one processor, a compile and a timed boot all of
    them."""

    ONE = "one"
    ALL = "all"


class CoreBooking:
    """Locks of files in a folder, one for each processor, and one that is held while others are taken: whoever waits
    for all is not overtaken for ever."""

    def __init__(self, folder: Path, cores: int) -> None:
        self._gate = folder / "cores-gate"
        self._cores = tuple(folder / f"cores-{number}" for number in range(cores))

    @contextlib.contextmanager
    def booked(self, share: CoreShare) -> Iterator[None]:
        """Hold processors while the block runs; waits until they are free. They are free when the process is gone."""
        with contextlib.ExitStack() as held:
            with contextlib.ExitStack() as gate:
                _wait(gate, (self._gate,))
                for wanted in [(one,) for one in self._cores] if share is CoreShare.ALL else [self._cores]:
                    _wait(held, wanted)
            yield


def _wait(held: contextlib.ExitStack, among: tuple[Path, ...]) -> None:
    """Take the lock of one of these files, as soon as one is free."""
    while True:
        for path in among:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            held.callback(os.close, lock)
            return
        concurrency.check_stopped()
        time.sleep(_LOOK_S)


_booking: list[CoreBooking] = []


def begin(folder: Path, cores: int = 0) -> None:
    """Book processors in this process from now on, by locks in a folder. `cores`: their number; by default those that
    this process may use."""
    _booking[:] = [CoreBooking(folder, cores or len(os.sched_getaffinity(0)))]


@contextlib.contextmanager
def booked(share: CoreShare) -> Iterator[None]:
    """Hold processors while the block runs, where this process books them. A block waits for no other one within."""
    if not _booking:
        yield
        return
    with _booking[0].booked(share):
        yield
