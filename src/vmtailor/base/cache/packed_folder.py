# SPDX-License-Identifier: Apache-2.0
"""Pack a folder of the cache into pieces that are named by their digests, and unpack it elsewhere. What is unpacked may
be anybody's bytes: names, sizes and digests are checked before a file gets them."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vmtailor.base.files.digests import SHA256
from vmtailor.base.files.holes import stretches

#: Bytes of content in a piece; a piece is held in memory while it is packed, sent and unpacked.
PIECE_BYTES = 16 << 20
#: Most bytes of a packed piece: content that cannot be compressed grows a little.
MOST_PACKED_BYTES = PIECE_BYTES + (1 << 20)
#: Most files and folders, stretches of content, and bytes of files that one result may have.
MOST_ENTRIES, MOST_STRETCHES, MOST_BYTES = 20_000, 200_000, 1 << 40
#: Most bytes of content.
MOST_CONTENT_BYTES = 64 << 30
_LEVEL = 3
_COMPONENT = re.compile(r"[^/\0]{1,255}")


class Unpackable(ValueError):
    """A folder that cannot be packed, or bytes that are no packed folder. The text ends a sentence."""


@dataclass(frozen=True)
class PackedFile:
    """A file: its name in the folder, its length, and the (offset, length) of all that is no hole. `executable`: for
    its owner."""

    name: str
    size_bytes: int
    content: tuple[tuple[int, int], ...]
    executable: bool = False


@dataclass(frozen=True)
class Piece:
    """A part of the content of all files, one behind the other, compressed. `sha256`: of the compressed bytes."""

    sha256: str
    packed_bytes: int
    content_bytes: int


@dataclass(frozen=True)
class PackedFolder:
    """The list of a packed folder. `kind` and `key` name the result; `folders` come before what is in them."""

    SCHEMA: ClassVar[str] = "vmtailor/packed-folder/1"

    kind: str
    key: str
    folders: tuple[str, ...]
    files: tuple[PackedFile, ...]
    pieces: tuple[Piece, ...]


def pack(folder: Path, kind: str, key: str, send: Callable[[Piece, bytes], None]) -> PackedFolder:
    """Give every piece of a folder to `send`, in order, and return the list. Raises Unpackable for what is neither a
    file nor a folder, and for more than the limits; OSError."""
    import zstandard

    folders, files = _listed(folder)
    pieces = []
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    for content in _cut(_content(folder, files)):
        packed = compressor.compress(content)
        piece = Piece(hashlib.sha256(packed).hexdigest(), len(packed), len(content))
        send(piece, packed)
        pieces.append(piece)
    found = PackedFolder(kind=kind, key=key, folders=tuple(folders), files=tuple(files), pieces=tuple(pieces))
    check(found, kind, key)
    return found


def _listed(folder: Path) -> tuple[list[str], list[PackedFile]]:
    folders, files, waiting = list[str](), list[PackedFile](), [folder]
    while waiting:
        for entry in sorted(os.scandir(waiting.pop()), key=lambda one: one.name):
            name = str(Path(entry.path).relative_to(folder))
            if entry.is_dir(follow_symlinks=False):
                folders.append(name)
                waiting.append(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                files.append(_file(Path(entry.path), name))
            else:
                raise Unpackable(f"{name} is neither a file nor a folder")
            if len(folders) + len(files) > MOST_ENTRIES:
                raise Unpackable(f"it has more than {MOST_ENTRIES} files")
    return sorted(folders), sorted(files, key=lambda one: one.name)


def _file(path: Path, name: str) -> PackedFile:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        size = status.st_size
        content = tuple(
            (begin, min(end, size) - begin) for begin, end in stretches(file.fileno(), 0, size) if begin < size
        )
    return PackedFile(name, size, content, bool(status.st_mode & stat.S_IXUSR))


def _content(folder: Path, files: list[PackedFile]) -> Iterator[bytes]:
    """Yield the content of all files, in parts of at most a piece. Raises Unpackable for a file that changed."""
    for one in files:
        with (folder / one.name).open("rb") as file:
            for offset, length in one.content:
                at, end = offset, offset + length
                while at < end:
                    part = os.pread(file.fileno(), min(PIECE_BYTES, end - at), at)
                    if not part:
                        raise Unpackable(f"{one.name} changed while it was read")
                    yield part
                    at += len(part)


def _cut(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces of one length, the last one shorter."""
    waiting = bytearray()
    for part in parts:
        waiting += part
        while len(waiting) >= PIECE_BYTES:
            yield bytes(waiting[:PIECE_BYTES])
            del waiting[:PIECE_BYTES]
    if waiting:
        yield bytes(waiting)


def check(packed: PackedFolder, kind: str, key: str) -> None:
    """Raise Unpackable unless a list is one of this result that can be unpacked within the limits."""
    if (packed.kind, packed.key) != (kind, key):
        raise Unpackable("it is the list of another result")
    if len(packed.folders) + len(packed.files) > MOST_ENTRIES:
        raise Unpackable(f"it has more than {MOST_ENTRIES} files")
    known = {""}
    for name in packed.folders:
        _require_name(name, known)
        known.add(name)
    for one in packed.files:
        _require_name(one.name, known)
        known.add(one.name)  # nothing can be below it, nor have its name
    folders = {"", *packed.folders}
    if any(one.name.rpartition("/")[0] not in folders for one in packed.files):
        raise Unpackable("a file is in no folder of it")
    _require_sizes(packed)


def _require_name(name: str, known: set[str]) -> None:
    parts = name.split("/")
    if any(part in (".", "..") or not _COMPONENT.fullmatch(part) for part in parts) or len(name) > 4000:
        raise Unpackable("a name in it leads out of its folder")
    if name in known or "/".join(parts[:-1]) not in known:
        raise Unpackable("a name in it stands twice, or in no folder")


def _require_sizes(packed: PackedFolder) -> None:
    content = total = count = 0
    for one in packed.files:
        at = 0
        for offset, length in one.content:
            if offset < at or length <= 0:
                raise Unpackable(f"the content of {one.name[:80]} overlaps")
            at, content, count = offset + length, content + length, count + 1
        if at > one.size_bytes:
            raise Unpackable(f"the content of {one.name[:80]} is longer than the file")
        total += one.size_bytes
    if total > MOST_BYTES or content > MOST_CONTENT_BYTES or count > MOST_STRETCHES:
        raise Unpackable("it is larger than any result")
    for piece in packed.pieces:
        sizes = 0 < piece.content_bytes <= PIECE_BYTES and 0 < piece.packed_bytes <= MOST_PACKED_BYTES
        if not sizes or not SHA256.fullmatch(piece.sha256):
            raise Unpackable("a piece of it has no size and digest that pieces have")
    if sum(piece.content_bytes for piece in packed.pieces) != content:
        raise Unpackable("its pieces have another length than its files")


def unpack(packed: PackedFolder, folder: Path, fetch: Callable[[Piece], bytes]) -> None:
    """Write a checked list's files into an empty folder, for us alone. `fetch` gives a piece's bytes, or others, which
    are refused. Raises Unpackable; OSError, for a full disk among others."""
    for name in packed.folders:
        (folder / name).mkdir(mode=0o700)
    content = _opened(packed, fetch)
    waiting = memoryview(b"")
    for one in packed.files:
        mode = 0o700 if one.executable else 0o600
        made = os.open(folder / one.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            os.ftruncate(made, one.size_bytes)
            for offset, length in one.content:
                at, end = offset, offset + length
                while at < end:
                    if not waiting:
                        waiting = memoryview(next(content))
                    at += (written := os.pwrite(made, waiting[: end - at], at))
                    waiting = waiting[written:]
        finally:
            os.close(made)


def _opened(packed: PackedFolder, fetch: Callable[[Piece], bytes]) -> Iterator[bytes]:
    """Yield the content of each piece, held against its digest and its length."""
    import zstandard

    for piece in packed.pieces:
        data = fetch(piece)
        if len(data) != piece.packed_bytes or hashlib.sha256(data).hexdigest() != piece.sha256:
            raise Unpackable(f"the piece {piece.sha256[:12]} is damaged")
        try:
            # What a frame says of its length is believed by the library, and would be allocated.
            if zstandard.frame_content_size(data) != piece.content_bytes:
                raise Unpackable(f"the piece {piece.sha256[:12]} has another length than it should")
            yield zstandard.ZstdDecompressor().decompress(data, max_output_size=piece.content_bytes)
        except zstandard.ZstdError as error:
            raise Unpackable(f"the piece {piece.sha256[:12]} cannot be unpacked") from error
