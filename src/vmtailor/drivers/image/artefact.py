# SPDX-License-Identifier: Apache-2.0
"""Artefacts: our own folders of files in a registry or an OCI layout. Their manifests are a stranger's: every number,
name and media type in them is checked before anything that they name is fetched."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vmtailor.base import notation
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import plain_files
from vmtailor.drivers.image.documents import DOCUMENT_BYTES, parse_document, shown
from vmtailor.model.architecture import image_name

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
#: Beginning of every artifactType of ours.
OURS = "application/vnd.vmtailor."
#: The annotation that names a blob's file, and the one that names an entry of a layout.
TITLE, REF_NAME = "org.opencontainers.image.title", "org.opencontainers.image.ref.name"
#: Suffix of the media type of a file that travels compressed by zstd.
PACKED = "+zstd"
#: Files of one artefact, and processors of one index.
MOST_FILES, MOST_PROCESSORS = 1000, 64
#: Media types of the configuration of an image.
_IMAGE_CONFIGS = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_AGAIN = "get it again, or make it again"


@dataclass(frozen=True)
class ArtefactKind:
    """A kind of artefact. `name`: its word in media types; `noun`: the word with its article in messages."""

    name: str
    noun: str

    @property
    def type(self) -> str:
        """Return the artifactType of its manifests and indices."""
        return f"{OURS}{self.name}.v1"

    @property
    def config_type(self) -> str:
        """Return the media type of its configuration, a JSON document."""
        return f"application/vnd.vmtailor.{self.name}.config.v1+json"

    @property
    def file_type(self) -> str:
        """Return the media type of its files; `PACKED` follows where one is compressed."""
        return f"application/vnd.vmtailor.{self.name}.file.v1"


@dataclass(frozen=True)
class ArtefactBlob:
    """A blob. `digest`: with its `sha256:`; `size_bytes`: as it travels; `title`: the name of its file."""

    media_type: str
    digest: str
    size_bytes: int
    title: str = ""

    @property
    def packed(self) -> bool:
        """Return whether it travels compressed."""
        return self.media_type.endswith(PACKED)

    @property
    def hex(self) -> str:
        return self.digest.removeprefix("sha256:")


@dataclass(frozen=True)
class Artefact:
    """One artefact, for one processor. `digest`: of its manifest."""

    kind: ArtefactKind
    digest: str
    config: ArtefactBlob
    files: tuple[ArtefactBlob, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all its blobs, as they travel."""
        return self.config.size_bytes + sum(one.size_bytes for one in self.files)


def digest_of(data: bytes) -> str:
    """Return the digest of a document, with its `sha256:`."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def bad(name: str, what: str, hint: str = _AGAIN) -> UserInputError:
    """Return the error for an artefact, `name` in messages, that is not sound."""
    return UserInputError(f"{name} {what}", hint=hint)


def type_of(data: bytes, name: str) -> str:
    """Return the artifactType that a manifest or an index says; empty for an image. Raises BadConfig for what is
    neither."""
    found = parse_document(data, f"the manifest of {name}", folded=True).get("artifacttype")
    return found[:200] if isinstance(found, str) else ""


def may_be_image(data: bytes, name: str) -> bool:
    """Return whether a manifest or an index is that of an image, which may say an artifactType, too."""
    document = parse_document(data, f"the manifest of {name}", folded=True)
    if not document.get("artifacttype"):
        return True
    config = document.get("config")
    kind = config.get("mediatype") if isinstance(config, dict) else None
    return kind in _IMAGE_CONFIGS


def require_type(data: bytes, kind: ArtefactKind, name: str) -> None:
    """Raise UserInputError for a manifest or an index of another type."""
    found = type_of(data, name)
    if not found:
        raise bad(name, f"is an image, not {kind.noun}", "check its name and its tag")
    if found != kind.type:
        raise bad(name, f"is an artefact of the type {shown(found)}, not {kind.noun}", "check its name and its tag")


def is_index(data: bytes, name: str) -> bool:
    """Return whether a document lists manifests, and is none itself. Raises BadConfig."""
    document = parse_document(data, f"the manifest of {name}", folded=True)
    if "manifests" in document and ("layers" in document or "config" in document):
        raise bad(name, "has a manifest that is an index at once")
    return "manifests" in document


def choose(data: bytes, kind: ArtefactKind, name: str, architecture: str) -> ArtefactBlob:
    """Return the manifest that an index has for a processor, as images name it. Raises UserInputError, BadConfig."""
    document = parse_document(data, f"the index of {name}", folded=True)
    found: list[ArtefactBlob] = []
    others: set[str] = set()
    for item in _list(document, "manifests", name, MOST_PROCESSORS, "processors"):
        platform = item.get("platform")
        system, processor = (
            (platform.get("os"), platform.get("architecture")) if isinstance(platform, dict) else ("", "")
        )
        if not isinstance(processor, str) or system != "linux":
            raise bad(name, "has an index that does not say which processor each part is for")
        if image_name(processor) == architecture:
            found.append(_descriptor(item, name))
        else:
            others.add(image_name(processor)[:40])
    if len(found) > 1:
        raise bad(name, f"has {len(found)} parts for the processor {architecture}")
    if not found:
        there = ", ".join(sorted(others)) or "none"
        raise bad(
            name, f"has no part for the processor {architecture}; it has {shown(there)}", "name one of them with --arch"
        )
    if found[0].media_type != MANIFEST:
        raise bad(name, f"has an index within its index, or {shown(found[0].media_type)}")
    return found[0]


def read_manifest(data: bytes, kind: ArtefactKind, name: str, most_bytes: int) -> Artefact:
    """Return the artefact of a manifest. `most_bytes`: of all its blobs as they travel.

    Raises UserInputError, BadConfig for anything but a manifest of this kind whose files have plain names, each
    once."""
    if is_index(data, name):
        raise bad(name, "has an index within its index")
    require_type(data, kind, name)
    document = parse_document(data, f"the manifest of {name}", folded=True)
    config = document.get("config")
    if not isinstance(config, dict):
        raise bad(name, "has no configuration")
    described = _descriptor(config, name)
    if described.media_type != kind.config_type:
        raise bad(name, f"has a configuration of the type {shown(described.media_type)}")
    if described.size_bytes > DOCUMENT_BYTES:
        raise bad(name, f"has a configuration of more than {notation.mebibytes(DOCUMENT_BYTES)}")
    files, titles = [], set[str]()
    for item in _list(document, "layers", name, MOST_FILES, "files"):
        one = _descriptor(item, name)
        if one.media_type not in (kind.file_type, kind.file_type + PACKED):
            raise bad(name, f"has a file of the type {shown(one.media_type)}")
        if not plain_files.is_name(one.title):
            raise bad(name, f"has a file of the name {shown(one.title)}, which is no plain name")
        if one.title in titles:
            raise bad(name, f"has the file {one.title} twice")
        titles.add(one.title)
        files.append(one)
    annotations = document.get("annotations")
    said = annotations if isinstance(annotations, dict) else {}
    found = Artefact(
        kind=kind,
        digest=digest_of(data),
        config=described,
        files=tuple(files),
        annotations={key: value for key, value in said.items() if isinstance(value, str)},
    )
    if found.size_bytes > most_bytes:
        raise too_large(name, found.size_bytes, most_bytes)
    return found


def too_large(name: str, size_bytes: int, most_bytes: int) -> UserInputError:
    """Return the error for an artefact that is to have more bytes than are taken."""
    most = notation.size_text(most_bytes)
    return bad(name, f"has {size_bytes} bytes, and at most {most} are taken", "if you trust it: --max-image-size")


def _descriptor(item: dict[str, Any], name: str) -> ArtefactBlob:
    kind, digest, size = item.get("mediatype"), item.get("digest"), item.get("size")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise bad(name, f"names a blob by {shown(digest, 80)}, which is no SHA-256")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**63:
        raise bad(name, f"gives {shown(size)} as the size of {digest}")
    if item.get("urls"):
        raise bad(name, f"has {digest} fetched from elsewhere", "nothing is fetched from places that an artefact names")
    annotations = item.get("annotations")
    title = annotations.get(TITLE) if isinstance(annotations, dict) else ""
    return ArtefactBlob(
        media_type=kind if isinstance(kind, str) else "",
        digest=digest,
        size_bytes=size,
        title=title if isinstance(title, str) else "",
    )


def _list(document: dict[str, Any], key: str, name: str, most: int, what: str) -> Iterator[dict[str, Any]]:
    values = document.get(key)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise bad(name, f"has no list of {what}")
    if len(values) > most:
        raise bad(name, f"has {len(values)} {what}; at most {most} are read")
    yield from values
