# SPDX-License-Identifier: Apache-2.0
"""Reading one layer: a tar, perhaps compressed, from an untrusted source, as a stream and within limits.

`tarfile` reads the archive through `ForwardReader`, which only moves forward and refuses headers of absurd size.
Nothing here touches a path of the host other than the layer's own file.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import lzma
import math
import re
import tarfile
import urllib.parse
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from vmtailor.base import notation
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image import attributes
from vmtailor.drivers.image.allowance import DEPTH, Allowance, ImageLimits, Room, too_many, too_much
from vmtailor.drivers.image.attributes import ForeignAttributes
from vmtailor.drivers.image.decompress import CHUNK, chunks_of
from vmtailor.drivers.image.layer_tree import LayerNode, TreeEntry

BLOCK = 512
#: Bytes of headers that one entry may have: long names, extended attributes, maps of sparse files.
HEADER_BYTES = 4 << 20
PATH_BYTES = 4095
NAME_BYTES = 255
TIME_MAX = 2**32 - 1

_NUMBERS = {"uid": "user or group", "gid": "user or group", "size": "size"}
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_TIME = re.compile(r"\d{1,10}(\.\d{1,9})?")
_XATTR = "SCHILY.xattr."
_LIBARCHIVE = "LIBARCHIVE.xattr."
#: Marks of overlay file systems: in an image they would change what the guest's own overlay shows.
_OVERLAY = ("trusted.overlay.", "user.overlay.")
_KINDS = {
    tarfile.REGTYPE: tarfile.REGTYPE, tarfile.AREGTYPE: tarfile.REGTYPE, tarfile.CONTTYPE: tarfile.REGTYPE,
    tarfile.GNUTYPE_SPARSE: tarfile.REGTYPE, tarfile.DIRTYPE: tarfile.DIRTYPE, tarfile.SYMTYPE: tarfile.SYMTYPE,
    tarfile.LNKTYPE: tarfile.LNKTYPE, tarfile.CHRTYPE: tarfile.CHRTYPE, tarfile.BLKTYPE: tarfile.BLKTYPE,
    tarfile.FIFOTYPE: tarfile.FIFOTYPE,
}  # fmt: skip
_DAMAGE = (
    tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError, OverflowError, IndexError, KeyError, OSError,
    RecursionError, TypeError,
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """One layer's file. `label` names it in messages (its digest); `diff_id` is `sha256:…` of it uncompressed, checked
    when given."""

    path: Path
    label: str
    diff_id: str = ""


class DamagedLayer(UserInputError):
    """A layer cannot be read, or it asks for what an image must not ask for."""

    def __init__(self, label: str, what: str) -> None:
        self.what = what
        super().__init__(
            f"layer {label} is damaged or hostile: {what}",
            hint="fetch or build the image again; if it stays, ask whoever made it",
        )


class ForwardReader:
    """A stream of chunks as a file that `tarfile` can read: `read`, `tell`, and `seek` forward.

    `spend` is told how many bytes were taken, and raises when they are too many. `data_end`: where the content of the
    present entry ends. A stream that ends there, without the zeros up to the next block, gets them. `jump` goes to a
    place of the file that the chunks come from, where it has places."""

    def __init__(
        self,
        chunks: Iterator[bytes],
        spend: Callable[[int], None] | None = None,
        jump: Callable[[int], object] | None = None,
    ) -> None:
        self._chunks = chunks
        self._spend = spend
        self._jump = jump
        self._buffer = b""
        self._at = 0
        self._position = 0
        self._padded = False
        self.data_end = 0
        self.budget = HEADER_BYTES
        self.last = b""

    def tell(self) -> int:
        return self._position

    def _fill(self) -> bool:
        self._buffer, self._at = next(self._chunks, b""), 0
        if not self._buffer and not self._padded and self._position >= self.data_end > self._position - BLOCK:
            self._padded = True
            self._buffer = bytes(-self._position % BLOCK)
        return bool(self._buffer)

    def at_end(self) -> bool:
        """Return whether there is nothing more."""
        return self._at == len(self._buffer) and not self._fill()

    def take(self, size: int) -> bytes:
        """Return at most `size` bytes, at least one unless the stream has ended."""
        if self.at_end():
            return b""
        piece = self._buffer[self._at : self._at + size]
        self._at += len(piece)
        self._position += len(piece)
        if self._spend is not None:
            self._spend(len(piece))
        return piece

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self.budget:
            raise ValueError("the headers of one entry are too large")
        self.budget -= size
        piece = self.take(size)
        if len(piece) < size:
            pieces = [piece]
            missing = size - len(piece)
            while missing and (more := self.take(missing)):
                pieces.append(more)
                missing -= len(more)
            piece = b"".join(pieces)
        self.last = piece
        return piece

    def seek(self, position: int, whence: int = 0) -> int:
        if whence != 0 or position < self._position:
            raise ValueError("an entry points backwards")
        if self._jump is not None and position - self._position > len(self._buffer) - self._at:
            self._jump(position)
            self._buffer, self._at, self._position = b"", 0, position
        self.copy(position - self._position, None)
        return self._position

    def copy(self, size: int, write: Callable[[bytes], object] | None) -> int:
        """Pass on the next `size` bytes, or skip them; returns how many there were."""
        left = size
        while left and (piece := self.take(left)):
            left -= len(piece)
            if write is not None:
                write(piece)
        return size - left

    def drain(self) -> None:
        while self.take(CHUNK):
            pass


@contextlib.contextmanager
def damage_is_reported(layer: Layer) -> Iterator[None]:
    """Turn whatever a parser says about bad bytes into DamagedLayer. Failures to write must not be raised inside."""
    try:
        yield
    except UserInputError:
        raise
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamagedLayer(layer.label, str(error) or type(error).__name__) from error


@contextlib.contextmanager
def opened(layer: Layer, budget: Allowance | None = None) -> Iterator[ForwardReader]:
    """Open the layer's uncompressed bytes, to be read once from the start; `budget` counts them."""
    with contextlib.closing(chunks_of(layer.path)) as chunks:
        yield ForwardReader(
            chunks, None if budget is None else functools.partial(budget.spend, what=f"layer {layer.label}")
        )


def uncompress(path: Path, out: Path, limits: ImageLimits) -> None:
    """Write a file's uncompressed content. Raises DamagedLayer (truncated, damaged), TooLarge, or HostError before the
    disk is full."""
    layer = Layer(path, path.name)
    budget, room = Allowance(limits), Room(out.parent)
    with opened(layer) as reader, out.open("wb") as file:
        while True:
            with damage_is_reported(layer):
                piece = reader.take(CHUNK)
            if not piece:
                return
            budget.spend(len(piece), str(path))
            room.take(len(piece))
            file.write(piece)


def split_path(name: str, label: str) -> tuple[str, ...]:
    """Return the components of an entry's name below the root. A leading `/` and `.` count for nothing; `..` takes back
    the word before it, as engines clean names before they look at any file, and is refused where there is none."""
    found: list[str] = []
    for part in name.split("/"):
        if part == "..":
            if not found:
                raise DamagedLayer(label, f"the name {name[:200]!r} leads out of the image")
            found.pop()
        elif part not in ("", "."):
            found.append(part)
    parts = tuple(found)
    if "\0" in name or len(_bytes(name)) > PATH_BYTES or any(len(_bytes(part)) > NAME_BYTES for part in parts):
        raise DamagedLayer(label, f"the name {name[:200]!r} is not one that a file can have")
    if len(parts) > DEPTH:
        raise DamagedLayer(label, f"{name[:60]!r}… is nested {len(parts)} deep; at most {DEPTH} are read")
    return parts


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _xattrs(headers: Mapping[str, str], kind: bytes, left_out: ForeignAttributes) -> tuple[tuple[str, str], ...]:
    """Return the attributes that an entry of this kind keeps."""
    found: dict[str, str] = {}
    for key, value in headers.items():
        if key.startswith(_LIBARCHIVE):
            raw = base64.b64decode(_bytes(value) + b"==")
            name = urllib.parse.unquote(key.removeprefix(_LIBARCHIVE), errors="surrogateescape")
            found.setdefault(name, raw.decode("utf-8", "surrogateescape"))
    for key, value in headers.items():
        if key.startswith(_XATTR):
            found[key.removeprefix(_XATTR)] = value
    kept = []
    for name, value in found.items():
        if attributes.has_place(name, value, kind):
            kept.append((name, value))
        else:
            left_out.add(name)
    return tuple(sorted((name, value) for name, value in kept if not name.startswith(_OVERLAY)))


def _time(info: tarfile.TarInfo) -> int | str:
    """Return seconds since 1970, as text when there is a fraction; clamped to what all our file systems can hold."""
    text = info.pax_headers.get("mtime", "")
    if "." in text and _TIME.fullmatch(text) and int(text.partition(".")[0]) <= TIME_MAX:
        trimmed = text.rstrip("0").rstrip(".")
        return trimmed if "." in trimmed else int(trimmed)
    seconds = info.mtime if math.isfinite(info.mtime) else 0
    return int(min(max(seconds, 0), TIME_MAX))


@dataclass(frozen=True)
class _Headers:
    """Makes nodes of the headers of one layer. `index`: of the layer; `unique`: equal attributes, once each."""

    index: int
    left_out: ForeignAttributes
    unique: dict[object, object] = field(default_factory=dict)

    def described(self, info: tarfile.TarInfo, kind: bytes) -> LayerNode:
        """Return a node with owner, mode, time and attributes, without content."""
        for number in (info.uid, info.gid):
            if not 0 <= number < 2**32 - 1:
                raise ValueError(f"{info.name[:200]!r} belongs to user or group {number}")
        node = LayerNode(kind, info.mode & 0o7777, info.uid, info.gid, _time(info))
        if info.pax_headers:
            kept = _xattrs(info.pax_headers, kind, self.left_out)
            node.xattrs = cast("tuple[tuple[str, str], ...]", self.unique.setdefault(kept, kept))
        return node

    def entry(self, info: tarfile.TarInfo, kind: bytes, label: str) -> TreeEntry:
        """Return the entry of a header."""
        parts = split_path(info.name, label)
        if kind == tarfile.LNKTYPE:
            # Of which kind the file is that it names is seen later.
            header = self.described(info, tarfile.REGTYPE)
            return TreeEntry(parts, None, split_path(info.linkname, label), header)
        return TreeEntry(parts, _with_content(self.described(info, kind), info, self.index))


def _with_content(node: LayerNode, info: tarfile.TarInfo, layer_index: int) -> LayerNode:
    kind = node.kind
    if kind == tarfile.REGTYPE:
        if info.size < 0:
            raise ValueError(f"{info.name[:200]!r} has a size of {info.size}")
        node.layer, node.offset, node.size = layer_index, info.offset_data, info.size
        sparse = getattr(info, "sparse", None)
        if sparse is not None:
            node.target = checked_map(sparse, info.size)
    elif kind == tarfile.SYMTYPE:
        if not info.linkname or "\0" in info.linkname or len(_bytes(info.linkname)) > PATH_BYTES:
            raise ValueError(f"{info.name[:200]!r} is a symbolic link to nothing that can be")
        node.target = info.linkname
    elif kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
        if not (0 <= info.devmajor < 1 << 12 and 0 <= info.devminor < 1 << 20):
            raise ValueError(f"{info.name[:200]!r} is device {info.devmajor}:{info.devminor}")
        node.target = (info.devmajor, info.devminor)
    return node


def checked_map(sparse: list[tuple[int, int]], size: int) -> tuple[tuple[int, int], ...]:
    """Return the pieces of a sparse file, offset and length, without empty ones. Raises ValueError where they lie over
    each other, or beyond its size."""
    end = 0
    # A header of GNU tar has room for four pieces; those that are not used have an offset and a length of 0.
    pieces = tuple((offset, length) for offset, length in sparse if length)
    for offset, length in pieces:
        if offset < end or length < 0 or offset + length > size:
            raise ValueError("the map of a sparse file contradicts itself")
        end = offset + length
    return pieces


class Meter:
    """Counts what all layers together ask for, and refuses what goes beyond the limits. `stream` counts bytes as they
    come out of decompression; a sparse file may claim more than that. `left_out`: attributes that Linux has not."""

    def __init__(self, limits: ImageLimits) -> None:
        self.limits = limits
        self.stream = Allowance(limits)
        self.entries = 0
        self.unpacked = 0
        self.metadata = 0
        self.left_out = ForeignAttributes()

    def count(self, entry: TreeEntry, what: str) -> None:
        """Count one entry of `what`. Raises TooLarge; ValueError for names that would fill memory."""
        self.entries += 1
        self.unpacked += entry.node.size if entry.node else 0
        self.metadata += entry.weight
        if self.entries > self.limits.entries:
            raise too_many(what, self.limits)
        if self.unpacked > self.limits.unpacked_bytes:
            raise too_much(what, self.limits)
        if self.metadata > self.limits.metadata_bytes:
            raise ValueError(
                f"its names and attributes take more than {notation.size_text(self.limits.metadata_bytes)}"
            )


def entries_of(layer: Layer, index: int, meter: Meter) -> Iterator[TreeEntry]:
    """Yield all entries of a layer, in its order. The nodes keep `index`, to find their data again.

    Raises DamagedLayer: truncated, damaged, another digest than promised, a name that leads out. Raises TooLarge."""
    with damage_is_reported(layer), opened(layer, meter.stream) as raw:
        digest = hashlib.sha256()
        reader = ForwardReader(_hashed(raw, digest.update)) if layer.diff_id else raw
        headers = _Headers(index, meter.left_out)
        for info in headers_of(reader):
            kind = _KINDS.get(info.type)
            if kind is None:
                raise ValueError(f"{info.name[:200]!r} is of the unknown type {info.type!r}")
            _check_numbers(info)
            entry = headers.entry(info, kind, layer.label)
            if entry.node is not None:
                reader.data_end = _data_end(entry.node)
            meter.count(entry, f"layer {layer.label}")
            yield entry
        reader.drain()
        if layer.diff_id and layer.diff_id != f"sha256:{digest.hexdigest()}":
            raise ValueError(f"its content has the digest sha256:{digest.hexdigest()}, the image says {layer.diff_id}")


class _NoGlobals(dict[str, str]):
    """Headers for all entries that follow, which engines pass over: they would give every file an owner or a name."""

    def __setitem__(self, key: str, value: str) -> None:
        pass


def headers_of(reader: ForwardReader) -> Iterator[tarfile.TarInfo]:
    """Yield the headers of an archive. One of 0 bytes has none: old versions of Docker made such layers."""
    if reader.at_end():
        return
    archive = tarfile.TarFile(
        fileobj=reader, mode="r", encoding="utf-8", errors="surrogateescape", pax_headers=_NoGlobals()  # type: ignore[arg-type]
    )  # fmt: skip
    while (info := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # it would keep every header in memory
        reader.budget = HEADER_BYTES
        yield info
    if reader.last.strip(b"\0"):
        raise ValueError(f"the header at byte {archive.offset} makes no sense")


def _data_end(node: LayerNode | None) -> int:
    """Return the offset where an entry's content ends in its layer; 0 for an entry without content."""
    if node is None or node.kind != tarfile.REGTYPE:
        return 0
    if node.target is None:
        return node.offset + node.size if node.size else 0
    return node.offset + sum(int(piece[1]) for piece in node.target if isinstance(piece, tuple))


def _check_numbers(info: tarfile.TarInfo) -> None:
    """An extended header whose number is none would silently count as 0: as root's, or as empty."""
    for key, what in _NUMBERS.items():
        text = info.pax_headers.get(key)
        if text is not None and not _WHOLE.fullmatch(text):
            raise ValueError(f"{info.name[:200]!r} has {text[:40]!r} as {what}")


def _hashed(raw: ForwardReader, update: Callable[[bytes], None]) -> Iterator[bytes]:
    while piece := raw.take(CHUNK):
        update(piece)
        yield piece
