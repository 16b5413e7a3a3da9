# SPDX-License-Identifier: Apache-2.0
"""The entry point of the program. Ctrl-C during loading ends it silently, and characters that the terminal lacks are
escaped. Imports that take time come after that."""

import io
import sys

from vmtailor.cli import quick_start
from vmtailor.cli.interrupt import leave_at_interrupt


def main(*, quick: bool = True) -> None:
    """Run the program. Exits with the codes of `ExitCode`. `quick`: a start that was kept is followed."""
    leave_at_interrupt()
    words = sys.argv[1:]
    if quick and len(words) == 2 and words[0] == "start":
        from vmtailor.cli import quick_machine

        if quick_machine.is_name(words[1]):
            quick_machine.start(words[1])
    start = quick_start.plain(words)
    if start is not None:
        if quick:
            quick_start.follow(start)
        quick_start.missed = start
    escape_what_lacks()
    from vmtailor.cli.main import main as program

    try:
        program()
    finally:
        leave_at_interrupt()


def escape_what_lacks() -> None:
    """Let the standard streams escape characters that they cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
