# SPDX-License-Identifier: Apache-2.0
"""The SHA-256 of files that are asked for at every start, remembered by what changes when a file does.

Device, inode, size, time of modification, and the time of the inode's last change, which no program can set back. A
file that was changed a moment ago is not remembered: a second change within one tick of that clock would not be seen.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from io import BufferedReader
from pathlib import Path

from vmtailor.base.records import write_atomic
from vmtailor.base.store import Store, digest

#: Seconds for which a changed file is too new to be remembered.
SETTLED_S = 2.0
_SHA256 = re.compile(rb"[0-9a-f]{64}")


def sha256_of(file: BufferedReader, store: Store) -> str:
    """The SHA-256, in hex, of an open file's content. Reading it all costs a second for each gigabyte or two."""
    before = os.fstat(file.fileno())
    memo = _memo(before, store)
    try:
        known = memo.read_bytes()
        if _SHA256.fullmatch(known):
            return known.decode()
    except OSError:
        pass
    file.seek(0)
    found = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    if _memo(os.fstat(file.fileno()), store) == memo and time.time() - before.st_ctime > SETTLED_S:
        write_atomic(memo, found.encode())
    return found


def _memo(status: os.stat_result, store: Store) -> Path:
    what = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return store.root / "content" / digest("1", *(str(part) for part in what))[:40]
