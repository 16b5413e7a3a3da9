# SPDX-License-Identifier: Apache-2.0
"""OCI layouts of artefacts: written file by file, and read with every blob checked against its digest.

A blob is read in pieces of bounded size. Its bytes are counted while they come, compressed and uncompressed, whatever
a manifest says."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import zstandard

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import durable, plain_files
from vmtailor.base.files.holes import copy_with_holes
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.drivers.image.allowance import Room
from vmtailor.drivers.image.artefact import (
    DIGEST,
    INDEX,
    MANIFEST,
    PACKED,
    REF_NAME,
    TITLE,
    ArtefactBlob,
    ArtefactKind,
    bad,
    digest_of,
)
from vmtailor.drivers.image.documents import DOCUMENT_BYTES, parse_document

_LAYOUT, _TOP = "oci-layout", "index.json"
_BLOBS = "blobs/sha256"
_VERSION = b'{"imageLayoutVersion":"1.0.0"}'
#: Bytes that are read at a time.
_CHUNK = 1 << 18
#: Window of zstd: more memory is not given to a stranger's stream.
_WINDOW_BYTES = 128 << 20
_LEVEL = 9
#: A file travels compressed where this leaves at most seven parts of eight.
_PARTS, _OF = 7, 8
_NO_ARTEFACT = "give an OCI layout that vmtailor or skopeo wrote"


# ---- written


class LayoutWriter:
    """Writes artefacts into an OCI layout. Nothing that is there changes until `name` is called."""

    def __init__(self, folder: Path, kind: ArtefactKind) -> None:
        """Begin a layout in a folder, which is made, or go on with one that is there. Raises UserInputError for a
        folder with something else."""
        self.folder = folder
        self.kind = kind
        if folder.exists() and not (folder / _LAYOUT).is_file() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserInputError(f"{folder} exists and is no OCI layout", hint="name another folder")
        (folder / _BLOBS).mkdir(parents=True, exist_ok=True)
        if not (folder / _LAYOUT).is_file():
            (folder / _LAYOUT).write_bytes(_VERSION)

    def file(self, path: Path, title: str, *, linked: bool = False) -> tuple[ArtefactBlob, str]:
        """Add a file, compressed if that makes it smaller. Returns its blob, and the SHA-256 of its content in hex.
        `linked`: an uncompressed one may be a hard link, in a layout that is soon removed."""
        raw = hashlib.sha256()
        handle, name = tempfile.mkstemp(dir=self.folder / _BLOBS, prefix=".new-")
        new = Path(name)
        try:
            with os.fdopen(handle, "wb") as made, path.open("rb") as source:
                size, packed = _pack(source, made, raw)
            packs = new.stat().st_size * _OF <= size * _PARTS
            if not packs:
                new.unlink()
                _link_or_copy(path, new, linked=linked)
            digest = f"sha256:{(packed if packs else raw).hexdigest()}"
            blob = ArtefactBlob(
                media_type=self.kind.file_type + PACKED * packs,
                digest=digest,
                size_bytes=new.stat().st_size,
                title=title,
            )
            if not linked:
                new.chmod(0o644)
            new.replace(self._blob(digest))
        finally:
            new.unlink(missing_ok=True)
        return blob, raw.hexdigest()

    def artefact(
        self, config: bytes, files: Iterable[ArtefactBlob], annotations: Mapping[str, str] | None = None
    ) -> ArtefactBlob:
        """Add the manifest of an artefact with this configuration, a JSON document, and return its descriptor."""
        held = ArtefactBlob(self.kind.config_type, self._document(config), len(config))
        document: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": self.kind.type,
            "config": _descriptor(held),
            "layers": [{**_descriptor(one), "annotations": {TITLE: one.title}} for one in files],
            **({"annotations": dict(annotations)} if annotations else {}),
        }
        return self._added(document)

    def index(self, parts: Mapping[str, ArtefactBlob]) -> ArtefactBlob:
        """Add an index of manifests by their processors, as images name these, and return its descriptor."""
        # skopeo 1.9 copies no index whose entries say their artifactType.
        entries = [
            {**_descriptor(part), "platform": {"architecture": processor, "os": "linux"}}
            for processor, part in parts.items()
        ]
        document = {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "artifactType": self.kind.type,
            "manifests": entries,
        }
        return self._added(document)

    def name(self, top: ArtefactBlob, tag: str = "") -> None:
        """Make the layout name a manifest or an index, by a tag or as its only one. An entry of the same tag goes."""
        entries = [one for one in _entries(self.folder) if tag and _tag_of(one) != tag]
        made = {**_descriptor(top), **({"annotations": {REF_NAME: tag}} if tag else {})}
        document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [*entries, made]}
        durable.settle(self.folder)
        write_atomic(self.folder / _TOP, _json(document))

    def _added(self, document: dict[str, Any]) -> ArtefactBlob:
        data = _json(document)
        return ArtefactBlob(str(document["mediaType"]), self._document(data), len(data))

    def _document(self, data: bytes) -> str:
        digest = digest_of(data)
        write_atomic(self._blob(digest), data)
        return digest

    def _blob(self, digest: str) -> Path:
        return self.folder / _BLOBS / digest.removeprefix("sha256:")


def _pack(source: BufferedReader, made: IO[bytes], raw: hashlib._Hash) -> tuple[int, hashlib._Hash]:
    """Compress a file. Returns its length, and the digest of what was written; its own goes to `raw`."""
    size, packed = 0, hashlib.sha256()
    compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    while piece := source.read(_CHUNK):
        size += len(piece)
        raw.update(piece)
        out = compressor.compress(piece)
        packed.update(out)
        made.write(out)
    out = compressor.flush()
    packed.update(out)
    made.write(out)
    return size, packed


def _link_or_copy(path: Path, new: Path, *, linked: bool) -> None:
    if linked:
        with contextlib.suppress(OSError):
            os.link(path, new)
            return
    copy_with_holes(path, new)


def _descriptor(blob: ArtefactBlob) -> dict[str, Any]:
    return {"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size_bytes}


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def write_archive(folder: Path, path: Path) -> None:
    """Write a layout as one tar: the same layout gives the same bytes. Raises OSError."""
    with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=f".{path.name}-") as scratch:
        new = Path(scratch, "archive")
        with tarfile.open(new, "w", format=tarfile.PAX_FORMAT) as archive:
            for name in (_LAYOUT, _TOP, *sorted(f"{_BLOBS}/{one.name}" for one in (folder / _BLOBS).iterdir())):
                info = tarfile.TarInfo(name)
                info.size, info.mode = (folder / name).stat().st_size, 0o644
                with (folder / name).open("rb") as file:
                    archive.addfile(info, file)
        new.chmod(0o644)
        durable.place(new, path)


# ---- read


@dataclass(frozen=True)
class BlobFolder:
    """Blobs below a folder, by their digests: of a layout, or of a copy by skopeo. `name`: of the artefact in
    messages; `ours`: the folder is our own and soon removed, so that files can be linked."""

    folder: Path
    name: str
    ours: bool = False

    def document(self, digest: str) -> bytes:
        """Return the bytes of a document. Raises UserInputError for one that is missing, too large or changed."""
        with self._opened(digest) as file:
            data = file.read(DOCUMENT_BYTES + 1)
        if len(data) > DOCUMENT_BYTES:
            raise bad(self.name, f"has the document {digest} of more than {DOCUMENT_BYTES} bytes")
        if digest_of(data) != digest:
            raise self._changed(digest)
        return data

    def write(self, blob: ArtefactBlob, target: Path, most_bytes: int) -> str:
        """Write a blob's content to a new file, uncompressed, with holes for zeros. Returns its SHA-256 in hex.

        Raises UserInputError for a blob that is missing, longer or shorter than its manifest says, changed, damaged,
        or of more than `most_bytes` when unpacked; HostError when the disk is about to be full."""
        with self._opened(blob.digest) as file:
            counted = _Counted(file, blob.size_bytes)
            if self.ours and not blob.packed:
                for _ in _pieces(counted):
                    pass
                found = counted.found.hexdigest()
                os.link(self.folder / blob.hex, target)
            else:
                with target.open("xb") as made:
                    found = self._unpack(counted, blob, made, most_bytes)
        if counted.total != blob.size_bytes or counted.found.hexdigest() != blob.hex:
            raise self._changed(blob.digest)
        if blob.size_bytes > most_bytes and not blob.packed:
            raise self._more(blob, most_bytes)
        return found

    def _unpack(self, counted: _Counted, blob: ArtefactBlob, made: IO[bytes], most_bytes: int) -> str:
        """Write what a blob unpacks to, and read the blob to its end. Returns the SHA-256 of what was written."""
        found, size, room = hashlib.sha256(), 0, Room(Path(made.name).parent)
        for piece in _unpacked(counted, self.name, blob) if blob.packed else _pieces(counted):
            size += len(piece)
            if size > most_bytes:
                raise self._more(blob, most_bytes)
            found.update(piece)
            if piece.count(0) == len(piece):
                made.seek(len(piece), os.SEEK_CUR)
            else:
                room.take(len(piece))
                made.write(piece)
        made.truncate(size)
        for _ in _pieces(counted):
            pass
        return found.hexdigest()

    def _more(self, blob: ArtefactBlob, most_bytes: int) -> UserInputError:
        return bad(self.name, f"has more in its file {blob.title} than the {most_bytes} bytes that it says")

    @contextlib.contextmanager
    def _opened(self, digest: str) -> Iterator[BufferedReader]:
        """Open a blob that is a regular file in the folder, by no link."""
        match = DIGEST.fullmatch(digest)
        if match is None:
            raise bad(self.name, f"names a blob by {digest[:80]!r}, which is no SHA-256")
        if not plain_files.has(self.folder, match[1]):
            raise bad(self.name, f"lacks its blob {digest}, or has something else than a file there")
        with plain_files.opened(self.folder, match[1]) as file:
            yield file

    def _changed(self, digest: str) -> UserInputError:
        return bad(self.name, f"is damaged or cut short: the content of {digest} does not match its digest")


class _Counted:
    """A blob's bytes as they travel: counted, hashed, and never more than one beyond what is announced."""

    def __init__(self, file: BufferedReader, announced: int) -> None:
        self._file = file
        self._announced = announced
        self.total = 0
        self.found = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(min(size if size >= 0 else _CHUNK, self._announced + 1 - self.total))
        self.total += len(piece)
        self.found.update(piece)
        return piece


def _pieces(counted: _Counted) -> Iterator[bytes]:
    while piece := counted.read(_CHUNK):
        yield piece


def _unpacked(counted: _Counted, name: str, blob: ArtefactBlob) -> Iterator[bytes]:
    """Yield what a compressed blob unpacks to, in pieces of bounded size."""
    unpack = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    try:
        with unpack.stream_reader(counted, read_size=_CHUNK) as reader:  # type: ignore[arg-type]
            while piece := reader.read(_CHUNK):
                yield piece
    except zstandard.ZstdError as error:
        raise bad(name, f"is damaged: zstd cannot unpack its file {blob.title}") from error


def blobs_of(folder: Path, name: str, *, ours: bool = False) -> BlobFolder:
    """Return the blobs of a layout. Raises UserInputError where its folders are links, or not there."""
    for inner in (folder / "blobs", folder / _BLOBS):
        if not os.path.lexists(inner) or not stat.S_ISDIR(inner.lstat().st_mode):
            raise bad(name, f"has no folder {inner.relative_to(folder)}", _NO_ARTEFACT)
    return BlobFolder(folder / _BLOBS, name, ours)


def top_of(folder: Path, name: str, tag: str = "", digest: str = "") -> str:
    """Return the digest of the manifest or index that a layout names: by a tag, by a digest, or as its only one.

    Raises UserInputError, BadConfig."""
    found = [str(one.get("digest")) for one in _entries(folder, name) if not tag or _tag_of(one) == tag]
    if digest:
        return digest
    if len(found) != 1:
        many = "several entries" if found else "no entry"
        raise bad(name, f"has {many}{f' of the tag {tag!r}' if tag else ''}", "name one with :TAG, or with @sha256:…")
    return found[0]


def changes_with(path: Path) -> Path:
    """Return the file that changes when a layout, or an archive of one, gets another entry."""
    return path / _TOP if path.is_dir() else path


def _entries(folder: Path, name: str = "") -> list[dict[str, Any]]:
    """Return the entries of a layout; none where it is new."""
    if not os.path.lexists(folder / _TOP) and not name:
        return []
    data = plain_files.read(folder, _TOP, DOCUMENT_BYTES)
    found = parse_document(data, f"index.json of {name or folder}").get("manifests")
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise bad(name or str(folder), "has an index.json without a list of manifests", _NO_ARTEFACT)
    return found


def _tag_of(entry: dict[str, Any]) -> str:
    annotations = entry.get("annotations")
    found = annotations.get(REF_NAME) if isinstance(annotations, dict) else ""
    return found if isinstance(found, str) else ""
