# SPDX-License-Identifier: Apache-2.0
"""Bundles that are there without a fit: the one that an earlier fit of an image left in the cache, and one that is put
together from the image's root and a family kernel."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.base.files import plain_files, records
from vmtailor.base.files.holes import copy_with_holes
from vmtailor.base.natives import Natives
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.host import bundle_folder, family_kernels
from vmtailor.drivers.host.bundle_folder import BundleFolder, seal
from vmtailor.drivers.host.family_kernels import Family
from vmtailor.model.architecture import named
from vmtailor.model.bundle import CONFIG, IMAGE, INIT, PLAN, RECORD, SYSTEM_MAP, Bundle, BundleFile
from vmtailor.model.family import FamilyKernel
from vmtailor.model.image import Image
from vmtailor.model.margin import Margin
from vmtailor.stages.root_volume import build_root

#: Names of fitted bundles in the cache, and of those on family kernels.
FITTED, KIND = "fit", "unfitted"
#: Changes when such a bundle would be another one.
_VERSION = "1"
#: Longest record of a bundle that is looked at, and longest plan.
_MOST_BYTES, _MOST_PLAN = 16 << 20, 256 << 20


class _Summary(msgspec.Struct):
    """The part of a bundle's record that tells whose it is."""

    image_digest: str = ""
    architecture: str = ""


class _Margins(msgspec.Struct):
    margins: tuple[Margin, ...] = ()


def fitted(image: Image, architecture: str, store: Store) -> Path | None:
    """Return the newest bundle that was fitted to an image as it is, and proven; None where the cache has none."""
    for folder, said in _fits(store):
        if (said.image_digest, said.architecture) == (image.digest, architecture):
            with contextlib.suppress(VmtailorError, OSError):
                found = bundle_folder.load(folder, store).bundle
                if found.image == image.config and not found.patches:
                    store.used(folder)
                    return folder
    return None


def family(architecture: str, store: Store) -> Family | None:
    """Return the family kernel that the cache has for a processor: one that was made as such, else that of the newest
    fit with the margin `server`; None where there is neither."""
    found = family_kernels.newest(store, architecture)
    if found is not None:
        return found
    for folder, said in _fits(store):
        if said.architecture == architecture:
            with contextlib.suppress(VmtailorError, OSError):
                files = bundle_folder.load(folder, store)
                if not files.is_system and not files.bundle.patches and Margin.SERVER in margins_of(files):
                    return of_bundle(files, store)
    return None


def _fits(store: Store) -> Iterator[tuple[Path, _Summary]]:
    """Yield the fitted bundles in the cache, the newest first, with what their records say."""
    found: list[tuple[float, Path]] = []
    with contextlib.suppress(OSError):
        for folder in (store.root / FITTED).iterdir():
            with contextlib.suppress(OSError):
                found.append(((folder / RECORD).stat().st_mtime, folder))
    for _, folder in sorted(found, key=lambda one: (-one[0], one[1].name)):
        with contextlib.suppress(VmtailorError, OSError, msgspec.MsgspecError):
            yield folder, msgspec.json.decode(plain_files.read(folder, RECORD, _MOST_BYTES), type=_Summary)


def margins_of(files: BundleFolder) -> tuple[Margin, ...]:
    """Return the margins that the kernel of a bundle was fitted with; none where the bundle does not say."""
    with contextlib.suppress(VmtailorError, msgspec.MsgspecError):
        if files.lists(PLAN):
            return msgspec.json.decode(files.data(PLAN, _MOST_PLAN), type=_Margins).margins
    return ()


def of_bundle(files: BundleFolder, store: Store) -> Family:
    """Return the kernel of a container's bundle as a family kernel, in the cache. Raises UserInputError for files that
    are not what the bundle's record says."""
    bundle = files.bundle
    if bundle.patches:
        raise UserInputError(f"the kernel of {files.path} is patched, and none that others may be given")
    kernel, *others = family_kernels.names_of(bundle.architecture)
    names = {kernel: bundle.kernel, CONFIG: bundle.kernel_config, SYSTEM_MAP: bundle.system_map, PLAN: PLAN}
    there = {name: names[name] for name in (kernel, *others) if name != PLAN or files.lists(PLAN)}
    listed = {name: files.listed(source) for name, source in there.items()}
    record = FamilyKernel(
        architecture=bundle.architecture,
        machine=bundle.machine,
        cpus=bundle.cpus,
        memory_bytes=bundle.memory_bytes,
        kernel=kernel,
        kernel_version=bundle.kernel_version,
        root_format=bundle.root_format,
        words=bundle.words,
        network=bundle.network,
        margins=margins_of(files),
        made_for=bundle.image_reference,
        sources=bundle.sources,
        files=tuple(BundleFile(name, one.bytes, one.sha256) for name, one in listed.items()),
    )
    return family_kernels.kept(record, store, lambda name, path: _copied(files, there[name], path))


def _copied(files: BundleFolder, name: str, path: Path) -> None:
    with plain_files.opened(files.path, name) as source, path.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)


def made(image: Image, found: Family, store: Store) -> Path:
    """Return a bundle of an image on a family kernel, in the cache, its root as a fit makes it. Nothing is proven for
    it, so that it has neither exercise nor record of a fit."""
    record = found.record
    parts: Natives = guest_programs.of(record.architecture)
    root = build_root(image, record.root_format, parts, store)
    bundle = Bundle(
        name="unfitted",
        image_reference=image.reference,
        image_digest=image.digest,
        image=image.config,
        kernel=record.kernel,
        kernel_version=record.kernel_version,
        kernel_config=CONFIG,
        system_map=SYSTEM_MAP,
        root=f"root.{record.root_format}",
        root_format=record.root_format,
        machine=record.machine,
        cpus=record.cpus,
        memory_bytes=record.memory_bytes,
        network=record.network,
        words=record.words,
        sources=record.sources,
        architecture=named(record.architecture).name,
    )

    def fill(folder: Path) -> None:
        for one in record.files:
            linked(found.folder / one.name, folder / one.name)
        linked(root, folder / bundle.root)
        shutil.copyfile(parts.init, folder / INIT)
        records.save(image, folder / IMAGE)
        seal(folder, bundle)

    # A root's folder is named by all that it was made from, init among it.
    return store.get(KIND, digest(_VERSION, found.key, root.parent.name, records.to_bytes(bundle)), fill)


def linked(source: Path, target: Path) -> None:
    """Give a file of the cache one more name; where the disk is another one, copy it."""
    try:
        os.link(source, target)
    except OSError:
        copy_with_holes(source, target)


def placed(bundle: Path, folder: Path) -> None:
    """Put a bundle of the cache at another place, where pruning the cache does not reach it. No space is taken on the
    same disk."""
    folder.mkdir(mode=0o700)
    for path in sorted(bundle.rglob("*")):
        target = folder / path.relative_to(bundle)
        if path.is_dir():
            target.mkdir(mode=0o700)
        else:
            linked(path, target)
