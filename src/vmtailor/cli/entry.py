# SPDX-License-Identifier: Apache-2.0
"""The entry point of the program. Ctrl-C during loading ends it silently, and characters that the terminal lacks are
escaped. Imports that take time come after that."""

import io
import sys

from vmtailor.cli.interrupt import leave_at_interrupt


def main() -> None:
    """Run the program. Exits with the codes of `ExitCode`."""
    leave_at_interrupt()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    from vmtailor.cli.main import main as program

    try:
        program()
    finally:
        leave_at_interrupt()
