# SPDX-License-Identifier: Apache-2.0
"""Compressed files and archives from anywhere: never written to disk, never more memory or work than was allowed."""

from __future__ import annotations

import bz2
import errno
import io
import lzma
import os
import select
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

import zstandard

from vmtailor.base import notation
from vmtailor.base.files.regular_files import kind_of

CHUNK = 1 << 20
#: Milliseconds to wait for the writer of a named pipe.
WRITER_MS = 5000
#: Uncompressed bytes read of one input; a log of a gigabyte is no log of a boot.
MAX_BYTES = 1 << 30
#: A file that is packed more tightly than this, after the bytes below have come out of it, is no log.
MAX_RATIO = 100
RATIO_FROM = 16 << 20
#: Bytes kept of one member of an archive, and members looked at.
MAX_MEMBER = 256 << 20
MAX_MEMBERS = 10_000
#: Bytes of zstd unpacked at once: its blocks can be tiny, and each is up to 128 KiB.
SLICE = 256


class Bomb(Exception):
    """More came out of a compressed file than any boot log has."""


class Chunks:
    """A file's bytes in chunks, decompressed. `cut` says, once all were given, how the file ends where it should not;
    empty when it is whole."""

    def __init__(self) -> None:
        self.cut = ""
        self.behind = b""  # what the decompressor was not given, because it had come to its end
        self._chunks: Iterator[bytes] = iter(())

    def of(self, chunks: Iterator[bytes]) -> Chunks:
        """Take these chunks, from a generator that was given this object to tell."""
        self._chunks = chunks
        return self

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def __next__(self) -> bytes:
        return next(self._chunks)


def open_chunks(path: Path, limit: int = MAX_BYTES) -> Chunks:
    """Return a file's bytes in chunks, decompressed when it is gzip, bzip2, xz or zstd. Damaged ends are dropped.
    Raises Bomb, OSError."""
    told = Chunks()
    return told.of(_chunks_of(path, limit, told))


def decompressed(file: IO[bytes]) -> Chunks:
    """Return the decompressed chunks of an open stream."""
    told = Chunks()
    return told.of(decompress(file, MAX_BYTES, told))


def _chunks_of(path: Path, limit: int, told: Chunks) -> Iterator[bytes]:
    with _opened(path) as file:
        yield from decompress(file, limit, told)


def _opened(path: Path) -> IO[bytes]:
    """Return a file, or a pipe that somebody writes to, such as a shell's <(command). Raises OSError for what has no
    end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISFIFO(mode):
            waiting = select.poll()
            waiting.register(handle, select.POLLIN | select.POLLHUP)
            if not waiting.poll(WRITER_MS):
                raise OSError(errno.ENODATA, f"it is a named pipe, and nobody wrote to it for {WRITER_MS // 1000} s")
            os.set_blocking(handle, True)
        elif not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"it is {kind_of(mode)}")
        # A regular file never blocks, but for some of /proc: those end where they have nothing more to say.
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


#: The library does not name this class.
_ZSTD = type(zstandard.ZstdDecompressor().decompressobj())


def _decompressor(magic: bytes) -> object | None:
    if magic.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(31)
    if magic.startswith(b"BZh"):
        return bz2.BZ2Decompressor()
    if magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMADecompressor(memlimit=128 << 20)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return zstandard.ZstdDecompressor(max_window_size=128 << 20).decompressobj()
    return None


def decompress(file: IO[bytes], limit: int = MAX_BYTES, told: Chunks | None = None) -> Iterator[bytes]:
    """Yield the chunks of a stream, decompressed where its first bytes say so. `told` learns how it ended."""
    told = told or Chunks()
    chunk = file.read(CHUNK) or b""
    worker = _decompressor(chunk[:8])
    total, taken = 0, len(chunk)
    while chunk:
        for piece in [chunk] if worker is None else _expand(worker, chunk, told):
            total += len(piece)
            if total > limit:
                raise Bomb(f"more than {notation.mebibytes(limit)} came out of it")
            if worker is not None and total > max(RATIO_FROM, MAX_RATIO * taken):
                raise Bomb(f"more than {MAX_RATIO} times its size came out of it")
            if piece:
                yield piece
        if worker is not None and getattr(worker, "eof", False):
            rest = getattr(worker, "unused_data", b"") + told.behind
            told.behind = b""
            worker = _decompressor(rest[:8])
            if worker is None:
                return
            chunk = rest
            continue
        if told.cut:
            return
        chunk = file.read(CHUNK) or b""
        taken += len(chunk)
    if worker is not None and not getattr(worker, "eof", True):
        told.cut = "the compressed file ends in its middle"


def _expand(worker: object, data: bytes, told: Chunks) -> Iterator[bytes]:
    """Yield all that `data` decompresses to, a chunk at a time. A damaged rest ends it."""
    try:
        if isinstance(worker, (bz2.BZ2Decompressor, lzma.LZMADecompressor)):
            yield worker.decompress(data, CHUNK)
            while not worker.eof and not worker.needs_input:
                yield worker.decompress(b"", CHUNK)
        elif hasattr(worker, "decompress") and isinstance(worker, _ZSTD):
            for start in range(0, len(data), SLICE):
                if worker.eof:
                    told.behind = data[start:]
                    break
                yield worker.decompress(data[start : start + SLICE])
        else:
            assert hasattr(worker, "decompress")
            yield worker.decompress(data, CHUNK)
            while worker.unconsumed_tail and not worker.eof:  # type: ignore[attr-defined]
                yield worker.decompress(worker.unconsumed_tail, CHUNK)  # type: ignore[attr-defined]
    except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError, zstandard.ZstdError):
        told.cut = "the compressed file is damaged"


class ChunkFile(io.RawIOBase):
    """Chunks as a file that can only be read forward, for tarfile."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        while not self._rest:
            piece = next(self._chunks, None)
            if piece is None:
                return 0
            self._rest = piece
        size = min(len(view), len(self._rest))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def tar_members(
    chunks: Iterator[bytes], wanted: frozenset[str], told: Chunks | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield the regular members of a tar stream whose base name is wanted: (base name, contents). A truncated archive
    ends early, and `told` learns that."""
    told = told or Chunks()
    try:
        with tarfile.open(fileobj=io.BufferedReader(ChunkFile(chunks), CHUNK), mode="r|") as archive:
            for count, member in enumerate(archive):
                name = PurePosixPath(member.name).name
                if count >= MAX_MEMBERS:
                    return
                if not member.isreg() or name not in wanted or member.size > MAX_MEMBER:
                    continue
                file = archive.extractfile(member)
                if file is not None:
                    data = _read_what_is_there(file)
                    if len(data) < member.size:
                        told.cut = told.cut or f"the archive ends within {name}"
                    yield name, data
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error, RecursionError):
        told.cut = told.cut or "the archive is damaged, or ends in its middle"


def _read_what_is_there(file: IO[bytes]) -> bytes:
    pieces = []
    try:
        while piece := file.read(CHUNK):
            pieces.append(piece)
    except (tarfile.TarError, EOFError, OSError, ValueError):
        pass
    return b"".join(pieces)


def is_tar(sample: bytes) -> bool:
    """Return whether (decompressed) bytes begin a tar archive."""
    return len(sample) >= 512 and sample[257:262] == b"ustar"
