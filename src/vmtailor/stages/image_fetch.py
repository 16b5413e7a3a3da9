# SPDX-License-Identifier: Apache-2.0
"""The image stage: fetch and verify an image, and merge it into one flat archive in the cache."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from vmtailor.base import output
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.disk_full import disk_full_is_a_host_error
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records, temporary
from vmtailor.base.files.digests import sha256_of
from vmtailor.base.files.regular_files import open_regular, write_atomic
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.image import artefact, documents, image_archive, image_config, layers, oci_layout, skopeo
from vmtailor.drivers.image.allowance import Allowance, ImageLimits, Room, too_much
from vmtailor.drivers.image.entry_point import check_entry_point, strangers
from vmtailor.drivers.image.image_reference import Reference, Source, parse_reference, require_text
from vmtailor.drivers.image.layers import Layer
from vmtailor.drivers.image.root_directory import archive_directory
from vmtailor.model.architecture import every, of_host, of_image
from vmtailor.model.bundle import IMAGE
from vmtailor.model.image import DEFAULT_PATH, Image, ImageConfig

#: Changes when the same source would give another record: part of the cache's keys.
VERSION = "3"
#: Files of an image in the cache.
_ARCHIVE, _RECORD = "rootfs.tar", "image.json"
#: Changes when the check of the started program would give another result.
_START = "4"
#: Things that an image says in vain that are named, at most.
_MOST_IGNORED = 8
#: Files for another processor than the image's that are named, at most.
_MOST_NAMED = 3
#: Folder of our own files in a machine; an image's files there would be hidden.
RESERVED = ".vmtailor"


#: Names of folders in the cache.
_KEY = re.compile(r"[0-9a-f]{40}")


def host_architecture() -> str:
    """Return the architecture of this host as images name it. Raises HostError for an unsupported one."""
    return of_host().image


@dataclass(frozen=True)
class ImageOptions:
    """The options of a reference. None keeps the image's value; `env` is added to its environment. Without `limits`,
    the space on this disk is the limit, and a cached image may be larger."""

    architecture: str = ""  # as images name it; empty: this host's, or that of an image which has no other
    authfile: Path | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    env: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    working_dir: str | None = None
    limits: ImageLimits | None = None
    pinned: skopeo.Pinned | None = None  # what the registry of this reference just answered; None: it is asked
    system: bool = False  # it has an init of its own: what the image says is started may be missing
    asked: bool = False  # set by `fetch`: whether the user named the architecture


def fetch(
    reference: str, store: Store, options: ImageOptions | None = None, *, stdin: Callable[[], IO[bytes]] | None = None
) -> Image:
    """Fetch an image, verify every digest, merge its layers, and check that it can be started here.

    What was fetched before is taken from the cache. `stdin` gives the file that `docker-archive:-` reads.
    Raises UserInputError: damaged or hostile, of another architecture, without an entry point, or with one that is not
    there; TooLarge: more than one image may have. Raises HostError: no network, no disk space, a missing tool."""
    options = options or ImageOptions()
    asked = bool(options.architecture)
    options = replace(options, asked=asked, architecture=options.architecture or host_architecture())
    _check_options(options)
    parsed = parse_reference(reference)
    with disk_full_is_a_host_error(store.root), temporary.held_folder(store.folder("scratch")) as scratch:
        limits = options.limits or ImageLimits.for_disk(scratch)
        if parsed == Reference(Source.DOCKER_ARCHIVE, "-"):
            spooled = _spool(stdin() if stdin else _standard_input(), scratch, limits)
            parsed = Reference(Source.DOCKER_ARCHIVE, str(spooled), shown=parsed.text)
        elif parsed.source == Source.OCI and parsed.path.is_dir():
            spelled = oci_layout.check(parsed.path, parsed.name, options.architecture, limits)
            parsed = replace(parsed, architecture=spelled)
        elif parsed.source == Source.DOCKER:
            pinned = options.pinned or skopeo.pin(parsed.text, _access(options))
            _require_image(pinned.manifest, parsed)
            parsed = replace(parsed, pinned=pinned)
        image = _from_memory(parsed, store, options)
        if image is None:
            if parsed.source == Source.ROOTFS:
                image = _from_directory(parsed, store, options, limits, scratch)
            else:
                image = _from_skopeo(parsed, store, options, limits, scratch)
            _remember(parsed, store, options, image)
        _within(image, parsed, options.limits)
    _note(_passed_over(image, parsed))
    image = replace(image, reference=reference, config=_overridden(image.config, options))
    if not options.system:
        require_start(image, store)
    return image


def _require_image(manifest: bytes, parsed: Reference) -> None:
    """Raise UserInputError for one of our own artefacts in the place of an image."""
    if artefact.type_of(manifest, parsed.name).startswith(artefact.OURS):
        raise UserInputError(
            f"{parsed.name} is no image: vmtailor made it of one",
            hint=f"vmtailor run {parsed.name} starts it, if it is a bundle",
        )


def _passed_over(image: Image, parsed: Reference) -> str:
    """Return the one remark on what an image says in vain; empty where it does not."""
    shown = "; ".join(image.ignored[:_MOST_IGNORED])
    more = len(image.ignored) - _MOST_IGNORED
    return f"! {parsed.name}: ignored, as container engines do: {shown}{f'; {more} more' * (more > 0)}" if shown else ""


def _check_options(options: ImageOptions) -> None:
    if options.authfile is not None:  # skopeo would wait for a pipe
        open_regular(options.authfile, "the credentials in", hint="give the file that `skopeo login` wrote").close()
    for word in (*(options.entrypoint or ()), *(options.cmd or ())):
        require_text(word, "the word")


def _within(image: Image, parsed: Reference, limits: ImageLimits | None) -> None:
    """Require that a cached image is within today's limits; it may have been fetched under others."""
    if limits is not None and image.unpacked_bytes > limits.unpacked_bytes:
        raise too_much(parsed.name, limits)


def _standard_input() -> IO[bytes]:
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        raise UserInputError(
            "standard input has no image", hint="docker save NAME | vmtailor fit docker-archive:- -o FOLDER"
        )
    return sys.stdin.buffer


def _spool(source: IO[bytes], scratch: Path, limits: ImageLimits) -> Path:
    """Standard input as a file named by its content, so that the same archive is found again."""
    path = scratch / "stdin.tar"
    total, budget, room = hashlib.sha256(), Allowance(limits), Room(scratch)
    with path.open("wb") as file:
        while piece := _read(source):
            budget.spend(len(piece), "standard input")
            room.take(len(piece))
            total.update(piece)
            file.write(piece)
    named = scratch / f"{total.hexdigest()}.tar"
    path.rename(named)
    return named


def _read(source: IO[bytes]) -> bytes:
    try:
        return source.read(1 << 20)
    except OSError as error:
        raise UserInputError(
            f"standard input cannot be read: {(error.strerror or '').lower()}", hint="pipe an archive into it"
        ) from error


def _identity(parsed: Reference) -> str | None:
    """Return a value that differs when the source differs from the fetched one; None when only fetching can tell."""
    if parsed.pinned is not None:
        return parsed.pinned.digest
    if parsed.source == Source.OCI and (parsed.path / "index.json").is_file():
        blobs = sorted((parsed.path / "blobs").rglob("*"))
        return digest(parsed.path / "index.json", *(_stamp(blob) for blob in blobs))
    if parsed.source in (Source.OCI_ARCHIVE, Source.DOCKER_ARCHIVE) and parsed.path.is_file():
        if parsed.shown:
            return parsed.path.stem  # of what was spooled, the digest
        return _stamp(parsed.path)
    return None


def _stamp(path: Path) -> str:
    """Return a stamp that tells a file that was touched from one that was not, without reading it."""
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns} {status.st_ino}"


def _memory(parsed: Reference, store: Store, options: ImageOptions) -> Path | None:
    identity = _identity(parsed)
    if identity is None:
        return None
    asked = ("asked for",) if options.asked else ()
    key = digest(VERSION, layers.VERSION, parsed.source, identity, parsed.tag, options.architecture, *asked)
    return store.root / "images" / f"{key[:40]}.json"


def _from_memory(parsed: Reference, store: Store, options: ImageOptions) -> Image | None:
    path = _memory(parsed, store, options)
    if path is None or not path.is_file():
        return None
    try:
        image = records.load(Image, path)
    except UserInputError:
        return None  # of an older version, or damaged: fetch again
    if not Path(image.archive).is_file():
        return None
    store.used(path, image.archive)
    return image


def _remember(parsed: Reference, store: Store, options: ImageOptions, image: Image) -> None:
    path = _memory(parsed, store, options)
    if path is not None:
        records.save(image, path, private=True)


def _access(options: ImageOptions) -> skopeo.Access:
    return skopeo.Access(options.authfile, options.architecture)


def _source(parsed: Reference, options: ImageOptions, limits: ImageLimits, scratch: Path) -> tuple[str, str]:
    """Return the source for skopeo, and the architecture that it looks for there. The source is checked first, so that
    skopeo writes to this host only files that an image may have."""
    if parsed.pinned is not None:
        return parsed.pinned.exact, skopeo.check(parsed.pinned, _access(options), limits)
    if parsed.source not in (Source.OCI_ARCHIVE, Source.DOCKER_ARCHIVE):
        return parsed.text, parsed.architecture or options.architecture
    # Before anything is opened: a pipe would be waited for.
    open_regular(parsed.path, "the archive", hint="check the name of the archive").close()
    if parsed.source == Source.OCI_ARCHIVE:
        image_archive.extract_layout(image_archive.BlobSource(parsed.path, parsed.name), scratch / "layout", limits)
        spelled = oci_layout.check(scratch / "layout", parsed.name, options.architecture, limits)
        return f"{Source.OCI}:{scratch / 'layout'}{parsed.tag}", spelled
    plain, source = parsed.path, parsed.text
    if layers.is_compressed(parsed.path):  # skopeo reads only plain ones
        plain = scratch / "plain.tar"
        layers.uncompress(parsed.path, plain, limits)
        source = f"{parsed.source}:{plain}{parsed.tag}"
    image_archive.check_docker(image_archive.BlobSource(plain, parsed.name), limits, scratch)
    return source, options.architecture


def _from_skopeo(parsed: Reference, store: Store, options: ImageOptions, limits: ImageLimits, scratch: Path) -> Image:
    copied = scratch / "image"
    source, spelled = _source(parsed, options, limits, scratch)
    access = replace(_access(options), architecture=spelled)
    skopeo.copy(source, copied, scratch, access, name=parsed.name, limits=limits)
    manifest_file = copied / "manifest.json"
    manifest = documents.read_json(manifest_file)
    _require_image(manifest_file.read_bytes(), parsed)
    config_digest, layer_digests = image_config.digests_of(manifest)
    for blob in (config_digest, *layer_digests):
        _verify(parsed, copied, blob)
    document = documents.read_json(_blob(copied, config_digest))
    ignored: list[str] = []
    config = image_config.parse(document, ignored)
    if not config.architecture:
        config = replace(config, architecture=options.architecture)
        ignored.append(f"architecture (not said: taken as {options.architecture})")
    wanted = (options.architecture,) if options.asked else tuple(row.image for row in every())
    if config.os != "linux" or config.architecture not in wanted:
        raise UserInputError(
            f"{parsed.name} is for {config.os[:40]}/{config.architecture[:40] or '?'}, "
            f"not for linux/{' or linux/'.join(wanted)}",
            hint=f"choose an image that is built for {' or '.join(wanted)}",
        )
    diff_ids = image_config.diff_ids_of(document, len(layer_digests))
    stack = [Layer(_blob(copied, blob), blob, diff_id) for blob, diff_id in zip(layer_digests, diff_ids, strict=True)]
    manifest_digest = f"sha256:{sha256_of(manifest_file)}"

    def fill(folder: Path) -> None:
        merged = layers.merge(stack, folder / _ARCHIVE, limits)
        _save(folder, parsed, manifest_digest, config, merged, ignored)

    key = digest("image", Image.SCHEMA, VERSION, layers.VERSION, manifest_digest, config.architecture)
    return _stored(store.get("image", key, fill))


def _from_directory(
    parsed: Reference, store: Store, options: ImageOptions, limits: ImageLimits, scratch: Path
) -> Image:
    made = scratch / _ARCHIVE
    if parsed.path.is_dir():
        archived = archive_directory(parsed.path, made, limits)
    else:
        open_regular(parsed.path, "the root file system", hint="rootfs: takes a folder, or a tar archive").close()
        archived = layers.merge([Layer(parsed.path, parsed.name)], made, limits)
    config = ImageConfig(architecture=options.architecture, env=(("PATH", DEFAULT_PATH),))

    def fill(folder: Path) -> None:
        made.rename(folder / _ARCHIVE)
        _save(folder, parsed, f"sha256:{archived.sha256}", config, archived)

    key = digest("directory", Image.SCHEMA, VERSION, archived.sha256, options.architecture)
    return _stored(store.get("image", key, fill))


def _save(
    folder: Path,
    parsed: Reference,
    digest: str,
    config: ImageConfig,
    archived: layers.Archived,
    ignored: Sequence[str] = (),
) -> None:
    """Save the record of an image beside its archive. `ignored`: what its configuration says in vain; what its archive
    leaves out comes on top."""
    image = Image(
        reference=parsed.text,
        digest=digest,
        config=config,
        archive=_ARCHIVE,
        archive_sha256=archived.sha256,
        entries=archived.entries,
        unpacked_bytes=archived.unpacked_bytes,
        ignored=(*ignored, *archived.left_out),
    )
    records.save(image, folder / _RECORD)


def _stored(folder: Path) -> Image:
    return records.load(Image, folder / _RECORD)


def kept(key: str, archive_sha256: str, store: Store) -> Image | None:
    """Return the cached image under a key, if it has this archive. Keys come from saved records, which may be a
    stranger's."""
    folder = store.path("image", key)
    if not _KEY.fullmatch(key) or not (folder / _RECORD).is_file():
        return None
    found = records.load(Image, folder / _RECORD)
    if found.archive_sha256 != archive_sha256:
        return None
    store.used(found.archive)
    return found


def kept_for(files: BundleFolder, store: Store) -> Image | None:
    """Return the image that a bundle was made from, if the cache has it with the digest of the bundle's record."""
    if not files.lists(IMAGE):
        return None
    said = files.record(Image, IMAGE)
    found = kept(Path(said.archive).parent.name, said.archive_sha256, store)
    return found if found is not None and found.digest == files.bundle.image_digest else None


def _blob(folder: Path, blob: str) -> Path:
    return folder / blob.removeprefix("sha256:")


def _verify(parsed: Reference, folder: Path, blob: str) -> None:
    path = _blob(folder, blob)
    if not path.is_file():
        raise UserInputError(f"{parsed.name} is incomplete: {blob} is missing", hint="fetch or build it again")
    if f"sha256:{sha256_of(path)}" != blob:
        raise UserInputError(
            f"{parsed.name} is damaged: the content of {blob} does not match its digest", hint="fetch or build it again"
        )


def _overridden(config: ImageConfig, options: ImageOptions) -> ImageConfig:
    """Return the configuration with the user's words put over it. As with Docker, a new entry point drops the image's
    command."""
    cmd = config.cmd if options.entrypoint is None else ()
    env = dict(config.env)
    env.update(options.env)
    return replace(
        config,
        entrypoint=config.entrypoint if options.entrypoint is None else options.entrypoint,
        cmd=cmd if options.cmd is None else options.cmd,
        env=tuple(env.items()),
        user=config.user if options.user is None else options.user,
        working_dir=config.working_dir if options.working_dir is None else options.working_dir,
    )


def require_start(image: Image, store: Store, *, another: bool = False) -> None:
    """Check entry point and reserved names in the archive, and say which programs are for another processor; the answer
    is remembered, since a large one takes long. `another`: another program is started, which may be missing. Raises
    UserInputError for an image that cannot be started here."""
    started = None if another else image.config.argv[:1]
    facts = repr((started, image.config.env, image.config.working_dir, image.config.architecture))
    passed = store.root / "images" / f"{digest('start', _START, image.archive_sha256, facts)[:40]}.ok"
    if passed.is_file():
        _note(passed.read_bytes().decode("utf-8", "replace"))
        return
    tree = layers.read_tree([Layer(Path(image.archive), "of the merged image")], layers.OWN)
    if tree.lookup(f"/{RESERVED}", follow=False) is not None:
        raise UserInputError(
            f"{image.reference} has a /{RESERVED}, which is where our own files go in its machine",
            hint="leave it out of the image",
        )
    if not another:
        check_entry_point(tree, image)
    said = _mixed(strangers(tree, image), image)
    write_atomic(passed, said.encode("utf-8", "replace"), private=True)
    _note(said)


def _mixed(found: Sequence[tuple[str, str]], image: Image) -> str:
    """Return a remark on a mixed image; empty for others."""
    row = of_image(image.config.architecture)
    if not found or row is None:
        return ""
    named = ", ".join(f"{path[:200]} ({other})" for path, other in found[:_MOST_NAMED])
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return f"! {image.reference} is for {row.title}, and {named}{more} would not start there"


def _note(said: str) -> None:
    if said:
        output.note(said)
