# SPDX-License-Identifier: Apache-2.0
"""The paths that a system call names."""

from __future__ import annotations

import posixpath

from vmtailor.analysis.demands.strace_log import descriptor_path, unquote
from vmtailor.model.syscalls import SyscallEvent

_WIDE = {
    "chown32": "chown", "lchown32": "lchown", "fchown32": "fchown", "fcntl64": "fcntl", "mmap2": "mmap",
    "stat64": "stat", "lstat64": "lstat", "fstat64": "fstat", "fstatat64": "newfstatat", "statfs64": "statfs",
    "fstatfs64": "fstatfs", "truncate64": "truncate", "ftruncate64": "ftruncate",
    "clock_gettime64": "clock_gettime", "clock_settime64": "clock_settime", "clock_getres_time64": "clock_getres",
    "clock_nanosleep_time64": "clock_nanosleep", "utimensat_time64": "utimensat",
}  # fmt: skip


def wide(name: str) -> str:
    """Return the name of a call as programs of 64 bits have it; its own where there is no other."""
    return _WIDE.get(name, name)


#: Calls whose first argument is a path, with no folder beside it.
BY_PATH_ALONE = (
    "open", "creat", "stat", "lstat", "access", "readlink", "chdir", "chroot", "execve", "mkdir", "rmdir",
    "unlink", "chmod", "chown", "lchown", "truncate", "statfs", "getxattr", "lgetxattr", "setxattr", "lsetxattr",
    "listxattr", "llistxattr", "mknod", "utime", "utimes", "swapon", "acct", "umount2",
)  # fmt: skip
_BELOW_FOLDER = (
    "openat", "openat2", "newfstatat", "statx", "faccessat", "faccessat2", "readlinkat", "execveat", "mkdirat",
    "unlinkat", "fchmodat", "fchownat", "mknodat", "utimensat", "futimesat", "name_to_handle_at", "open_tree",
)  # fmt: skip

#: Call → positions of (folder descriptor or None, path).
_PATHS: dict[str, tuple[tuple[int | None, int], ...]] = {
    **dict.fromkeys(BY_PATH_ALONE, ((None, 0),)),
    **dict.fromkeys(_BELOW_FOLDER, ((0, 1),)),
    **dict.fromkeys(("rename", "link", "mount", "pivot_root"), ((None, 0), (None, 1))),
    **dict.fromkeys(("renameat", "renameat2", "linkat"), ((0, 1), (2, 3))),
    "inotify_add_watch": ((None, 1),),
    "fanotify_mark": ((3, 4),),
    "symlink": ((None, 1),),
    "symlinkat": ((1, 2),),
}


def paths(event: SyscallEvent) -> tuple[str, ...]:
    """Return the paths that a call names, absolute where the log tells the folder; a relative one without it stays
    relative.

    An empty path stands for the descriptor itself (AT_EMPTY_PATH)."""
    found = []
    for folder, position in _PATHS.get(wide(event.name), ()):
        if position >= len(event.args) or not event.args[position].startswith('"'):
            continue
        path = unquote(event.args[position])
        base = descriptor_path(event.args[folder]) if folder is not None else ""
        if base.startswith("/"):
            path = posixpath.join(base, path)
        if path:
            found.append(posixpath.normpath(path))
    return tuple(found)
