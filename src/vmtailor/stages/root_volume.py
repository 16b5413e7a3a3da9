# SPDX-License-Identifier: Apache-2.0
"""Stage build, the root file system part: the image's flat archive and our own entries become one file system."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base.cache.store import Store, digest
from vmtailor.base.natives import Natives
from vmtailor.base.progress import step
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.rootfs import rootfs
from vmtailor.model.image import Image
from vmtailor.model.plan import RootFormat

# Part of every key: raise it when what goes into the file system changes.
_LAYOUT = "1"


def hostname_of(image: Image) -> str:
    """Return the guest's host name: the first letters of the image's digest, as container engines name theirs."""
    return image.digest.removeprefix("sha256:")[:12] or "vm"


def build_root(image: Image, form: RootFormat, natives: Natives, store: Store) -> Path:
    """Return the root file system of an image, the same file for baseline and tailored machine. Made once."""
    config = guest_volume.config_bytes(image.config, hostname_of(image))
    programs = (natives.init, natives.client, natives.load_client, natives.builtin)
    key = digest(_LAYOUT, rootfs.identity(form), image.archive_sha256, config, *programs, form)

    def fill(folder: Path) -> None:
        with step(f"root file system ({form})"):
            entries = guest_volume.root_entries(natives, config)
            rootfs.build(Path(image.archive), folder / f"root.{form}", form, entries)

    return store.get("root", key, fill) / f"root.{form}"
