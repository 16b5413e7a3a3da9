# SPDX-License-Identifier: Apache-2.0
"""The SHA-256 of files that are asked for at every start, remembered by what changes when a file does.

Device, inode, size, time of modification, and the time of the inode's last change, which no program can set back. A
file that was changed a moment ago is not remembered: a second change within one tick of that clock would not be seen.
"""

from __future__ import annotations

import contextlib
import os
import time
from io import BufferedReader

from vmtailor.base.cache.store import Store, digest, require_own
from vmtailor.base.errors import HostError
from vmtailor.base.files.digests import SHA256, sha256_of_rest
from vmtailor.base.files.regular_files import write_atomic

_KIND = "content"
#: Seconds for which a changed file is too new to be remembered.
SETTLED_S = 2.0


def sha256_of(file: BufferedReader, store: Store) -> str:
    """Return the SHA-256, in hex, of an open file's content. Reading it all costs a second for each gigabyte or two. A
    cache that cannot be used remembers nothing."""
    before = os.fstat(file.fileno())
    name = _name(before)
    with contextlib.suppress(OSError, HostError):
        memo = store.root / _KIND / name
        for one in (memo.parent, memo):
            require_own(one)
        known = memo.read_bytes().decode("ascii", "replace")
        if SHA256.fullmatch(known):
            return known
    file.seek(0)
    found = sha256_of_rest(file)
    file.seek(0)
    if _name(os.fstat(file.fileno())) == name and time.time() - before.st_ctime > SETTLED_S:
        with contextlib.suppress(OSError, HostError):
            write_atomic(store.folder(_KIND) / name, found.encode(), private=True)
    return found


def _name(status: os.stat_result) -> str:
    what = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return digest("1", *(str(part) for part in what))[:40]
