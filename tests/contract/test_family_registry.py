# SPDX-License-Identifier: Apache-2.0
"""Family kernels in a real registry, by the real skopeo."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.bundle_data import bundle, write_bundle
from tests.fakes.hostile_bundles import own_cache
from tests.fakes.registry import registry

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.pipeline import bundle_artefact, family_artefact, image_bundle

__all__ = ["own_cache", "registry"]
pytestmark = pytest.mark.contract


def test_a_family_kernel_in_a_real_registry(registry: str, own_cache: Store, tmp_path: Path) -> None:
    made = write_bundle(tmp_path / "made", architecture="x86_64")
    other = write_bundle(tmp_path / "other")
    (other / "vmlinux").rename(other / "Image")
    seal(other, bundle(architecture="arm64", machine="virt", kernel="Image"))
    families = [image_bundle.of_bundle(bundle_folder.load(one), own_cache) for one in (made, other)]
    name = f"docker://{registry}/vm/family:1"
    pinned = family_artefact.put(families, family_artefact.require_place(name), own_cache)
    assert pinned.startswith(f"docker://{registry}/vm/family@sha256:")
    for number, text in enumerate((name, pinned)):
        elsewhere = Store(tmp_path / f"elsewhere-{number}")
        for family in families:
            found = family_artefact.fetched(text, family.record.architecture, elsewhere)
            assert found is not None and found.record == family.record
            assert (found.folder / family.record.kernel).read_text() == "kernel"
    blob = max((tmp_path / "registry").rglob("data"), key=lambda path: path.stat().st_size)
    blob.write_bytes(blob.read_bytes()[:-1])
    with pytest.raises(UserInputError):
        family_artefact.fetched(name, "x86_64", Store(tmp_path / "cut"))
    bundle_artefact.push([made], f"docker://{registry}/vm/bundle:1", None, own_cache)
    with pytest.raises(UserInputError, match="not a family kernel"):
        family_artefact.fetched(f"docker://{registry}/vm/bundle:1", "x86_64", own_cache)
