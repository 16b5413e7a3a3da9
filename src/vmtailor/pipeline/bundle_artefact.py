# SPDX-License-Identifier: Apache-2.0
"""Bundles as artefacts of OCI: pushed to a registry or a layout, and pulled into the cache by their digests.

The configuration of the artefact is the bundle's record, which lists every file with its length and SHA-256. So each
file is checked twice: against the manifest while it travels, and against the record once it is unpacked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vmtailor.base.cache.store import Store, digest
from vmtailor.base.disk_full import disk_full_is_a_host_error
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records, temporary
from vmtailor.base.files.regular_files import open_regular
from vmtailor.base.output import note
from vmtailor.base.progress import step
from vmtailor.drivers.host import bundle_folder, bundle_values
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.image import artefact, artefact_layout, artefact_source
from vmtailor.drivers.image.allowance import ImageLimits
from vmtailor.drivers.image.artefact import DIGEST, Artefact, ArtefactBlob, ArtefactKind, bad
from vmtailor.drivers.image.artefact_layout import LayoutWriter
from vmtailor.drivers.image.artefact_source import ArtefactPlace, FoundArtefact
from vmtailor.drivers.image.image_reference import Source
from vmtailor.drivers.image.skopeo import Access, Pinned
from vmtailor.model import architecture
from vmtailor.model.bundle import MONITORS, PAGE, RECORD, STATES, Bundle
from vmtailor.pipeline.pull_options import PulledBundle, PullOptions, PullWhen

KIND = ArtefactKind("bundle", "a bundle")
#: Changes when the same artefact would give another folder: part of the cache's keys.
_VERSION = "1"
#: Kinds of the cache's entries: folders of bundles, and what references meant.
_FOLDERS, _REFERENCES = "bundle", "bundle-references"
#: Files of a bundle that are made on each host, and never travel.
_STAYS = frozenset({RECORD, PAGE, MONITORS, *STATES.values()})


@dataclass(frozen=True)
class PulledReference:
    """The meaning of a reference when it was last asked. `top`: the digest of its manifest or index; `manifest`: of the
    part for one processor."""

    SCHEMA: ClassVar[str] = "vmtailor/pulled-reference/1"

    top: str
    manifest: str


# ---- pulled


def pulled(text: str, wanted: PullOptions, store: Store) -> PulledBundle | Pinned | None:
    """Return the bundle that a reference names, in the cache, after printing its digest. For an image, return what its
    registry answered, which need not be asked again; None where it comes from elsewhere. Raises UserInputError,
    HostError."""
    where = artefact_source.place(text)
    if where is None:
        return None
    if wanted.authfile is not None:  # skopeo would wait for a pipe
        open_regular(wanted.authfile, "the credentials in", hint="give the file that `skopeo login` wrote").close()
    row = architecture.named(wanted.architecture) if wanted.architecture else architecture.of_host()
    access = Access(wanted.authfile, row.image)
    if (known := _known(where, wanted, access, store)) is not None:
        return known
    with disk_full_is_a_host_error(store.root), temporary.held_folder(store.folder("scratch")) as scratch:
        limits = ImageLimits.for_disk(scratch) if wanted.max_bytes is None else ImageLimits.of_size(wanted.max_bytes)
        try:
            found = artefact_source.find(where, access, scratch, limits)
        except UserInputError:
            if where.path is None or where.digest:
                raise
            return None  # what does not say that it is a bundle is none; the reader of images says what is wrong
        kind = artefact.type_of(found.data, text)
        if kind != KIND.type and artefact.may_be_image(found.data, text):
            return Pinned(where.reference, found.data) if where.path is None else None
        one = artefact_source.read(found, KIND, access, limits)
        said = _say(where, found.digest)

        def fill(folder: Path) -> None:
            with step("pull the bundle"):
                _unpack(found, one, folder, access, scratch, limits)

        kept = store.get(_FOLDERS, _key(one.digest), fill)
    _require_processor(bundle_folder.load(kept, store), wanted, text)
    memory = _memory(where, access, store)
    records.save(PulledReference(found.digest, one.digest), memory, private=True)
    if where.path is None:
        return PulledBundle(kept, said, (memory,))
    return PulledBundle(kept, said, (artefact_layout.changes_with(where.path),))


def _say(where: ArtefactPlace, digest: str) -> str:
    said = f"bundle {where.pinned(digest)}"
    note(said)
    return said


def _known(where: ArtefactPlace, wanted: PullOptions, access: Access, store: Store) -> PulledBundle | None:
    """Return the bundle that a reference meant before, where the registry need not be asked. Raises UserInputError
    where it may not be asked."""
    if where.path is not None:
        return None
    path = _memory(where, access, store)
    if path.is_file() and (where.digest or wanted.when is not PullWhen.ALWAYS):
        try:
            before = records.load(PulledReference, path)
        except UserInputError:
            before = PulledReference("", "")  # of another version, or damaged: asked again
        if DIGEST.fullmatch(before.manifest) and store.has(_FOLDERS, _key(before.manifest)):
            folder = store.path(_FOLDERS, _key(before.manifest))
            return PulledBundle(folder, _say(where, before.top), (path,))
    if wanted.when is PullWhen.NEVER:
        raise UserInputError(f"{where.reference} is no bundle in the cache", hint="leave --pull never out")
    return None


def _memory(where: ArtefactPlace, access: Access, store: Store) -> Path:
    name = where.reference if where.path is None else f"{where.source}:{where.path.absolute()}:{where.tag}"
    return store.folder(_REFERENCES) / f"{digest(_VERSION, name, where.digest, access.architecture)[:40]}.json"


def _key(manifest: str) -> str:
    return digest(_VERSION, manifest)


def _require_processor(files: BundleFolder, wanted: PullOptions, name: str) -> None:
    if wanted.architecture and files.bundle.architecture != architecture.named(wanted.architecture).name:
        raise bad(
            name,
            f"is for {files.bundle.architecture}, not for {wanted.architecture}",
            "leave --arch out: it has one bundle alone",
        )


def _unpack(
    found: FoundArtefact, wanted: Artefact, folder: Path, access: Access, scratch: Path, limits: ImageLimits
) -> None:
    """Fill a folder with a bundle, every file checked. Raises UserInputError, HostError."""
    name = found.place.reference
    blobs = artefact_source.fetch(found, wanted, access, scratch, limits)
    data = blobs.document(wanted.config.digest)
    if len(data) != wanted.config.size_bytes:
        raise bad(name, "is damaged or cut short: its record has another length than it says")
    record = records.from_bytes(Bundle, data, f"the record of {name}", hint="get the bundle again")
    bundle_values.require_machine(record, Path(name))
    if architecture.named(record.architecture).image != access.architecture and artefact.is_index(found.data, name):
        raise bad(name, f"has a bundle for {record.architecture} in the place of one for {access.architecture}")
    sent = {one.title: one for one in wanted.files}
    _require_files(record, sent, name)
    total = sum(one.bytes for one in record.files)
    if total > limits.unpacked_bytes:
        raise artefact.too_large(name, total, limits.unpacked_bytes)
    (folder / RECORD).write_bytes(data)
    for one in record.files:
        target = folder / one.name
        target.parent.mkdir(exist_ok=True)
        raw = blobs.write(sent[one.name], target, one.bytes)
        if raw != one.sha256 or target.stat().st_size != one.bytes:
            raise bad(name, f"has a file {one.name} that its record does not know")
    bundle_folder.load(folder)


def _require_files(record: Bundle, sent: dict[str, ArtefactBlob], name: str) -> None:
    """Require that the manifest has the files of the record, all of them and no others, and that none is another's
    folder."""
    listed = {one.name for one in record.files}
    for missing in sorted(listed - sent.keys()):
        raise bad(name, f"lacks the file {missing} of its record")
    for more in sorted(sent.keys() - listed):
        raise bad(name, f"has the file {more}, which its record does not list")
    if stays := sorted(listed & _STAYS):
        raise bad(name, f"has the file {stays[0]}, which no bundle sends")
    folders = {inner for one in listed if (inner := one.rpartition("/")[0])}
    if both := sorted(folders & listed):
        raise bad(name, f"has {both[0]} as a file and as a folder")


# ---- pushed


@dataclass(frozen=True)
class PushedBundles:
    """An artefact that was sent. `reference`: by its digest; `digest`: of its manifest or index; `size_bytes`: of all
    its blobs, as they travel."""

    reference: str
    digest: str
    size_bytes: int


def push(bundles: Sequence[Path], destination: str, authfile: Path | None, store: Store) -> PushedBundles:
    """Send a bundle, or several for different processors, to a registry, a layout or an archive of one. Raises
    UserInputError, HostError."""
    to = _destination(destination)
    if authfile is not None:
        open_regular(authfile, "the credentials in", hint="give the file that `skopeo login` wrote").close()
    loaded = [bundle_folder.load(path, store) for path in bundles]
    parts = {architecture.named(one.bundle.architecture).image: one for one in loaded}
    if len(parts) != len(loaded):
        raise UserInputError(
            "two of these bundles are for the same processor", hint="push them one by one, each under its own tag"
        )
    with disk_full_is_a_host_error(store.root), temporary.held_folder(store.folder("scratch")) as scratch:
        direct = to.source is Source.OCI and to.path is not None
        writer = LayoutWriter(to.path if direct and to.path is not None else scratch / "layout", KIND)
        added = {processor: _add(writer, files, linked=not direct) for processor, files in parts.items()}
        tops = {processor: top for processor, (top, _) in added.items()}
        top = writer.index(tops) if len(tops) > 1 else next(iter(tops.values()))
        writer.name(top, to.tag if to.path is not None else "")
        if to.source is Source.DOCKER:
            with step("push the bundle"):
                artefact_source.send(writer, top.digest, to, Access(authfile, ""), scratch)
        elif to.source is Source.OCI_ARCHIVE and to.path is not None:
            artefact_layout.write_archive(writer.folder, to.path)
    return PushedBundles(to.pinned(top.digest), top.digest, sum(size for _, size in added.values()))


def _destination(text: str) -> ArtefactPlace:
    to = artefact_source.place(text)
    if to is None:
        raise UserInputError(
            f"{text} is no place for a bundle", hint="give docker://HOST/NAME[:TAG], oci:DIR[:TAG] or oci-archive:FILE"
        )
    if to.digest:
        raise UserInputError(f"{text} is pinned by a digest", hint="name it by a tag: the digest follows from it")
    if to.source is Source.OCI_ARCHIVE and to.path is not None and os.path.lexists(to.path):
        raise UserInputError(f"{to.path} exists already", hint="remove it, or name another file")
    return to


def _add(writer: LayoutWriter, files: BundleFolder, *, linked: bool) -> tuple[ArtefactBlob, int]:
    """Add a bundle to a layout. Returns the descriptor of its manifest, and the bytes of its blobs."""
    blobs = []
    with step(f"pack {files.path.name}") as progress:
        total = sum(one.bytes for one in files.bundle.files)
        done = 0
        for one in files.bundle.files:
            progress.update(done, total, one.name)
            blob, raw = writer.file(files.file(one.name), one.name, linked=linked)
            if raw != one.sha256:
                raise files.changed(one.name)
            blobs.append(blob)
            done += one.bytes
    top = writer.artefact(files.record_bytes, blobs, {artefact.TITLE: files.bundle.name})
    return top, sum(one.size_bytes for one in blobs)
