# SPDX-License-Identifier: Apache-2.0
"""The subject stage for systems that are on no disk: make a disk to boot from the flat archive of a tree or an
image."""

from __future__ import annotations

from pathlib import Path

from vmtailor.analysis.systems.root import RootTree
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.progress import step
from vmtailor.drivers.image.flat_archive import ArchiveTree
from vmtailor.drivers.rootfs import installed_kernel, rootfs
from vmtailor.model.image import Image
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.plan import RootFormat

#: Part of every key: raise it when another disk would be made of the same tree.
_LAYOUT = "1"
#: Room for what a system writes while it runs.
SPARE_BYTES = 512 << 20
_DISK = "disk.raw"


def make(image: Image, kernel: KernelBaseline | None, store: Store) -> Path:
    """Return a raw ext4 file system with room to write, made once. `kernel`: installed in it; None if the tree has its
    own. Raises HostError (a tool or space is missing) or BuildError."""
    packages = kernel.origin if kernel is not None else ()
    key = digest(_LAYOUT, rootfs.identity(RootFormat.EXT4), image.archive_sha256, str(SPARE_BYTES), *packages)

    def fill(folder: Path) -> None:
        with step("a disk of the system's tree"):
            more = () if kernel is None else installed_kernel.entries(kernel, _lib_of(image))
            rootfs.build(Path(image.archive), folder / _DISK, RootFormat.EXT4, more, spare_bytes=SPARE_BYTES)

    return store.get("system-disk", key, fill) / _DISK


def _lib_of(image: Image) -> str:
    """Return the target of /lib: a link of its own name would hide it."""
    return RootTree(ArchiveTree(Path(image.archive))).resolve("/lib").lstrip("/") or "lib"
