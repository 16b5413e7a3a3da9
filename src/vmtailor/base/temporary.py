# SPDX-License-Identifier: Apache-2.0
"""The folder for temporary files that the user chose."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from vmtailor.base.errors import HostError


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
            f"the folder for temporary files, {folder}, cannot be used: {os.strerror(error.errno or 0).lower()}",
            hint="free some, or set TMPDIR elsewhere",
        ) from error
