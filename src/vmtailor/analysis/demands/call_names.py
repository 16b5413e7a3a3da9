# SPDX-License-Identifier: Apache-2.0
"""System calls under the names that programs of 32 bits have for them: what is known of a call is known of these."""

from __future__ import annotations

_WIDE = {
    "chown32": "chown", "lchown32": "lchown", "fchown32": "fchown", "fcntl64": "fcntl", "mmap2": "mmap",
    "stat64": "stat", "lstat64": "lstat", "fstat64": "fstat", "fstatat64": "newfstatat", "statfs64": "statfs",
    "fstatfs64": "fstatfs", "truncate64": "truncate", "ftruncate64": "ftruncate",
    "clock_gettime64": "clock_gettime", "clock_settime64": "clock_settime", "clock_getres_time64": "clock_getres",
    "clock_nanosleep_time64": "clock_nanosleep", "utimensat_time64": "utimensat",
}  # fmt: skip


def wide(name: str) -> str:
    """The name of the same call for programs of 64 bits; its own where there is no other."""
    return _WIDE.get(name, name)
