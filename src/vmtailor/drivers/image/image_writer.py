# SPDX-License-Identifier: Apache-2.0
"""Images written as OCI layouts: one processor, one layer, the same bytes for the same files."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from vmtailor.drivers.image.artefact import INDEX, MANIFEST, REF_NAME, digest_of

_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
#: The whole name that containerd and docker give an image of a layout which they load.
_LOADED_AS = "io.containerd.image.name"
_BLOBS = "blobs/sha256"
_CHUNK, _LEVEL = 1 << 20, 6


@dataclass(frozen=True)
class ImageFile:
    """A file of an image. `name`: its path there, without the first `/`. `content`: a file here, or bytes.
    `owner`: number of user and group."""

    name: str
    content: Path | bytes
    owner: int = 0
    mode: int = 0o644


@dataclass(frozen=True)
class NewImage:
    """An image to write. `architecture`: as images name it. `name`, `tag`: of the image where it is loaded from the
    layout. `annotations`: of its manifest."""

    architecture: str
    name: str
    files: Sequence[ImageFile]
    tag: str = "latest"
    entrypoint: Sequence[str] = ()
    env: Sequence[str] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


class _Target(Protocol):
    def write(self, data: Any, /) -> int: ...


class _Hashed(io.RawIOBase):
    """Hands on what is written, and hashes it."""

    def __init__(self, target: _Target) -> None:
        self._target = target
        self.found = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.found.update(data)
        self.size += len(data)
        return self._target.write(data)


def write_image(folder: Path, image: NewImage) -> str:
    """Write an image as an OCI layout into a new folder, and return the digest of its manifest. Raises OSError."""
    blobs = folder / _BLOBS
    blobs.mkdir(parents=True)
    layer, diff_id = _layer(blobs, image.files)
    config = _json(
        {
            "architecture": image.architecture,
            "os": "linux",
            "config": {"Entrypoint": list(image.entrypoint), "Env": list(image.env)},
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _document(blobs, _CONFIG, config),
            "layers": [layer],
            **({"annotations": dict(image.annotations)} if image.annotations else {}),
        }
    )
    entry = {
        **_document(blobs, MANIFEST, manifest),
        "annotations": {REF_NAME: image.tag, _LOADED_AS: f"docker.io/library/{image.name}:{image.tag}"},
        "platform": {"architecture": image.architecture, "os": "linux"},
    }
    (folder / "index.json").write_bytes(_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}))
    (folder / "oci-layout").write_bytes(b'{"imageLayoutVersion":"1.0.0"}')
    return digest_of(manifest)


def _layer(blobs: Path, files: Sequence[ImageFile]) -> tuple[dict[str, Any], str]:
    """Write the layer, and return its descriptor and the digest of its uncompressed bytes."""
    new = blobs / ".layer"
    with new.open("wb") as file:
        packed = _Hashed(file)
        with gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as compressor:
            plain = _Hashed(compressor)
            with tarfile.open(mode="w|", fileobj=plain, format=tarfile.PAX_FORMAT, bufsize=_CHUNK) as archive:
                for one in _folders(files):
                    archive.addfile(one)
                for each in files:
                    _add(archive, each)
    digest = packed.found.hexdigest()
    new.replace(blobs / digest)
    return {"mediaType": _LAYER, "digest": f"sha256:{digest}", "size": packed.size}, f"sha256:{plain.found.hexdigest()}"


def _folders(files: Sequence[ImageFile]) -> list[tarfile.TarInfo]:
    """Return the entries of the folders that files lie in, upper ones first; each belongs to its first file's owner."""
    owners: dict[str, int] = {}
    for one in files:
        for parent in list(Path(one.name).parents)[:-1]:
            owners.setdefault(str(parent), one.owner)
    found = []
    for name in sorted(owners):
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, 0o755, owners[name], owners[name]
        found.append(info)
    return found


def _add(archive: tarfile.TarFile, one: ImageFile) -> None:
    info = tarfile.TarInfo(one.name)
    info.mode, info.uid, info.gid = one.mode, one.owner, one.owner
    if isinstance(one.content, bytes):
        info.size = len(one.content)
        archive.addfile(info, io.BytesIO(one.content))
        return
    with one.content.open("rb") as file:
        info.size = one.content.stat().st_size
        archive.addfile(info, file)


def _document(blobs: Path, kind: str, data: bytes) -> dict[str, Any]:
    digest = digest_of(data)
    (blobs / digest.removeprefix("sha256:")).write_bytes(data)
    return {"mediaType": kind, "digest": digest, "size": len(data)}


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
