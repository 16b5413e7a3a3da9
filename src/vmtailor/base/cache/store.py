# SPDX-License-Identifier: Apache-2.0
"""The cache: folders named by the content they depend on, filled once, whole or not at all. Its owner alone reads it,
whatever the umask, and what another user owns is not used."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from vmtailor.base import concurrency, output
from vmtailor.base.cache import lock_holder, remote
from vmtailor.base.cache import users as store_use
from vmtailor.base.disk_full import disk_full_is_a_host_error
from vmtailor.base.errors import HostError
from vmtailor.base.files import durable, portable, temporary
from vmtailor.base.files.digests import sha256_of

#: Every bit that is somebody else's.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
#: Seconds between two looks whether somebody else is done.
_LOOK_S = 0.1
#: Seconds until the first line of a process that waits, and between two lines.
FIRST_SAY_S, SAY_S = 1.0, 60.0
#: Prefix of folders that are being filled.
FILLING = ".filling-held-"


def cache_root() -> Path:
    """Return `$XDG_CACHE_HOME/vmtailor`, or `~/.cache/vmtailor` where that variable is empty or no absolute path, which
    its specification tells programs to ignore. Raises HostError for a user without a home."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():
        return base / "vmtailor"
    try:
        return Path.home() / ".cache" / "vmtailor"
    except RuntimeError as error:
        raise HostError(
            f"the user {os.geteuid()} has no home folder, in which the cache would be",
            hint="set HOME, or XDG_CACHE_HOME to an absolute path",
        ) from error


def digest(*parts: str | bytes | Path) -> str:
    """Hex SHA-256 over strings, bytes and the contents of files, each with its length, so that no two lists collide."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            inner = bytes.fromhex(sha256_of(part))
        else:
            inner = hashlib.sha256(part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part).digest()
        total.update(inner)
    return total.hexdigest()


@contextlib.contextmanager
def locked(path: Path, waiting_for: str = "") -> Iterator[int]:
    """Hold an exclusive lock on a file beside the thing it guards; a second process waits. `waiting_for`: what it says
    that it waits for, after a second and then once a minute, with who has it and how far that is. A thread that waits
    for another of its own process says nothing: that one shows how far it is. Yields the lock's descriptor: a program
    that inherits it holds the lock as long as it lives."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as file:
        say_s = time.monotonic() + FIRST_SAY_S
        while not _taken(file):
            if waiting_for and time.monotonic() >= say_s:
                say_s = time.monotonic() + SAY_S
                holder = lock_holder.read(file.fileno())
                if holder is None or holder.pid != os.getpid():
                    who = f" ({holder.words(time.time())})" if holder is not None else ""
                    output.note(f"waiting for {waiting_for}, which another vmtailor has under way{who}")
            concurrency.check_stopped()
            time.sleep(_LOOK_S)
        with lock_holder.holding(file.fileno()):
            yield file.fileno()


def _taken(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def require_own(path: Path) -> None:
    """Raise HostError when another user owns the path, or the target of its link, since that owner could change it. A
    path that does not exist has no owner."""
    for look in (path.lstat, path.stat):
        try:
            owner = look().st_uid
        except FileNotFoundError:
            return
        except OSError as error:
            raise HostError(
                f"the cache {path} cannot be used: {os.strerror(error.errno or 0).lower()}",
                hint="set XDG_CACHE_HOME to a folder of your own",
            ) from error
        if owner != os.geteuid():
            raise HostError(
                f"{path} in the cache belongs to {_name_of(owner)}, and is not used",
                hint="remove it, or set XDG_CACHE_HOME to a folder of your own",
            )


def _name_of(user: int) -> str:
    with contextlib.suppress(KeyError):
        return f"the user {pwd.getpwuid(user).pw_name}"
    return f"the user {user}"


def close_to_others(path: Path) -> None:
    """Take from everybody else what they may with a file, or with a folder and all that is in it: files of 0600 and
    folders of 0700 are left, 0700 where the owner may execute. The folder itself is last: it says that all is done."""
    if path.is_symlink():
        return
    if path.is_dir():
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                close_to_others(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                _close(Path(entry.path), stat.S_IRUSR | stat.S_IWUSR)
        _close(path, stat.S_IRWXU)
    elif path.is_file():
        _close(path, stat.S_IRUSR | stat.S_IWUSR)


def _close(path: Path, least: int) -> None:
    mode = stat.S_IMODE(path.lstat().st_mode)
    wanted = (mode & stat.S_IRWXU) | least
    if mode != wanted:
        path.chmod(wanted)


def writing(parts: Mapping[str, bytes]) -> Callable[[Path], None]:
    """Return a function that fills a folder with files, by their names."""

    def fill(folder: Path) -> None:
        for name, data in parts.items():
            (folder / name).write_bytes(data)

    return fill


class Store:
    """Folders under `root/KIND/KEY`. `get` fills a missing one through a temporary folder and a rename."""

    def __init__(self, root: Path | None = None, *, remote: bool = True) -> None:
        """`remote`: look in the remote cache, too, where there is one."""
        self._root = root or cache_root()
        self._remote = remote
        self._checked = False

    @property
    def root(self) -> Path:
        """Return the cache's own folder, made where it does not exist. Raises HostError when it is another user's."""
        if not self._checked:
            require_own(self._root)
            with contextlib.suppress(OSError):  # where nothing can be written, what is there can still be read
                self._root.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
                self._root.chmod(stat.S_IRWXU)
            store_use.announce(self._root)
            portable.announce(self._root)
            self._checked = True
        return self._root

    def folder(self, *names: str) -> Path:
        """Return a folder of the cache, made where it is not there. Raises HostError when it is another user's."""
        path = self.root
        for name in names:
            path /= name
            require_own(path)
            path.mkdir(mode=stat.S_IRWXU, exist_ok=True)
            if stat.S_IMODE(path.stat().st_mode) & _OTHERS:
                path.chmod(stat.S_IRWXU)
        return path

    def path(self, kind: str, key: str) -> Path:
        return self.root / kind / key[:40]

    def used(self, *paths: str | Path) -> None:
        """Mark files of the cache as used now: those found without asking for their folder by name."""
        for path in map(Path, paths):
            if path.is_relative_to(self._root) and len(inside := path.relative_to(self._root).parts) > 1:
                store_use.used(self._root.joinpath(*inside[:2]))

    def has(self, kind: str, key: str) -> bool:
        path = self.path(kind, key)
        for one in (path.parent, path):
            require_own(one)
        if not path.is_dir():
            return False
        if stat.S_IMODE(path.stat().st_mode) & _OTHERS:  # made by an older version
            with contextlib.suppress(OSError):
                close_to_others(path)
        store_use.used(path)
        return True

    def bring(self, kind: str, key: str) -> bool:
        """Return whether the folder for `key` is here, or now is, since the remote cache has it. Nothing is made."""
        if self.has(kind, key) or not self._remote or remote.current() is None:
            return self.has(kind, key)
        try:
            self.get(kind, key, _nowhere)
        except _Nowhere:
            return False
        return True

    def get(self, kind: str, key: str, fill: Callable[[Path], None]) -> Path:
        """Return the folder for `key`: the one here, else the remote cache's, else `fill(folder)` makes its contents,
        which are then uploaded. Safe across processes. Raises HostError when it is another user's."""
        final = self.path(kind, key)
        if self.has(kind, key):
            return final
        elsewhere = remote.current() if self._remote else None
        made = False
        with (
            disk_full_is_a_host_error(self.root),
            locked(self.folder("locks") / f"{kind}-{key[:40]}", f"the same {kind.replace('-', ' ')}"),
        ):
            if self.has(kind, key):
                return final
            with temporary.held_folder(self.folder(kind), FILLING) as filling:
                if elsewhere is None or not elsewhere.fetch(kind, key, filling):
                    fill(filling)
                    made = True
                close_to_others(filling)
                durable.place(filling, final)
        if made and elsewhere is not None:
            elsewhere.publish(kind, key, final)
        return final


class _Nowhere(Exception):
    """The result is in no cache."""


def _nowhere(folder: Path) -> None:
    raise _Nowhere
