# SPDX-License-Identifier: Apache-2.0
"""The folders that kernels are compiled in: one for each source, toolchain and set of patches, so that another
configuration compiles only what it changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vmtailor.base.cache.store import Store, digest
from vmtailor.drivers.kernel.make import Toolchain


def of(store: Store, source_digest: str, toolchain: Toolchain, patches: Sequence[tuple[str, str]] = ()) -> Path:
    """Return the folder, which may not be there yet. `patches`: ids with their digests."""
    parts = (toolchain.describe(), *toolchain.variables(), *(sha256 for _, sha256 in patches))
    return store.root / "kernel-build" / digest(source_digest, *parts)[:16]
