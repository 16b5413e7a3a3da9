# SPDX-License-Identifier: Apache-2.0
"""Two pieces of work at a time: one in this thread, one beside it. When the one here fails or is interrupted, the other
is stopped."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Generic, TypeVar

from vmtailor.base import stopping
from vmtailor.base.stopping import Stop, stopped_by

First = TypeVar("First")
Second = TypeVar("Second")


class Beside(Generic[First]):
    """Work under way in a thread of its own."""

    def __init__(self, work: Callable[[], First]) -> None:
        self._work = work
        self._stop = Stop(stopping.current())
        self._result: list[First] = []
        self._error: BaseException | None = None
        context = copy_context()
        self._thread = threading.Thread(target=lambda: context.run(self._run), daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with stopped_by(self._stop):
                self._result.append(self._work())
        except BaseException as error:
            self._error = error

    def wait(self) -> First:
        """What came of it. Raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result[0]

    def stop(self) -> None:
        """End it, whatever it does; returns when it has ended."""
        self._stop.stop()
        self._thread.join()


@contextlib.contextmanager
def beside(work: Callable[[], First]) -> Iterator[Beside[First]]:
    """Begin work in another thread. What has not ended when the block is left is stopped: wait for it within."""
    begun = Beside(work)
    try:
        yield begun
    finally:
        begun.stop()


def both(first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
    """Do both at the same time, the second in this thread. Raises what the second raises, else what the first does."""
    with beside(first) as begun:
        result = second()
        return begun.wait(), result
