# SPDX-License-Identifier: Apache-2.0
"""Artefacts by their references: found without fetching a file, then fetched by digest.

A registry is asked by skopeo, with the user's own credentials, TLS and policy, as for images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import figures
from vmtailor.base.disk_full import CACHE_ELSEWHERE
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.drivers.image import artefact, artefact_layout, image_archive, skopeo
from vmtailor.drivers.image.allowance import ImageLimits, WrittenByTool, free_bytes
from vmtailor.drivers.image.artefact import DIGEST, Artefact, ArtefactKind, bad, digest_of
from vmtailor.drivers.image.artefact_layout import BlobFolder, LayoutWriter
from vmtailor.drivers.image.documents import DOCUMENT_BYTES
from vmtailor.drivers.image.image_reference import Reference, Source, parse_reference
from vmtailor.drivers.image.skopeo import Access

#: Sources that can hold artefacts: engines' own stores take images alone.
SOURCES = frozenset({Source.DOCKER, Source.OCI, Source.OCI_ARCHIVE})
_DOCUMENTS_BYTES = 32 << 20


@dataclass(frozen=True)
class ArtefactPlace:
    """A place that may hold an artefact. `reference`: as it was typed; `tag`, `digest`: empty where it has none;
    `path`: of a layout or archive, and None for a registry."""

    reference: str
    source: Source
    path: Path | None
    tag: str
    digest: str

    def pinned(self, digest: str) -> str:
        """Return its reference by a digest."""
        if self.path is None:
            return skopeo.by_digest(self.reference, digest)
        return f"{self.source}:{self.path}@{digest}"


@dataclass(frozen=True)
class FoundArtefact:
    """A manifest or an index at a place, with its bytes."""

    place: ArtefactPlace
    data: bytes
    layout: Path | None = None

    @property
    def digest(self) -> str:
        return digest_of(self.data)


def place(text: str) -> ArtefactPlace | None:
    """Return the place that a reference names; None for a reference of another kind, and for a path.

    Raises UserInputError for a prefix with nothing of use behind it."""
    prefix, colon, rest = text.partition(":")
    if not colon or prefix not in SOURCES:
        return None
    if prefix == Source.DOCKER:
        parsed = parse_reference(text)
        digest = parsed.rest.partition("@")[2]
        if digest and not DIGEST.fullmatch(digest):
            raise UserInputError(f"{text} is pinned by no SHA-256", hint="its form is NAME@sha256: and 64 digits")
        return ArtefactPlace(reference=parsed.text, source=parsed.source, path=None, tag="", digest=digest)
    before, at, hexadecimal = rest.rpartition("@sha256:")
    digest = f"sha256:{hexadecimal}" if at else ""
    if at and not DIGEST.fullmatch(digest):
        raise UserInputError(f"{text} is pinned by no SHA-256", hint="its form is PATH@sha256: and 64 digits")
    found = Reference(Source(prefix), before if at else rest)
    if not found.rest:
        raise UserInputError(f"nothing follows '{text}'", hint=f"for example: {prefix}:PATH")
    return ArtefactPlace(
        reference=text, source=found.source, path=found.path, tag=found.tag.removeprefix(":"), digest=digest
    )


def find(where: ArtefactPlace, access: Access, scratch: Path, limits: ImageLimits) -> FoundArtefact:
    """Return the manifest or index at a place: that of its digest, whatever it names by now, or of its tag.

    `scratch`: takes what an archive holds. Raises UserInputError (not there, damaged), HostError (no network)."""
    if where.path is None:
        found = FoundArtefact(where, skopeo.pin(where.reference, access).manifest)
    else:
        layout = where.path
        if where.source is Source.OCI_ARCHIVE:
            # Its documents alone: it may be a large image.
            layout = scratch / "documents"
            _extract(where, layout, limits, DOCUMENT_BYTES)
        elif not layout.is_dir():
            raise bad(where.reference, "is not there", "check its path")
        top = artefact_layout.top_of(layout, where.reference, where.tag, where.digest)
        found = FoundArtefact(where, artefact_layout.blobs_of(layout, where.reference).document(top), layout)
    if where.digest and found.digest != where.digest:
        raise bad(where.reference, f"is damaged or cut short: it is answered by {found.digest}")
    return found


def _extract(where: ArtefactPlace, folder: Path, limits: ImageLimits, most_bytes: int | None = None) -> None:
    assert where.path is not None
    image_archive.extract_layout(image_archive.BlobSource(where.path, where.reference), folder, limits, most_bytes)


def read(found: FoundArtefact, kind: ArtefactKind, access: Access, limits: ImageLimits) -> Artefact:
    """Return the artefact of a kind for the processor of `access`, before anything of it is fetched. Of one that is no
    index the manifest does not say its processor. Raises UserInputError, HostError."""
    name = found.place.reference
    artefact.require_type(found.data, kind, name)
    data = found.data
    if artefact.is_index(data, name):
        chosen = artefact.choose(data, kind, name, access.architecture)
        data = _document(found, chosen.digest, access)
        if digest_of(data) != chosen.digest or len(data) != chosen.size_bytes:
            raise bad(name, f"is damaged or cut short: {chosen.digest} is not what its index says")
    return artefact.read_manifest(data, kind, name, limits.unpacked_bytes)


def _document(found: FoundArtefact, digest: str, access: Access) -> bytes:
    if found.layout is None:
        return skopeo.pin(skopeo.by_digest(found.place.reference, digest), access).manifest
    return artefact_layout.blobs_of(found.layout, found.place.reference).document(digest)


def fetch(found: FoundArtefact, wanted: Artefact, access: Access, scratch: Path, limits: ImageLimits) -> BlobFolder:
    """Return the blobs of an artefact, fetched into `scratch` from a registry. Each is still to be checked while it is
    read. Raises UserInputError, HostError."""
    name = found.place.reference
    if found.place.source is Source.OCI_ARCHIVE:
        _extract(found.place, scratch / "layout", limits)
        return artefact_layout.blobs_of(scratch / "layout", name, ours=True)
    if found.layout is not None:
        return artefact_layout.blobs_of(found.layout, name)
    copied = scratch / "copied"
    announced = wanted.size_bytes
    if free_bytes(scratch) < announced:
        raise HostError(f"{name} needs {figures.file_bytes(announced)} on the disk of the cache", hint=CACHE_ELSEWHERE)
    written = WrittenByTool(
        folder=scratch,
        most_bytes=announced + _DOCUMENTS_BYTES,
        occupied=lambda: skopeo.occupied(scratch),
        refuse=lambda: bad(name, f"sends more than the {announced} bytes that it says"),
    )
    skopeo.copy_artefact(skopeo.by_digest(name, wanted.digest), copied, scratch, access, written)
    return BlobFolder(copied, name, ours=True)


def send(layout: LayoutWriter, digest: str, to: ArtefactPlace, access: Access, scratch: Path) -> None:
    """Copy what a layout names, all processors of it, to a registry, and ask the registry whether it has it. Raises
    UserInputError, HostError."""
    skopeo.send_artefact(layout.folder, to.reference, scratch, access)
    if skopeo.pin(to.pinned(digest), access).digest != digest:
        raise HostError(f"{to.reference} was sent, and its registry answers with something else", hint="push it again")
