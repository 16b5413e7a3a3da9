# SPDX-License-Identifier: Apache-2.0
"""Family kernels as artefacts, in OCI layouts and registries: one manifest for each processor, and an index of them.
The configuration of each is the kernel's record, and its files are those that the record lists."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records, temporary
from vmtailor.base.progress import step
from vmtailor.drivers.host import family_kernels
from vmtailor.drivers.host.family_kernels import MOST_FILE_BYTES, Family
from vmtailor.drivers.image import artefact_source
from vmtailor.drivers.image.allowance import ImageLimits
from vmtailor.drivers.image.artefact import ArtefactKind, bad
from vmtailor.drivers.image.artefact_layout import LayoutWriter
from vmtailor.drivers.image.artefact_source import ArtefactPlace
from vmtailor.drivers.image.image_reference import Source
from vmtailor.drivers.image.skopeo import Access
from vmtailor.model.architecture import named

KIND = ArtefactKind("family", "a family kernel")
#: Bytes of a family kernel, as it travels.
MOST_BYTES = 1 << 30


def require_place(text: str) -> ArtefactPlace:
    """Return the place that family kernels are to be put at. Raises UserInputError for what is none."""
    to = artefact_source.place(text)
    if to is None or to.source is Source.OCI_ARCHIVE:
        raise UserInputError(
            f"{text} is no place for a family kernel", hint="give oci:DIR[:TAG] or docker://HOST/NAME[:TAG]"
        )
    if to.digest:
        raise UserInputError(f"{text} is pinned by a digest", hint="name it by a tag: the digest follows from it")
    return to


def put(families: Sequence[Family], to: ArtefactPlace, store: Store) -> str:
    """Write family kernels, of one processor each, into an OCI layout or a registry, and return their reference by
    digest. Raises UserInputError for a folder with something else, HostError without a network."""
    if to.path is not None:
        return to.pinned(_written(families, LayoutWriter(to.path, KIND), to.tag))
    with temporary.held_folder(store.folder("scratch")) as scratch, step("push the family kernel"):
        layout = LayoutWriter(scratch / "layout", KIND)
        digest = _written(families, layout)
        artefact_source.send(layout, digest, to, Access(None, ""), scratch)
    return to.pinned(digest)


def _written(families: Sequence[Family], layout: LayoutWriter, tag: str = "") -> str:
    """Write family kernels into a layout, and return the digest of their index."""
    parts = {}
    for family in families:
        blobs = [layout.file(family.folder / one.name, one.name)[0] for one in family.record.files]
        parts[named(family.record.architecture).image] = layout.artefact(records.to_bytes(family.record), blobs)
    top = layout.index(parts)
    layout.name(top, tag)
    return top.digest


def fetched(text: str, architecture: str, store: Store, authfile: Path | None = None) -> Family | None:
    """Return the family kernel that a reference names, for a processor, fetched into the cache; None for a text that is
    no reference to an artefact. `authfile`: credentials for its registry; None for the user's own.

    Raises UserInputError for an artefact of another kind, without that processor, or that is not what its digests and
    its record say; HostError without a network."""
    where = artefact_source.place(text)
    if where is None:
        return None
    access, limits = Access(authfile, named(architecture).image), ImageLimits.of_size(MOST_BYTES)
    with temporary.held_folder(store.folder("scratch")) as scratch:
        found = artefact_source.find(where, access, scratch, limits)
        wanted = artefact_source.read(found, KIND, access, limits)
        blobs = artefact_source.fetch(found, wanted, access, scratch, limits)
        record = family_kernels.parsed(blobs.document(wanted.config.digest), f"the record of {text}")
        by_name = {one.title: one for one in wanted.files}
        if by_name.keys() != {one.name for one in record.files}:
            raise bad(text, "has other files than its record lists")
        if record.architecture != architecture:
            raise UserInputError(
                f"{text} says that its kernel for {architecture} is for {record.architecture}", hint="get it again"
            )

        def write(name: str, path: Path) -> None:
            blobs.write(by_name[name], path, MOST_FILE_BYTES)

        return family_kernels.kept(record, store, write)
