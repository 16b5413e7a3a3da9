# SPDX-License-Identifier: Apache-2.0
"""The user's folders for what is kept and for what lasts as long as a login: XDG_STATE_HOME and XDG_RUNTIME_DIR."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from vmtailor.base.errors import HostError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def state_home() -> Path:
    """Return `$XDG_STATE_HOME/vmtailor`, or `~/.local/state/vmtailor` where that variable is no absolute path. Nothing
    is made. Raises HostError for a user without a home."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if base.is_absolute():
        return base / "vmtailor"
    try:
        return Path.home() / ".local" / "state" / "vmtailor"
    except RuntimeError as error:
        raise HostError(
            f"the user {os.geteuid()} has no home folder, in which machines would be kept",
            hint="set HOME, or XDG_STATE_HOME to an absolute path",
        ) from error


def runtime_home() -> Path:
    """Return `$XDG_RUNTIME_DIR/vmtailor`; where that variable is no absolute path, the same below `/run/user/UID` if
    that is ours, else a folder of ours below the one for temporary files. Nothing is made."""
    base = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if base.is_absolute():
        return base / "vmtailor"
    usual = Path(f"/run/user/{os.geteuid()}")
    try:
        if usual.lstat().st_uid == os.geteuid():
            return usual / "vmtailor"
    except OSError:
        pass
    return Path(tempfile.gettempdir()) / f"vmtailor-{os.geteuid()}"


def private(folder: Path) -> Path:
    """Make a folder for us alone where there is none, and return it. Raises HostError for one that is a link or
    somebody else's, and where it cannot be made."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            why = "it is somebody else's" if stat.S_ISDIR(found.st_mode) else "it is not a folder"
            raise HostError(f"{folder} cannot hold machines: {why}", hint="set XDG_STATE_HOME and XDG_RUNTIME_DIR")
        if found.st_mode & _OTHERS:
            folder.chmod(0o700)
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise HostError(f"{folder} cannot hold machines: {words}", hint="set XDG_STATE_HOME to another disk") from error
    return folder
