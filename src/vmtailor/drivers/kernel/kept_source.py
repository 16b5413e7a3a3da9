# SPDX-License-Identifier: Apache-2.0
"""Kernel sources that the cache has. Nothing is downloaded."""

from __future__ import annotations

import contextlib
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.base.files import records
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.kernel import KernelBaseline


def baselines(store: Store) -> list[KernelBaseline]:
    """Return the packaged baselines whose source is there."""
    found = []
    for file in sorted((store.root / "baselines").glob("*.json")):
        with contextlib.suppress(VmtailorError, OSError):
            found.append(records.load(KernelBaseline, file))
    return [kernel for kernel in found if Path(kernel.source_dir).is_dir()]


def by_digest(digest: str, store: Store) -> SourceTree | None:
    """Return the source with a digest, which names a folder of the cache and nothing else."""
    own = store.path("kernel-source", digest)
    packaged = (Path(kernel.source_dir) for kernel in baselines(store) if kernel.source_digest == digest)
    folder = own if own.is_dir() else next(packaged, None)
    if folder is None:
        return None
    store.used(folder)
    return SourceTree(folder, digest)


def by_version(store: Store) -> dict[str, SourceTree]:
    """Return every source by its version, those of packaged baselines first."""
    trees = [SourceTree(Path(kernel.source_dir), kernel.source_digest) for kernel in baselines(store)]
    for folder in sorted((store.root / "kernel-source").glob("*")):
        if folder.is_dir() and not folder.name.startswith("."):
            trees.append(SourceTree(folder, folder.name))
    found: dict[str, SourceTree] = {}
    for tree in trees:
        with contextlib.suppress(UserInputError):
            found.setdefault(tree.version, tree)
    return found
