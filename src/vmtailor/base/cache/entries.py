# SPDX-License-Identifier: Apache-2.0
"""List the cache's entries and prune them; an entry that a running process may use always stays."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base.cache import users as store_use
from vmtailor.base.cache.store import FILLING, Store
from vmtailor.base.files import temporary

#: Folders that are no results: locks, and what a process makes while it runs, which the next one sweeps.
_OWN = frozenset({store_use.USERS, "locks", "scratch"})
#: Kinds that are one entry as a whole, and the beginning of those of which there is one for each processor.
WHOLE, WHOLE_EACH = frozenset({"ccache", "lab", "package-lists"}), "lab-"
#: Prefix of folders that are being removed.
_REMOVING = ".removing-held-"
#: Kind of what killed processes left half made: no result, and the first to go.
UNFINISHED = "unfinished"


@dataclass(frozen=True)
class CacheEntry:
    """One result. `used_s`: when it was last used, in seconds of the epoch. `size_bytes`: what it takes on the disk."""

    kind: str
    name: str
    path: Path
    size_bytes: int
    used_s: float


@dataclass(frozen=True)
class PruneLimits:
    """Limits of what may stay in the cache; None is no limit."""

    age_s: float | None = None
    size_bytes: int | None = None


def is_whole(kind: str) -> bool:
    """Return whether a kind is one entry as a whole."""
    return kind in WHOLE or kind.startswith(WHOLE_EACH)


def entries(store: Store) -> tuple[CacheEntry, ...]:
    """Everything there is, by kind and name."""
    found: list[CacheEntry] = []
    unfinished: list[CacheEntry] = []
    with contextlib.suppress(OSError):
        for kind in sorted(os.scandir(store.root), key=lambda entry: entry.name):
            if kind.is_dir(follow_symlinks=False) and not is_whole(kind.name):
                for prefix in (FILLING, _REMOVING, temporary.PREFIX):
                    unfinished += [
                        replace(_entry(UNFINISHED, path), name=f"{kind.name}/{path.name}")
                        for path in temporary.left_behind(Path(kind.path), prefix)
                    ]
            if kind.name in _OWN or not kind.is_dir(follow_symlinks=False):
                continue
            if is_whole(kind.name):
                found.append(_entry(kind.name, Path(kind.path)))
            else:
                found += _of_kind(kind.name, Path(kind.path))
    return (*found, *unfinished)


def _of_kind(kind: str, folder: Path) -> Iterable[CacheEntry]:
    names = sorted(path.name for path in folder.iterdir())
    return [_entry(kind, folder / name) for name in names if not name.startswith(FILLING)]


def _entry(kind: str, path: Path) -> CacheEntry:
    size, used = _size(path)
    name = kind if is_whole(kind) else path.name
    return CacheEntry(
        kind=kind, name=name, path=path, size_bytes=size, used_s=max(used) if is_whole(kind) else path.lstat().st_mtime
    )


def _size(path: Path) -> tuple[int, list[float]]:
    """Return bytes on the disk, and when the files and folders on the first level were changed."""
    status = path.lstat()
    total, times = status.st_blocks * 512, [status.st_mtime]
    waiting = [path] if stat.S_ISDIR(status.st_mode) else []
    while waiting:
        folder = waiting.pop()
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                status = entry.stat(follow_symlinks=False)
                total += status.st_blocks * 512
                if folder == path:
                    times.append(status.st_mtime)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
    return total, times


def surplus(there: Sequence[CacheEntry], limits: PruneLimits, now_s: float) -> tuple[CacheEntry, ...]:
    """Return the entries to remove so that the limits hold: the unfinished, those too old, then those used longest
    ago."""
    oldest_first = sorted(there, key=lambda entry: (entry.kind != UNFINISHED, entry.used_s, entry.kind, entry.name))
    total = sum(entry.size_bytes for entry in there)
    gone: list[CacheEntry] = []
    for entry in oldest_first:
        old = entry.kind == UNFINISHED or (limits.age_s is not None and entry.used_s < now_s - limits.age_s)
        large = limits.size_bytes is not None and total > limits.size_bytes
        if old or large:
            gone.append(entry)
            total -= entry.size_bytes
    return tuple(gone)


def busy_since(store: Store) -> tuple[float, tuple[int, ...]]:
    """Return since when other processes use the cache (infinity: none does), and their process numbers. Entries used
    since then stay."""
    running = store_use.others(store.root)
    return min((began for _, began in running), default=float("inf")), tuple(number for number, _ in running)


def remove(store: Store, chosen: Sequence[CacheEntry]) -> tuple[CacheEntry, ...]:
    """Remove entries that no other process may be using; returns those that are gone. Each is taken away whole, while
    no process begins to use the cache: one that comes finds it there, or does not."""
    gone = []
    with temporary.held_folder(store.folder("scratch"), _REMOVING) as grave, store_use.nobody_comes(store.root):
        since, _ = busy_since(store)
        for number, entry in enumerate(chosen):
            with contextlib.suppress(OSError):
                if _entry(entry.kind, entry.path).used_s < since:
                    entry.path.rename(grave / str(number))
                    gone.append(entry)
    return tuple(gone)


def now_s() -> float:
    return time.time()
