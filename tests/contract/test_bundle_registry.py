# SPDX-License-Identifier: Apache-2.0
"""Bundles in a real registry, by the real skopeo: it copies artefacts and their indices to the byte."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.fakes.bundle_data import write_bundle
from tests.fakes.hostile_bundles import own_cache
from tests.fakes.registry import registry

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.process import require_tool, run
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.image import ImageConfig
from vmtailor.pipeline import bundle_artefact
from vmtailor.pipeline.bundle_reference import local
from vmtailor.pipeline.pull_options import PullOptions, PullWhen

__all__ = ["own_cache", "registry"]
pytestmark = pytest.mark.contract


def made(folder: Path) -> tuple[Path, Path]:
    """Write a bundle for x86-64 and one for arm64, each with a root that no compression makes smaller."""
    one = write_bundle(folder / "one")
    other = write_bundle(folder / "other", architecture="arm64", machine="virt", image=ImageConfig("arm64"))
    for bundle in (one, other):
        (bundle / "root.erofs").write_bytes(os.urandom(1 << 20))
        bundle_folder.seal(bundle, bundle_folder.load(bundle).bundle)
    return one, other


def test_bundles_in_a_real_registry(registry: str, own_cache: Store, tmp_path: Path) -> None:
    one, other = made(tmp_path)
    name = f"docker://{registry}/team/made-up"
    for bundle in (one, other):
        pushed = bundle_artefact.push([bundle], f"{name}:1", None, own_cache)
        raw = run([require_tool("skopeo"), "inspect", "--raw", "--tls-verify=false", f"{name}:1"], timeout_s=60).stdout
        assert json.loads(raw)["artifactType"] == "application/vnd.vmtailor.bundle.v1"
        came = local(Path(f"{name}:1"), PullOptions(when=PullWhen.ALWAYS))
        assert pushed.reference == f"{name}@{pushed.digest}" and local(Path(pushed.reference)) == came
        for file in (one_file for one_file in bundle.rglob("*") if one_file.is_file()):
            assert (came / file.relative_to(bundle)).read_bytes() == file.read_bytes()
    pushed = bundle_artefact.push([one, other], f"{name}:2", None, own_cache)
    for processor in ("x86_64", "arm64"):
        came = local(Path(pushed.reference), PullOptions(architecture=processor))
        assert bundle_folder.load(came).bundle.architecture == processor
    with pytest.raises(UserInputError, match="is not there"):
        local(Path(f"{name}:3"))


@pytest.mark.attack
def test_a_damaged_blob_in_a_registry(registry: str, own_cache: Store, tmp_path: Path) -> None:
    bundle, _ = made(tmp_path)
    name = f"docker://{registry}/damaged:1"
    bundle_artefact.push([bundle], name, None, own_cache)
    blob = max((tmp_path / "registry").rglob("data"), key=lambda path: path.stat().st_size)
    whole = blob.read_bytes()
    for wrong in (whole[:-1], whole + b"x", bytes([whole[0] ^ 1]) + whole[1:]):
        blob.write_bytes(wrong)
        with pytest.raises(UserInputError) as caught:
            local(Path(name))
        assert "damaged" in caught.value.message, caught.value.message
        assert not list((own_cache.root / "bundle").iterdir())
