# SPDX-License-Identifier: Apache-2.0
"""SHA-256 of files, read in pieces whatever their size. Holes are not read: most of a disk image is one."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from io import BufferedReader
from itertools import chain
from pathlib import Path

from vmtailor.base.files.holes import stretches

#: A digest, as all of them are written here.
SHA256 = re.compile(r"[0-9a-f]{64}")
_PIECE = 1 << 20
_ZEROS = memoryview(bytes(_PIECE))
#: Unit of st_blocks, whatever the file system's blocks are (stat(2)).
_BLOCK = 512


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content: 64 hexadecimal digits. Raises OSError."""
    with path.open("rb") as file:
        return sha256_of_rest(file)


def sha256_of_rest(file: BufferedReader) -> str:
    """Return the SHA-256 of what is left of an open file. Raises OSError."""
    status = os.fstat(file.fileno())
    if status.st_blocks * _BLOCK >= status.st_size or not file.seekable():
        return hashlib.file_digest(file, "sha256").hexdigest()
    found, start, raw = hashlib.sha256(), file.tell(), os.lseek(file.fileno(), 0, os.SEEK_CUR)
    try:
        end = start
        for piece in _pieces(file.fileno(), start, status.st_size):
            found.update(piece)
            end += len(piece)
    finally:  # where the reader believes it to be
        os.lseek(file.fileno(), raw, os.SEEK_SET)
    file.seek(end)
    return found.hexdigest()


def _pieces(descriptor: int, at: int, size: int) -> Iterator[memoryview | bytes]:
    """Yield a file with holes, in pieces; what it has got beyond `size` meanwhile, too."""
    for begin, end in chain(stretches(descriptor, at, size), [(size, size)]):
        while at < begin:
            yield (zeros := _ZEROS[: begin - at])
            at += len(zeros)
        while at < end:
            piece = os.pread(descriptor, min(_PIECE, end - at), at)
            if not piece:  # it was cut short
                return
            yield piece
            at += len(piece)
    while piece := os.pread(descriptor, _PIECE, at):
        yield piece
        at += len(piece)
