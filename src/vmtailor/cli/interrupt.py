# SPDX-License-Identifier: Apache-2.0
"""Handling of Ctrl-C: before and after the program's work it ends it silently, during the work it is an exception. This
module is imported first, so it imports next to nothing: the `signal` of the library brings `enum`, with all that this
needs."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

INTERRUPTED = 130


def _leave(_number: int, _frame: object) -> None:
    # There is nothing to undo yet, or no longer; an exception would come out of whatever import is under way.
    os._exit(INTERRUPTED)


def leave_at_interrupt() -> None:
    """Make Ctrl-C end the program silently until `work_begins`, unless the caller of the program ignores it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)


def work_begins() -> None:
    """Make Ctrl-C an exception from now on, so that everything held is released."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
