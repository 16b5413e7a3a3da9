# SPDX-License-Identifier: Apache-2.0
"""An outlet for bytes that never blocks its caller: a bounded queue, and a thread that writes.

Only a thread can write to a pipe or a terminal without waiting and without harm. O_NONBLOCK would also apply to others
that share the other end, the caller's shell among them."""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from collections.abc import Callable

#: Queued bytes from which on a queue is full: whoever fills it should wait.
FULL_BYTES = 256 << 10
#: The most that is ever queued: what comes then is dropped.
MOST_BYTES = 64 << 20
_PART = 65536


class Outlet:
    """Queues bytes for a descriptor. `wake` is called, from another thread, when there is room again, when all is
    written, and when writing has failed.

    `failed`: the errno that ended it, or 0; what comes later goes nowhere. `dropped`: bytes that found no room."""

    def __init__(self, descriptor: int, wake: Callable[[], None] = lambda: None) -> None:
        self.descriptor = descriptor
        self.failed = 0
        self.dropped = 0
        self._wake = wake
        self._queue = bytearray()
        self._under_way = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def queued(self) -> int:
        """Return bytes that were put and are not written."""
        with self._changed:
            return len(self._queue) + self._under_way

    @property
    def full(self) -> bool:
        return self.queued >= FULL_BYTES

    def put(self, data: bytes) -> None:
        """Queue bytes; what has no room is dropped, and counted."""
        with self._changed:
            if self.failed or self._closed:
                return
            room = max(0, MOST_BYTES - len(self._queue) - self._under_way)
            self._queue += data[:room]
            self.dropped += max(0, len(data) - room)
            if self._thread is None:  # a daemon: a write that nobody lets end does not keep the program
                self._thread = threading.Thread(target=self._run, name=f"output {self.descriptor}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Wait until all is written, at most so long. False when something is left."""
        end = time.monotonic() + timeout_s
        with self._changed:
            while (self._queue or self._under_way) and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            return not (self._queue or self._under_way)

    def close(self) -> int:
        """Close the queue, and drop unwritten bytes. Return the number of bytes that did not arrive, with those dropped
        before. Bytes under way count, since it is unknown how many of them have arrived."""
        with self._changed:
            lost = self.dropped + len(self._queue) + self._under_way
            self._queue.clear()
            self._closed = True
            self._changed.notify_all()
        return lost

    def _run(self) -> None:
        while data := self._next():
            try:
                error, written = 0, os.write(self.descriptor, data)
            except BlockingIOError:  # whoever shares the other end made it so
                select.select([], [self.descriptor], [], 1.0)
                error, written = 0, 0
            except OSError as problem:
                error, written = problem.errno or errno.EIO, 0
            self._wrote(data, written, error)

    def _next(self) -> bytes:
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            data = bytes(self._queue[:_PART])
            del self._queue[: len(data)]
            self._under_way = len(data)
            return data

    def _wrote(self, data: bytes, written: int, error: int) -> None:
        with self._changed:
            was_full = len(self._queue) + self._under_way >= FULL_BYTES
            self._under_way = 0
            if error:
                self.failed = error
                self._queue.clear()
            elif not self._closed:
                self._queue[:0] = data[written:]
            left = len(self._queue)
            self._changed.notify_all()
        if error or not left or (was_full and left < FULL_BYTES):
            self._wake()
