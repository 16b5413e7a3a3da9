# SPDX-License-Identifier: Apache-2.0
"""The place of a bundle. An interrupted run leaves the old bundle or the new one, never half of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base.disk_full import disk_full_is_a_host_error, no_space
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.files.holes import copy_with_holes, has_room
from vmtailor.base.progress import step
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.model.bundle import (
    PAGE,
    RECORD,
    RUN,
    STATES,
    Bundle,
)
from vmtailor.model.fit_run import FitRun
from vmtailor.stages import report


def require_writable(out: Path) -> None:
    """Fail before the long work when the bundle could not be written. Something else is at its place, or a system's
    bundle that keeps the system's state, which no fit makes again."""
    if out.exists() and not (out.is_dir() and ((out / RECORD).is_file() or not any(out.iterdir()))):
        raise UserInputError(f"{out} exists and is not a bundle", hint="name another folder with -o, or remove it")
    kept = next((name for name in STATES.values() if os.path.lexists(out / name)), "")
    if kept:
        raise UserInputError(
            f"{out} keeps what its system wrote ({kept}), and a new fit would throw it away",
            hint="name another folder with -o; or move that file away, or remove it",
        )
    parent = out.absolute().parent
    if not parent.is_dir():
        raise UserInputError(f"the folder {parent} does not exist", hint="make it, or name another with -o")


@dataclass(frozen=True)
class UsersDisk:
    """The root of a bundle that is a disk: the user's, of which no second copy is kept, or ours with other files on it.
    `name`: its name in the bundle. `sha256`: digest of the file that was fitted."""

    name: str
    file: Path
    sha256: str


def _require_same(disk: UsersDisk, sealed: Bundle) -> None:
    """Require that the disk is the one that was fitted: a running system may have written to it meanwhile."""
    (copied,) = (one for one in sealed.files if one.name == disk.name)
    if copied.sha256 != disk.sha256:
        raise UserInputError(
            f"{disk.file} changed while it was fitted: the proof does not apply to its content now",
            hint="shut down what writes to it (a running machine, a download), and fit it again",
        )


def require_room(out: Path, disk: Path) -> None:
    """Fail before the long work when the bundle's copy of a disk would not fit. Raises HostError."""
    parent = out.absolute().parent
    with disk_full_is_a_host_error(parent):
        if not has_room(disk, parent):
            raise no_space(f"in {parent} for the bundle's copy of {disk}", elsewhere="name a folder elsewhere with -o")


def place(made: Path, out: Path, command: str, disk: UsersDisk | None = None) -> FitRun:
    """Copy a finished bundle to the requested place. Its record names this place and this command.

    An older bundle there is replaced at once, or, if something goes wrong, not at all. Raises UserInputError when the
    disk has changed since it was fitted."""
    out = out.absolute()
    with disk_full_is_a_host_error(out.parent):
        folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
        try:
            # Contents alone: in the cache nobody but its owner may read them.
            shutil.copytree(made, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
            if disk is not None:
                with step("copy the disk"):
                    copy_with_holes(disk.file, folder / disk.name)
            for inner in folder.rglob("*"):
                if inner.is_dir():
                    inner.chmod(0o755)
            run = replace(run_in(folder), bundle=str(out), command=command)
            records.save(run, folder / RUN)
            report.write_page(run, folder / PAGE)
            _for_the_owner_alone_to_change(folder)
            record = replace(records.load(Bundle, folder / RECORD), name=out.name)
            sealed = seal(folder, record)
            if disk is not None:
                _require_same(disk, sealed)
            require_writable(out)  # again: it took long to get here
            if out.exists():
                _exchange(folder, out)
            else:
                folder.rename(out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return run


def run_in(folder: Path) -> FitRun:
    """Read the record of a finished fit in the cache."""
    return records.load(FitRun, folder / RUN)


def _exchange(new: Path, out: Path) -> None:
    """Put a folder in the place of another one, which is removed; where that fails or is interrupted, it is back."""
    retired = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-old-"))
    old = retired / "bundle"
    try:
        out.rename(old)
        new.rename(out)
    finally:
        if not os.path.lexists(out) and old.exists():
            old.rename(out)
        shutil.rmtree(retired, ignore_errors=True)


def _for_the_owner_alone_to_change(folder: Path) -> None:
    """Whatever the umask is: others may read a bundle, but files that others can write are copied before each use."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
