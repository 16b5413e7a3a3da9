# SPDX-License-Identifier: Apache-2.0
"""Where the program begins: Ctrl-C ends it without a word while it still loads, and what prints knows no error for a
character that the terminal lacks. Nothing that takes time is imported before that."""

import io
import os
import signal
import sys

INTERRUPTED = 130


def _leave(_number: int, _frame: object) -> None:
    # There is nothing to undo yet, or no longer; an exception would come out of whatever import is under way.
    os._exit(INTERRUPTED)


def leave_at_interrupt() -> None:
    """Until `work_begins`, Ctrl-C just ends the program; unless who started it wants it ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)


def work_begins() -> None:
    """From now on Ctrl-C is an exception, and whoever holds something lets go of it."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> None:
    """The program. Exits with the codes of `ExitCode`."""
    leave_at_interrupt()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    from vmtailor.cli.main import main as program

    try:
        program()
    finally:
        leave_at_interrupt()
