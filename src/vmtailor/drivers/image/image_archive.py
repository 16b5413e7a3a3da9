# SPDX-License-Identifier: Apache-2.0
"""Images in one tar file, of `docker save` or an OCI layout: read within limits, before a copier does it without.

A copier would unpack an OCI archive as it is, with its links, pipes and devices. It would unpack compressed layers of
the other kind to the disk, however large they are. So this module reads the archive first."""

from __future__ import annotations

import contextlib
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import open_regular
from vmtailor.drivers.image.allowance import Allowance, ImageLimits, Room
from vmtailor.drivers.image.decompress import CHUNK, chunks_of, is_compressed
from vmtailor.drivers.image.documents import DOCUMENT_BYTES, BadConfig, parse_json
from vmtailor.drivers.image.layer_reader import (
    HEADER_BYTES,
    DamagedLayer,
    ForwardReader,
    Layer,
    damage_is_reported,
    split_path,
)

#: Members of one archive; an image has some for each layer.
_MEMBERS = 100_000
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE)
_KINDS = {
    tarfile.LNKTYPE: "a hard link", tarfile.SYMTYPE: "a symbolic link", tarfile.FIFOTYPE: "a named pipe",
    tarfile.CHRTYPE: "a device", tarfile.BLKTYPE: "a device",
}  # fmt: skip
#: Files of an OCI layout; others are left out.
_OCI = re.compile(r"oci-layout|index\.json|blobs/[a-z0-9]{1,16}/[0-9a-f]{1,128}")
_ONCE = ("manifest.json", "index.json", "oci-layout", "repositories")


@dataclass(frozen=True)
class BlobSource:
    """An archive: its file, and what messages call it."""

    path: Path
    name: str


@dataclass(frozen=True)
class _Member:
    """A file or a link of an archive. `name`: below its root, without `.`; `link` is empty for files."""

    name: str
    size: int
    link: str


def names(source: BlobSource) -> Iterator[str]:
    """Yield the names of the members, as far as they are asked for. Raises UserInputError for a file that is no
    archive."""
    with _opened(source, ImageLimits(2**62, 2**62, 2**62)) as reader:
        for member in _members(reader, source, ImageLimits(), links=frozenset(_KINDS)):
            yield member.name


def check_docker(source: BlobSource, limits: ImageLimits, scratch: Path) -> None:
    """Look through an uncompressed archive of `docker save`. Its compressed layers are counted as what comes out of
    them. Raises UserInputError, TooLarge, BadConfig; HostError when `scratch` has no room."""
    budget = Allowance(limits)
    with _opened(source, limits) as reader:
        # Old versions of Docker link equal layers to each other; the copier looks for the target in the archive.
        for member in _members(reader, source, limits, links=frozenset({tarfile.SYMTYPE})):
            if member.link:
                continue
            if member.name.endswith(".json") and "/" not in member.name:
                if member.size > DOCUMENT_BYTES:
                    raise BadConfig(f"{member.name} is larger than {DOCUMENT_BYTES} bytes")
                parse_json(_content(reader, member.size), member.name)
                budget.spend(member.size, source.name)
            else:
                _count(reader, member, source, budget, scratch)


def extract_layout(source: BlobSource, folder: Path, limits: ImageLimits, most_bytes: int | None = None) -> None:
    """Write the OCI layout in an archive, compressed or not, to a new folder: its files, nothing else; those of more
    than `most_bytes` are left out. Raises UserInputError, TooLarge; HostError when there is no room."""
    folder.mkdir()
    room, written = Room(folder), set[str]()
    with _opened(source, limits) as reader:
        for member in _members(reader, source, limits):
            if not _OCI.fullmatch(member.name) or (most_bytes is not None and member.size > most_bytes):
                continue
            if member.name in written:
                raise _hostile(source, f"has {member.name[:100]} twice")
            written.add(member.name)
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as out:
                _copy(reader, member.size, out, source, room)


def _copy(reader: ForwardReader, size: int, out: IO[bytes], source: BlobSource, room: Room) -> None:
    """The next `size` bytes of an archive. Raises UserInputError when it has fewer, HostError without room."""
    left = size
    while left:
        with _damage(source):
            piece = reader.take(min(left, CHUNK))
            if not piece:
                raise EOFError("it ends too early")
        left -= len(piece)
        room.take(len(piece))
        out.write(piece)


@contextlib.contextmanager
def _opened(source: BlobSource, limits: ImageLimits) -> Iterator[ForwardReader]:
    open_regular(source.path, "the archive", hint="give a file that `docker save` or skopeo wrote").close()
    if not is_compressed(source.path):
        with source.path.open("rb") as file:
            yield ForwardReader(iter(lambda: file.read(CHUNK), b""), jump=file.seek)
        return
    budget = Allowance(limits)
    with contextlib.closing(chunks_of(source.path)) as chunks:
        yield ForwardReader(chunks, lambda size: budget.spend(size, source.name))


def _members(
    reader: ForwardReader, source: BlobSource, limits: ImageLimits, links: frozenset[bytes] = frozenset()
) -> Iterator[_Member]:
    """Yield files, and links of the kinds `links`; folders are passed over, all else is refused."""
    seen, total, count = set[str](), Allowance(limits), 0
    archive = _Archive(reader, source)
    while (info := archive.next()) is not None:
        count += 1
        if count > _MEMBERS:
            raise _hostile(source, f"holds more than {_MEMBERS} files")
        if info.isdir():
            continue
        name = "/".join(archive.parts(info.name))
        if info.type in links:
            yield _Member(name, 0, info.linkname or "?")
            continue
        if info.type not in _FILES:
            raise _hostile(source, f"holds {name[:200]!r}, which is {_KINDS.get(info.type, 'of an unknown kind')}")
        total.spend(max(0, info.size), source.name)
        if getattr(info, "sparse", None) is not None or info.size < 0:
            raise _hostile(source, f"holds {name[:200]!r}, a sparse file")
        if name in _ONCE and name in seen:
            raise _hostile(source, f"has {name} twice")
        seen.add(name)
        yield _Member(name, info.size, "")


class _Archive:
    """The headers, with whatever is wrong with them as an error of the user's family."""

    def __init__(self, reader: ForwardReader, source: BlobSource) -> None:
        self._reader = reader
        self._source = source
        with _damage(source):
            self._tar = tarfile.TarFile(fileobj=reader, mode="r", encoding="utf-8", errors="surrogateescape")  # type: ignore[arg-type]

    def next(self) -> tarfile.TarInfo | None:
        self._reader.budget = HEADER_BYTES
        with _damage(self._source):
            info = self._tar.next()
            if info is None and self._reader.last.strip(b"\0"):
                raise ValueError(f"the header at byte {self._tar.offset} makes no sense")
        self._tar.members.clear()  # type: ignore[attr-defined]  # it would keep every header in memory
        if info is not None and info.type in _FILES:
            self._reader.data_end = info.offset_data + max(0, info.size)
        return info

    def parts(self, name: str) -> tuple[str, ...]:
        """Return a name's components. A copier looks for names as they are written, so none may go up."""
        with _damage(self._source):
            if ".." in name.split("/"):
                raise ValueError(f"the name {name[:200]!r} leads out of a folder")
            return split_path(name, "")


def _content(reader: ForwardReader, size: int) -> bytes:
    pieces = []
    while size and (piece := reader.take(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _count(reader: ForwardReader, member: _Member, source: BlobSource, budget: Allowance, scratch: Path) -> None:
    """Count what a member unpacks to; one that is not compressed is not read."""
    head = _content(reader, min(6, member.size))
    part = scratch / "part"
    part.write_bytes(head)
    what = f"{member.name[:100]} in {source.name}"
    try:
        if not is_compressed(part):
            budget.spend(member.size, what)
            return
        room = Room(scratch)
        with part.open("ab") as out:
            _copy(reader, member.size - len(head), out, source, room)
        with damage_is_reported(Layer(part, what)):
            for piece in chunks_of(part):
                budget.spend(len(piece), what)
    finally:
        part.unlink()


@contextlib.contextmanager
def _damage(source: BlobSource) -> Iterator[None]:
    """Return a parser's message about bad bytes as an error about this archive."""
    try:
        with damage_is_reported(Layer(source.path, source.name)):
            yield
    except DamagedLayer as error:
        raise _hostile(source, f"is no archive of an image, or is damaged: {error.what}") from error


def _hostile(source: BlobSource, what: str) -> UserInputError:
    return UserInputError(f"{source.name} {what}", hint="make it again with `docker save` or skopeo")
