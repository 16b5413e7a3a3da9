# SPDX-License-Identifier: Apache-2.0
"""The whole evidence of errors that do not fit a screen, in the cache: for its owner alone, and the last few only."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import VmtailorError

FOLDER = "errors"
#: Texts kept at most, and characters kept of one: its end.
MOST, MOST_CHARACTERS = 20, 4_000_000


def keep(text: str) -> Path | None:
    """Write a text to a new file, and remove the oldest beyond MOST. None where nothing can be written: an error is
    shown all the same."""
    try:
        folder = Store().folder(FOLDER)
        path = folder / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(text[-MOST_CHARACTERS:].encode("utf-8", "backslashreplace"))
        _remove_old(folder)
    except (OSError, VmtailorError):
        return None
    return path


def _remove_old(folder: Path) -> None:
    for old in sorted(folder.glob("*.txt"))[:-MOST]:
        with contextlib.suppress(OSError):
            old.unlink()
