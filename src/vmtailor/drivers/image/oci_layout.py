# SPDX-License-Identifier: Apache-2.0
"""An OCI layout on disk, looked at before a copier reads it: it would wait for a pipe for ever, follow links to any
file of this host, and fetch layers from wherever they say."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import kind_of, open_regular
from vmtailor.drivers.image import manifests
from vmtailor.drivers.image.allowance import ImageLimits, too_much
from vmtailor.drivers.image.documents import DOCUMENT_BYTES, BadConfig

_DIGEST = re.compile(r"(sha256|sha384|sha512):([0-9a-f]{64,128})")
#: Files of one layout that are looked at.
_FILES = 100_000


def check(folder: Path, name: str, architecture: str, limits: ImageLimits) -> str:
    """Refuse a layout, `name` in messages, that does more than hold an image. Returns the architecture as its lists
    spell it. Raises UserInputError, BadConfig or TooLarge."""
    for count, path in enumerate(_files(folder, name)):
        if count >= _FILES:
            raise UserInputError(f"{name} holds more than {_FILES} files", hint="take the image's own out of it")
        _require_file(folder, path, name)
    index = folder / "index.json"
    if not index.is_file():
        raise BadConfig(f"{name} has no index.json")

    def read(digest: str) -> bytes | None:
        path = _blob(folder, digest)
        return None if path is None else _document(path)

    found = manifests.check(_document(index), name, read, architecture, limits, title=manifests.LAYOUT)
    present = [_blob(folder, digest) for digest in found.blobs]
    if sum(path.stat().st_size for path in present if path is not None) > limits.unpacked_bytes:
        raise too_much(name, limits)
    return found.architecture


def _document(path: Path) -> bytes:
    """Return a document's bytes, at most one more than is allowed: that one tells that it is too large."""
    with open_regular(path, "the document") as file:
        return file.read(DOCUMENT_BYTES + 1)


def _blob(folder: Path, digest: str) -> Path | None:
    match = _DIGEST.fullmatch(digest)
    path = folder / "blobs" / match[1] / match[2] if match else None
    return path if path is not None and path.is_file() else None


def _files(folder: Path, name: str) -> Iterator[Path]:
    """Yield all that a copier could open."""
    for top in ("oci-layout", "index.json"):
        if os.path.lexists(folder / top):
            yield folder / top
    blobs = folder / "blobs"
    for inner in (blobs, *_listed(blobs, folder, name)):
        yield from _listed(inner, folder, name) if inner != blobs else ()


def _listed(path: Path, folder: Path, name: str) -> list[Path]:
    """Return the entries of a folder of the layout, which may be a link to another folder of it."""
    if not os.path.lexists(path):
        return []
    if not stat.S_ISDIR(_status(folder, path, name).st_mode):
        raise _refused(name, path, folder, "no folder")
    return sorted(path.iterdir())


def _status(folder: Path, path: Path, name: str) -> os.stat_result:
    """Return the status of a path's target, links followed; it must stay inside."""
    status = path.lstat()
    if not stat.S_ISLNK(status.st_mode):
        return status
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise _refused(name, path, folder, "a symbolic link to nothing") from None
    if not target.is_relative_to(folder.resolve()):
        raise UserInputError(
            f"{name} holds {path.relative_to(folder)}, a symbolic link that leads out of the layout",
            hint="copy it with its links followed: cp -rL",
        )
    return target.stat()


def _require_file(folder: Path, path: Path, name: str) -> None:
    status = _status(folder, path, name)
    if not stat.S_ISREG(status.st_mode):
        raise _refused(name, path, folder, kind_of(status.st_mode))


def _refused(name: str, path: Path, folder: Path, what: str) -> UserInputError:
    return UserInputError(
        f"{name} holds {path.relative_to(folder)}, which is {what}",
        hint="an OCI layout holds files alone: fetch or build it again",
    )
