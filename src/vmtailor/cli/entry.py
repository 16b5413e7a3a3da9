# SPDX-License-Identifier: Apache-2.0
"""Where the program begins: Ctrl-C ends it without a word while it still loads, and what prints knows no error for a
character that the terminal lacks. Nothing that takes time is imported before that."""

import io
import sys

from vmtailor.cli.interrupt import leave_at_interrupt


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
