# SPDX-License-Identifier: Apache-2.0
"""Bundles by reference: `docker://NAME`, `oci:DIR`, `oci-archive:FILE` wherever a verb takes a bundle's folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.host import bundle_folder
from vmtailor.pipeline.pull_options import PulledBundle, PullOptions

if TYPE_CHECKING:  # what starts a bundle's folder does without it
    from vmtailor.drivers.image.skopeo import Pinned

#: Beginnings of references that can name a bundle, as a path has them: without a double slash.
_PREFIXES = ("docker:/", "oci:", "oci-archive:")


def local(path: Path, wanted: PullOptions | None = None, store: Store | None = None) -> Path:
    """Return the folder of the bundle that a reference names, as `pulled` does. Any other path, and the reference of an
    image, is returned as it is."""
    found = pulled(path, wanted, store)
    return found.folder if isinstance(found, PulledBundle) else path


def pulled(path: Path, wanted: PullOptions | None = None, store: Store | None = None) -> PulledBundle | Pinned | None:
    """Return the bundle that a reference names, pulled into the cache after its digest was printed; the manifest of an
    image that a registry has; None for a folder, and for an image from elsewhere.

    Raises UserInputError for an artefact of another type, for one that is not sound, and for options without a use;
    HostError (no network, disk full)."""
    wanted = wanted or PullOptions()
    if not str(path).startswith(_PREFIXES) or bundle_folder.is_bundle(path):
        if wanted != PullOptions() and bundle_folder.is_bundle(path):
            raise UserInputError(
                f"{path} is a bundle's folder, and nothing of it is pulled",
                hint="--pull, --arch, --authfile and --max-image-size are for docker://NAME, oci:DIR, oci-archive:FILE",
            )
        return None
    # What starts a bundle's folder does without these.
    from vmtailor.drivers.image import image_reference
    from vmtailor.pipeline import bundle_artefact

    return bundle_artefact.pulled(image_reference.text_of(path), wanted, store or Store())


def require_own(path: Path, found: PulledBundle | None, what: str) -> None:
    """Raise UserInputError where something is to be kept beside a bundle that lies in the cache, which is pruned."""
    if found is not None:
        raise UserInputError(
            f"{what} beside a bundle's folder, and {path} was pulled into the cache, which is pruned",
            hint=f"cp -r --sparse=always {found.folder} FOLDER gives it a folder of its own; give that",
        )
