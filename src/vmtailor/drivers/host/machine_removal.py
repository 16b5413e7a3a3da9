# SPDX-License-Identifier: Apache-2.0
"""Remove folders of named machines, also those that a killed command has left half made or half removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from pathlib import Path

from vmtailor.base.files import file_lock

#: Seconds without a change after which a folder without a record is what a killed command left.
LEFT_S = 60.0


def remove(path: Path, runtime: Path) -> None:
    """Remove the folders of a machine without a record: its own, and that of its socket. Raises OSError."""
    try:
        shutil.rmtree(path)
    except OSError:  # a supervisor has tried to start it meanwhile, and left a file
        shutil.rmtree(path)
    shutil.rmtree(runtime, ignore_errors=True)


def clear(path: Path, runtime: Path, record: str, lock: str) -> None:
    """Remove a folder without a record, which a killed `run` or `rm` has left. `record` and `lock`: names of files in
    it. A folder that has just changed stays: it may still get its record."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        settled = stat.S_ISDIR(found.st_mode) and time.time() - found.st_ctime > LEFT_S
        if not settled or os.path.lexists(path / record):
            return
        with file_lock.tried(path / lock) as held:
            if held is None:
                return
        remove(path, runtime)
