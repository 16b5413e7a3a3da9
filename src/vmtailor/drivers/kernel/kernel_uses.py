# SPDX-License-Identifier: Apache-2.0
"""The family: the kernels in the cache, each with the images that it serves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vmtailor.base.cache.store import Store, locked
from vmtailor.base.errors import VmtailorError
from vmtailor.base.files import plain_files, records
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.model.kernel import KernelUse, KernelUses

KIND = "kernel"
#: The record beside a kernel, how many images it names, and the bytes that are read of it.
RECORD = "uses.json"
MOST_IMAGES = 64
_MOST_BYTES = 1 << 20


def uses_of(store: Store, key: str) -> KernelUses | None:
    """Return the images that a kernel of the cache serves; None where it does not say."""
    return _read(store.path(KIND, key))


def note(store: Store, key: str, kernel: KernelUses, use: KernelUse) -> KernelUses:
    """Record that a kernel of the cache serves an image, once. `kernel` says what it is. Other processes that do the
    same wait; nothing is written where the kernel is gone, or the cache cannot be written."""
    folder = store.path(KIND, key)
    with contextlib.suppress(OSError), locked(store.folder("locks") / f"kernel-uses-{key[:40]}"):
        known = _read(folder) or kernel
        if not folder.is_dir():
            return known
        if all(one.digest != use.digest for one in known.images):
            kernel = _with(replace(kernel, images=known.images, more=known.more), use)
            write_atomic(folder / RECORD, records.to_bytes(kernel), private=True)
            return kernel
        return known
    return replace(kernel, images=(use,))


def _with(kernel: KernelUses, use: KernelUse) -> KernelUses:
    images = (*kernel.images, use)
    if len(images) <= MOST_IMAGES:
        return replace(kernel, images=images)
    return replace(kernel, images=(images[0], *images[2:]), more=kernel.more + 1)


def members(store: Store) -> Iterator[tuple[str, KernelUses]]:
    """Yield the kernels that serve images, by their name in the cache, those with most images first."""
    found = []
    with contextlib.suppress(OSError):
        for folder in (store.root / KIND).iterdir():
            uses = _read(folder)
            if uses is not None and uses.images:
                found.append((folder.name, uses))
    yield from sorted(found, key=lambda one: (-len(one[1].images) - one[1].more, one[1].symbols_y, one[0]))


def _read(folder: Path) -> KernelUses | None:
    """Return the record in a kernel's folder; None where there is none, or one of another version."""
    try:
        if not (folder / RECORD).is_file():
            return None
        return records.from_bytes(KernelUses, plain_files.read(folder, RECORD, _MOST_BYTES), str(folder / RECORD))
    except (VmtailorError, OSError):
        return None
