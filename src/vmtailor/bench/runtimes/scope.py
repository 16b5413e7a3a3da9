# SPDX-License-Identifier: Apache-2.0
"""The scope: engines are driven where nothing that they start or make can outlive us (native/scope/scope.c). Processes,
mounts, devices and /run are the kernel's to take back. What it does not, a cgroup and a folder, is named by the scope,
held by a lock, and removed by whoever comes next: we, the process that watches us, or the next scope.

    python3 -m vmtailor.bench.runtimes.scope PLACE NAME    (that process)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import HostError
from vmtailor.base.natives import locate
from vmtailor.bench.runtimes.host_cgroups import PASSED_ON, PREFIX, HostCgroups
from vmtailor.bench.runtimes.private_places import take_away

#: Folder of scopes: engines keep their layers there, for which no memory file system is suitable.
PLACE = Path("/var/tmp")
_SWEPT_S = 60.0


@dataclass(frozen=True)
class Scope:
    """A scope that can be used."""

    name: str
    folder: Path

    def words(self) -> list[str]:
        """Return the words before a command that run it in the scope."""
        cgroups = HostCgroups()
        native = locate().folder / "scope"
        return [*cgroups.begun(self.name), str(native), str(self.folder), cgroups.within(self.name)]


def require_root() -> None:
    """Raise HostError without root, which engines, mounts and cgroups need. Nothing else of the program needs it."""
    if os.geteuid() != 0:
        raise HostError(
            "running engines needs root: mounts, cgroups and network namespaces of their own",
            hint="run `sudo vmtailor bench …`; compare, advise and report of results that are there need none",
        )


@contextlib.contextmanager
def held(place: Path = PLACE) -> Iterator[Scope]:
    """Hold a new scope. When the block is left, or when we are killed, nothing of it remains. Raises HostError."""
    require_root()
    sweep(place)
    name = PREFIX + secrets.token_hex(4)
    folder = place / name
    folder.mkdir(mode=0o700)
    try:
        with _watched(folder):
            HostCgroups().make(name, folder)
            yield Scope(name, folder)
    finally:
        sweep_one(place, name)
    if (left := leftovers(place, name)) != []:
        raise HostError("the benchmark left something behind", hint="remove it by hand", details="\n".join(left))


@contextlib.contextmanager
def _watched(folder: Path) -> Iterator[None]:
    """Hold a scope's folder locked. Another process watches us, and removes the scope when we are gone."""
    watcher: subprocess.Popen[bytes] | None = None
    try:
        with contextlib.ExitStack() as opened:  # the lock is let go first: the watcher sweeps what nobody holds
            theirs, ours = os.pipe()
            for end in (theirs, ours):
                opened.callback(os.close, end)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
            # In another session, so that a signal that kills us does not kill it. It waits for our end of the pipe.
            watcher = subprocess.Popen(
                [sys.executable, "-I", "-m", "vmtailor.bench.runtimes.scope", str(folder.parent), folder.name],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            yield
    finally:
        if watcher is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                watcher.wait(_SWEPT_S)
            if watcher.poll() is None:
                watcher.kill()
                watcher.wait()


def sweep(place: Path = PLACE) -> None:
    """Remove scopes whose processes are gone: those that nobody holds locked."""
    entries: list[os.DirEntry[str]] = []
    with contextlib.suppress(OSError):
        entries = list(os.scandir(place))
    for entry in entries:
        with contextlib.suppress(OSError):  # one that cannot be removed keeps none of the others
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                sweep_one(place, entry.name)


def sweep_one(place: Path, name: str) -> None:
    """Remove a scope, unless somebody holds it. Its processes are ended first, whatever their state."""
    folder = place / name
    lock = None
    try:
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            if os.fstat(lock).st_uid != os.geteuid():
                return
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = HostCgroups().remove(name, folder)
        take_away(folder)
        _empty(folder)
        if gone:  # while there is a cgroup, the next scope has to know of it
            shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        if lock is not None:
            os.close(lock)


def _empty(folder: Path) -> None:
    """Remove the folder's contents, except the note of the controllers passed on, which is withdrawn with the last
    cgroup."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != PASSED_ON:
                Path(entry.path).unlink(missing_ok=True)


def leftovers(place: Path, name: str) -> list[str]:
    """Return what remains of a scope: its folder, cgroups, and mounts in it."""
    found = [str(path) for path in (place / name, *HostCgroups().paths(name)) if path.exists()]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return found + [f"mounted: {row.split()[1]}" for row in mounts if f"/{name}" in row.split()[1]]


def main(words: list[str]) -> int:
    """Remove a scope once its holder is gone, however it ended: the holder keeps our standard input open. Returns the
    exit code."""
    place, name = Path(words[0]), words[1]
    if not name.startswith(PREFIX) or "/" in name:
        return 2
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    sweep_one(place, name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
