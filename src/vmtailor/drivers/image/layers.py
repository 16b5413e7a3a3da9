# SPDX-License-Identifier: Apache-2.0
"""Merge the layers of an image into one flat, uncompressed pax archive: as a stream, without root, never unpacked.

Two passes over the layers: the first reads headers and makes the tree in memory, the second copies what is still there.
The archive holds the directories, then links and devices, then files in the order of the layers, then further names of
files: parents always come before children. Equal layers give equal bytes."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from vmtailor.base.disk_full import disk_full_is_a_host_error
from vmtailor.drivers.image.allowance import ImageLimits, require_room
from vmtailor.drivers.image.decompress import is_compressed
from vmtailor.drivers.image.layer_reader import (
    DamagedLayer,
    ForwardReader,
    Layer,
    Meter,
    damage_is_reported,
    entries_of,
    opened,
    uncompress,
)
from vmtailor.drivers.image.layer_tree import LayerNode, LayerTree

__all__ = [
    "OWN",
    "Archived",
    "DamagedLayer",
    "ImageLimits",
    "Layer",
    "LayerTree",
    "contents_of",
    "device_of",
    "is_compressed",
    "merge",
    "read_tree",
    "uncompress",
    "write_archive",
]  # fmt: skip

#: Changes when the same layers would give other bytes than before: part of every cache key.
VERSION = "2"
#: For archives of our own making, whose layers were within their limits: implied directories come on top.
OWN = ImageLimits(2**62, 2**62, 2**62)
_ZEROS = bytes(1 << 20)


@dataclass(frozen=True)
class Archived:
    """A flat archive as it was written. `entries` excludes the root; `unpacked_bytes` is the sum of file sizes, each
    file counted once. `left_out`: what it leaves out of its source, in words."""

    sha256: str
    entries: int
    unpacked_bytes: int
    left_out: tuple[str, ...] = ()


def read_tree(layers: Sequence[Layer], limits: ImageLimits | None = None) -> LayerTree:
    """First pass: the merged tree. Raises DamagedLayer or TooLarge."""
    return _read(layers, Meter(limits or ImageLimits()))


def _read(layers: Sequence[Layer], meter: Meter) -> LayerTree:
    tree = LayerTree()
    for index, layer in enumerate(layers):
        with damage_is_reported(layer):
            tree.add_layer(entries_of(layer, index, meter))
    return tree


def merge(layers: Sequence[Layer], out: Path, limits: ImageLimits | None = None) -> Archived:
    """Merge layers, lowest first, into the file `out`. Raises DamagedLayer or TooLarge; HostError when the disk is
    too small."""
    meter = Meter(limits or ImageLimits())
    tree = _read(layers, meter)
    require_room(out.parent, sum(512 + (node.size + 511) // 512 * 512 for _, node in tree.walk()))
    with disk_full_is_a_host_error(out.parent), out.open("wb") as file:
        return replace(write_archive(tree, layers, file), left_out=meter.left_out.remarks())


def write_archive(tree: LayerTree, layers: Sequence[Layer], out: IO[bytes]) -> Archived:
    """Second pass: the tree with the content of its files, to any file or pipe."""
    writer = _Writer(out)
    files, links = _write_bodiless(tree, writer)
    for path, node, content in contents_of(files, layers):
        writer.header(path, node)
        for piece in content:
            writer.write(piece)
        writer.zeros(-node.size % 512)
    for path, node, target in links:
        writer.header(path, node, link=target)
    writer.end()
    size = sum(node.size for chosen in files.values() for _, node in chosen)
    return Archived(writer.digest.hexdigest(), writer.entries, size)


def _write_bodiless(
    tree: LayerTree, writer: _Writer
) -> tuple[dict[int, list[tuple[str, LayerNode]]], list[tuple[str, LayerNode, str]]]:
    """Write all that has no content; return the files by layer, and the further names of inodes already written."""
    files: dict[int, list[tuple[str, LayerNode]]] = {}
    links: list[tuple[str, LayerNode, str]] = []
    first: dict[int, str] = {}
    others: list[tuple[str, LayerNode]] = []
    for path, node in tree.walk():
        if node.children is not None:
            writer.header(path, node)
            continue
        if node.linked and (name := first.setdefault(id(node), path)) != path:
            links.append((path, node, name))
        elif node.kind == tarfile.REGTYPE:
            files.setdefault(node.layer, []).append((path, node))
        else:
            others.append((path, node))
    for path, node in others:
        writer.header(path, node)
    return files, links


def contents_of(
    files: Mapping[int, list[tuple[str, LayerNode]]], layers: Sequence[Layer]
) -> Iterator[tuple[str, LayerNode, Iterator[bytes]]]:
    """Yield files (by the number of their layer: path and node) in the order of their layers, each with its bytes. They
    are to be taken before the next one's. What a layer says is checked again: it is read a second time. Raises
    DamagedLayer."""
    for index, layer in enumerate(layers):
        chosen = sorted(files.get(index, ()), key=lambda item: item[1].offset)
        if chosen:
            with opened(layer) as reader:
                for path, node in chosen:
                    yield path, node, _content(layer, reader, node)


def _content(layer: Layer, reader: ForwardReader, node: LayerNode) -> Iterator[bytes]:
    """Yield one file's bytes, a sparse file's with its zeros."""
    pieces = ((0, node.size),) if node.target is None else node.target
    with damage_is_reported(layer):
        reader.seek(node.offset)
    at = 0
    for piece in pieces:
        offset, length = _pair(piece)
        yield from _zeros(offset - at)
        with damage_is_reported(layer):
            yield from _pieces(reader, length)
        at = offset + length
    yield from _zeros(node.size - at)


def device_of(node: LayerNode) -> tuple[int, int]:
    """Return the numbers of a device, major and minor."""
    return _pair(node.target)


def _zeros(count: int) -> Iterator[bytes]:
    while count > 0:
        yield _ZEROS[: min(count, len(_ZEROS))]
        count -= len(_ZEROS)


def _pair(piece: object) -> tuple[int, int]:
    assert isinstance(piece, tuple)
    return int(piece[0]), int(piece[1])


def _pieces(reader: ForwardReader, length: int) -> Iterator[bytes]:
    while length:
        piece = reader.take(length)
        if not piece:
            raise EOFError("it ends in the middle of a file")
        length -= len(piece)
        yield piece


class _Writer:
    """Writes tar headers and bytes, with a running digest."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self.digest = hashlib.sha256()
        self.entries = -1  # the root does not count

    def write(self, data: bytes) -> None:
        self.digest.update(data)
        self._out.write(data)

    def zeros(self, count: int) -> None:
        for piece in _zeros(count):
            self.write(piece)

    def header(self, path: str, node: LayerNode, link: str = "") -> None:
        """One entry's header; a directory's name ends in a slash, the root is `./`."""
        info = tarfile.TarInfo(path or ".")
        info.type = tarfile.LNKTYPE if link else node.kind
        info.mode, info.uid, info.gid = node.mode, node.uid, node.gid
        headers = {} if link else {f"SCHILY.xattr.{name}": value for name, value in node.xattrs}
        if isinstance(node.mtime, str):
            headers["mtime"] = node.mtime
            info.mtime = int(node.mtime.partition(".")[0])
        else:
            info.mtime = node.mtime
        if link:
            info.linkname = link
        elif node.kind == tarfile.REGTYPE:
            info.size = node.size
        elif node.kind == tarfile.SYMTYPE:
            info.linkname = str(node.target)
        elif node.kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
            info.devmajor, info.devminor = device_of(node)
        if headers:
            info.pax_headers = headers
        self.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        self.entries += 1

    def end(self) -> None:
        self.zeros(1024)
