# SPDX-License-Identifier: Apache-2.0
"""A full disk: recognised by an error's number or by a program's words, and told in one sentence."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from vmtailor.base.errors import HostError

_NUMBERS = (errno.ENOSPC, errno.EDQUOT)
#: Words of programs, in lower case.
_WORDS = ("no space left", "disk quota")
CACHE_ELSEWHERE = "point XDG_CACHE_HOME to another disk"
#: For what may lie in the cache or among the temporary files.
ANYWHERE = "point TMPDIR or XDG_CACHE_HOME to another disk"


class DiskFull(HostError):
    """A disk of this host is full, or about to be."""


def no_space(where: str, *, elsewhere: str = CACHE_ELSEWHERE, details: str = "") -> DiskFull:
    """Return the error for a full disk. `where`: the sentence's end, such as `in /folder`; `elsewhere`: how to use
    another disk."""
    return DiskFull(f"no space is left {where}", hint=f"free some space, or {elsewhere}", details=details)


def is_full(error: OSError) -> bool:
    """Return whether an error tells of a full disk. Copying a whole tree tells so in its text alone."""
    if isinstance(error, shutil.Error):
        return any(f"[Errno {number}]" in str(error) for number in _NUMBERS)
    return error.errno in _NUMBERS


def says_full(text: str) -> bool:
    """Return whether a program's words tell of a full disk."""
    low = text.lower()
    return any(words in low for words in _WORDS)


@contextlib.contextmanager
def disk_full_is_a_host_error(where: Path) -> Iterator[None]:
    """Raise HostError instead of an OSError that tells of a full disk; `where` is the folder that it names."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise no_space(f"in {where}") from error
        raise
