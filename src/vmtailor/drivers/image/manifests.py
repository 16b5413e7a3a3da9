# SPDX-License-Identifier: Apache-2.0
"""Check the targets of manifests and lists of them before anything is copied. The copier would follow a layer's URL to
wherever it leads, and fetch as much as is there.

Keys are read as programs in Go read them, in any case: what we do not see must not be seen by the copier either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image.allowance import LAYERS, ImageLimits, too_much
from vmtailor.drivers.image.documents import BadConfig, parse_document, shown
from vmtailor.model.architecture import image_name

#: Manifests that one reference may lead to, and lists within lists.
_MANIFESTS = 200
_NESTED = 4
#: Parts of media types of what is not kept with the image.
_ELSEWHERE = ("nondistributable", ".foreign.")

#: Title of the document at the top of an OCI layout.
LAYOUT = "index.json"

#: Gives the document of a digest; None where it is not there, which the copier will say.
Reader = Callable[[str], "bytes | None"]


@dataclass(frozen=True)
class Followed:
    """The digests of all configurations and layers that the copier could fetch, and the architecture as its lists spell
    it, by which the copier finds it there."""

    blobs: frozenset[str]
    architecture: str


def check(
    top: bytes, name: str, read: Reader, architecture: str, limits: ImageLimits, *, title: str = "the manifest"
) -> Followed:
    """Follow a manifest or a list of them, `title` of `name` in messages, as far as a copier for linux on
    `architecture` could. In the index of a layout the copier looks at names alone, and at no platform.

    Raises BadConfig (no sense), UserInputError (content from elsewhere), TooLarge (more than the limit of one image is
    announced)."""
    return _Walk(read, architecture, limits, name).walk(top, f"{title} of {name}", layout=title == LAYOUT)


class _Walk:
    def __init__(self, read: Reader, architecture: str, limits: ImageLimits, name: str) -> None:
        self._read = read
        self._architecture = architecture
        self._limits = limits
        self._name = name
        self._seen: set[str] = set()
        self._blobs: set[str] = set()
        self._spelled: set[str] = set()

    def walk(self, top: bytes, title: str, *, layout: bool) -> Followed:
        self._document(top, title, 0, layout)
        wanted = self._architecture
        spelled = wanted if wanted in self._spelled else min(self._spelled, default=wanted)
        return Followed(frozenset(self._blobs), spelled)

    def _document(self, data: bytes, name: str, depth: int, layout: bool = False) -> None:
        document = parse_document(data, name, folded=True)
        if "manifests" not in document:
            self._manifest(document, name)
            return
        if depth == _NESTED:
            raise BadConfig(f"{name} is a list within {_NESTED} lists")
        for item in _list(document, "manifests", name):
            if not layout and not self._ours(item):
                continue
            self._check_descriptor(item, name)
            digest = item.get("digest")
            if not isinstance(digest, str) or digest in self._seen:
                continue
            self._seen.add(digest)
            if len(self._seen) > _MANIFESTS:
                raise BadConfig(f"{self._name} lists more than {_MANIFESTS} manifests for this machine")
            inner = self._read(digest)
            if inner is not None:
                self._document(inner, f"the manifest {digest[:80]}", depth + 1)

    def _ours(self, descriptor: dict[str, Any]) -> bool:
        """Return whether the copier could choose this manifest: it does not say that it is for another machine."""
        platform = descriptor.get("platform")
        if not isinstance(platform, dict):
            return True
        system, processor = platform.get("os"), platform.get("architecture")
        if isinstance(system, str) and system != "linux":
            return False
        if isinstance(processor, str):
            if image_name(processor) != self._architecture:
                return False
            self._spelled.add(processor)
        return True

    def _manifest(self, document: dict[str, Any], name: str) -> None:
        layers = list(_list(document, "layers", name))
        if len(layers) > LAYERS:
            raise BadConfig(f"{name} has {len(layers)} layers; at most {LAYERS} are read")
        config = document.get("config")
        total = 0
        for descriptor in [*([config] if isinstance(config, dict) else []), *layers]:
            total += self._check_descriptor(descriptor, name)
            if isinstance(digest := descriptor.get("digest"), str):
                self._blobs.add(digest)
        if total > self._limits.unpacked_bytes:
            raise too_much(self._name, self._limits)

    def _check_descriptor(self, descriptor: dict[str, Any], name: str) -> int:
        """Return its size in bytes."""
        what = f"{shown(descriptor.get('digest'), 80)} of {self._name}"
        urls = descriptor.get("urls")
        if urls:
            first = urls[0] if isinstance(urls, list) else urls
            raise _elsewhere(f"{what} is to be fetched from {shown(first, 200)}")
        kind = descriptor.get("mediatype")
        if isinstance(kind, str) and any(word in kind.lower() for word in _ELSEWHERE):
            raise _elsewhere(f"{what} is of the kind {shown(kind)}")
        size = descriptor.get("size") or 0
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**63:
            raise BadConfig(f"{name} gives {shown(size)} as the size of {shown(descriptor.get('digest'), 80)}")
        return size


def _elsewhere(what: str) -> UserInputError:
    return UserInputError(
        f"{what}, which is outside the image",
        hint="build the image so that all its layers are in it; nothing is fetched from places that an image names",
    )


def _list(document: dict[str, Any], key: str, name: str) -> Iterator[dict[str, Any]]:
    values = document.get(key)
    if values is None:
        return
    if not isinstance(values, list):
        raise BadConfig(f"{name} has no list as {key}")
    for value in values:
        if not isinstance(value, dict):
            raise BadConfig(f"{name} has {shown(value)} among its {key}")
        yield value
