# SPDX-License-Identifier: Apache-2.0
"""Folders of the host in which an engine writes wherever its own data are: in the scope, it sees a copy. A folder that
the host lacks is made, empty, and removed by whoever removes the scope."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from vmtailor.base.process import run

#: The file in the scope's folder that lists the folders made on the host, one a line, in their order.
MADE = "made-folders"
_MOUNT_S = 20.0


def hide(places: Sequence[Path], copies: Path, scope: Path) -> None:
    """Mount copies over these folders, in our own mounts. `copies`: a folder for them; `scope`: that of the scope.
    Raises CommandFailed, OSError."""
    for number, place in enumerate(places):
        copy = copies / str(number)
        if place.is_dir():
            shutil.copytree(place, copy, symlinks=True)
        else:
            copy.mkdir(parents=True)
            _make(place, scope / MADE)
        run(["mount", "--bind", str(copy), str(place)], timeout_s=_MOUNT_S)


def _make(place: Path, note: Path) -> None:
    lacking = [folder for folder in (place, *place.parents) if not folder.exists()]
    for folder in reversed(lacking):
        with note.open("a") as file:  # before the deed: who removes the scope knows of it
            file.write(f"{folder}\n")
        folder.mkdir(mode=0o755)


def take_away(scope: Path) -> None:
    """Remove the folders that were made for a scope, as far as they are empty."""
    with contextlib.suppress(OSError):
        for line in reversed((scope / MADE).read_text().splitlines()):
            with contextlib.suppress(OSError):
                Path(line).rmdir()
