# SPDX-License-Identifier: Apache-2.0
"""The folder for temporary files that the user chose."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from vmtailor.base.errors import HostError

_HINT = "free some, or set TMPDIR elsewhere"


def require_usable() -> None:
    """What TMPDIR names must take a file. Python would silently go elsewhere; the programs that we start would not, and
    would fail one by one, each in its own words. Raises HostError."""
    folder = os.environ.get("TMPDIR")
    if not folder:
        return
    try:
        with tempfile.TemporaryFile(dir=Path(folder).absolute()) as file:
            file.write(b"room?")
            file.flush()
    except OSError as error:
        raise HostError(
            f"the folder for temporary files, {folder}, cannot be used: {os.strerror(error.errno or 0).lower()}"
            f"{_free(folder)}",
            hint=_HINT,
        ) from error


@contextlib.contextmanager
def folder(prefix: str) -> Iterator[Path]:
    """A folder that is gone afterwards. Raises HostError when there is no room for it, or for what comes into it."""
    try:
        where = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise HostError(f"no folder for temporary files can be used: {error.strerror}", hint=_HINT) from error
    try:
        with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
            yield Path(name)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise HostError(
            f"no space is left in {where}, the folder for temporary files{_free(where)}", hint=_HINT
        ) from error


def _free(folder: str) -> str:
    with contextlib.suppress(OSError):
        return f" ({shutil.disk_usage(folder).free // 1024} KiB are free there)"
    return ""
