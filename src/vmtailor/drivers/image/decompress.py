# SPDX-License-Identifier: Apache-2.0
"""The uncompressed bytes of a file, in pieces of bounded size: gzip, zstd, bzip2, xz or none, told by its first bytes.

Damage raises what the library raises, or EOFError for what ends too early."""

from __future__ import annotations

import bz2
import lzma
import subprocess
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Protocol, cast

from vmtailor.base.process import require_tool, spawn

#: Bytes read at a time; a piece that comes out has at most four times as many.
CHUNK = 1 << 18


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


def _zlib_chunks(path: Path) -> Generator[bytes]:
    """gzip, of one or more members."""
    with path.open("rb") as file:
        inflate = zlib.decompressobj(31)
        data = file.read(CHUNK)
        while data:
            out = inflate.decompress(data, CHUNK * 4)
            if out:
                yield out
            if inflate.eof:
                data = inflate.unused_data or file.read(CHUNK)
                if data.strip(b"\0"):
                    inflate = zlib.decompressobj(31)
                else:
                    return
            else:
                data = inflate.unconsumed_tail or file.read(CHUNK)
        raise EOFError("the compressed data ends too early")


def _block_chunks(path: Path, make: Callable[[], _Decompressor]) -> Generator[bytes]:
    """bzip2 or xz, of one or more streams."""
    with path.open("rb") as file:
        unpack = make()
        data = file.read(CHUNK)
        while True:
            out = unpack.decompress(data, CHUNK * 4)
            data = b""
            if out:
                yield out
            if unpack.eof:
                data = unpack.unused_data or file.read(CHUNK)
                if not data.strip(b"\0"):
                    return
                unpack = make()
            elif not out:
                data = file.read(CHUNK)
                if not data:
                    raise EOFError("the compressed data ends too early")


def _zstd_chunks(path: Path) -> Generator[bytes]:
    argv = [require_tool("zstd"), "--decompress", "--stdout", "--quiet", "--long=27"]
    with path.open("rb") as file, spawn(argv, stdin=file, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while piece := process.stdout.read(CHUNK):
            yield piece
        if process.wait() != 0:
            raise EOFError("zstd cannot unpack it")


def _plain_chunks(path: Path) -> Generator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            yield piece


def is_compressed(path: Path) -> bool:
    """Return whether a file begins like one of the compressions that are understood."""
    with path.open("rb") as file:
        return file.read(6).startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\0"))


def chunks_of(path: Path) -> Generator[bytes]:
    """Return the uncompressed bytes of a file; the compression is told by its first bytes."""
    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"\x1f\x8b"):
        return _zlib_chunks(path)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return _zstd_chunks(path)
    if magic.startswith(b"BZh"):
        return _block_chunks(path, bz2.BZ2Decompressor)
    if magic == b"\xfd7zXZ\0":
        return _block_chunks(path, cast("Callable[[], _Decompressor]", lambda: lzma.LZMADecompressor(memlimit=1 << 28)))
    return _plain_chunks(path)
