# SPDX-License-Identifier: Apache-2.0
"""`run` the long way: a supervisor with kept orders (cli/quick_start.py) that found a file changed becomes this.
`--undo ID` before its arguments names a machine that was made for that start, and goes first."""

from __future__ import annotations

import sys

from vmtailor.cli import entry


def undo(identifier: str) -> None:
    """Remove a machine that was made, and could not be started as the kept one was."""
    from vmtailor.drivers.host.machine_folders import MachineFolders

    folders = MachineFolders()
    folders.remove(folders.find(identifier))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--undo"]:
        undo(sys.argv[2])
        del sys.argv[1:3]
    entry.main(quick=False)
