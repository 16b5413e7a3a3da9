# SPDX-License-Identifier: Apache-2.0
"""Files with holes, as disk images are: where their content is, and copies that take no more room than that."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_PART = 64 << 20
#: Linux: make a file share all of another's content (include/uapi/linux/fs.h).
_FICLONE = 0x40049409


def has_room(source: Path, folder: Path) -> bool:
    """Return whether a copy of `source` fits into `folder`: by its content, or because it would be references alone."""
    if shutil.disk_usage(folder).free >= source.stat().st_blocks * 512:
        return True
    with source.open("rb") as given, tempfile.TemporaryFile(dir=folder) as made:
        try:
            fcntl.ioctl(made, _FICLONE, given.fileno())
        except OSError:
            return False
        return True


def copy_with_holes(source: Path, target: Path) -> None:
    """Copy a file's content and its holes; where the file system can, nothing but references is written. `target` must
    not be there. Raises OSError, for a full disk among others, and leaves nothing behind then."""
    try:
        with source.open("rb") as given, target.open("xb") as made:
            size = os.fstat(given.fileno()).st_size
            made.truncate(size)
            for begin, end in stretches(given.fileno(), 0, size):
                _copy(given.fileno(), made.fileno(), begin, end)
    except FileExistsError:
        raise
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def copy_parts(source: Path, parts: Sequence[tuple[int, int]], target: Path) -> None:
    """Copy parts of a file, (offset, length) in bytes, one behind the other into a file of its own, holes as holes.
    Raises OSError, for a full disk among others, and leaves nothing behind then."""
    try:
        with source.open("rb") as given, target.open("xb") as made:
            made.truncate(sum(length for _, length in parts))
            to = 0
            for offset, length in parts:
                for begin, end in stretches(given.fileno(), offset, offset + length):
                    _copy(given.fileno(), made.fileno(), begin, min(end, offset + length), to - offset)
                to += length
    except FileExistsError:
        raise
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def stretches(descriptor: int, at: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a file of `size` bytes that have content, from `at` on: the first byte, and the one behind
    the last. The descriptor's position moves."""
    while (found := _next(descriptor, at, size)) is not None:
        yield found
        at = found[1]


def _next(descriptor: int, at: int, size: int) -> tuple[int, int] | None:
    """Return the next stretch with content, from `at` on; None where there is none."""
    if at >= size:
        return None
    try:
        begin = os.lseek(descriptor, at, os.SEEK_DATA)
        return begin, os.lseek(descriptor, begin, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole up to the end
            return None
        return at, size  # a file system that cannot tell


def _copy(source: int, target: int, begin: int, end: int, shift: int = 0) -> None:
    """Copy a stretch; it goes `shift` bytes further on in the target."""
    while begin < end:
        try:
            done = os.copy_file_range(source, target, min(_PART, end - begin), begin, begin + shift)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            done = os.pwrite(target, os.pread(source, min(_PART, end - begin), begin), begin + shift)
        if not done:
            return  # it became shorter meanwhile
        begin += done
