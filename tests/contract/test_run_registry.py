# SPDX-License-Identifier: Apache-2.0
"""`run docker://IMAGE` and a real registry: how often it is asked, and who may ask it."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path

import pytest
from tests.fakes.bundle_data import write_bundle
from tests.fakes.hostile_bundles import own_cache
from tests.fakes.registry import PASSWORD, USER, private_registry, registry, requests
from tests.fakes.tars import file, tar_of, write_layout

from vmtailor.base.cache.store import Store
from vmtailor.base.files import records
from vmtailor.base.process import require_tool, run
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.image import Image, ImageConfig
from vmtailor.pipeline import fit_behind
from vmtailor.pipeline.fit_behind import FitBehind
from vmtailor.pipeline.image_run_options import ImageRunOptions
from vmtailor.pipeline.machine_run import RunOptions
from vmtailor.pipeline.pull_options import PullOptions
from vmtailor.pipeline.run_subject import subject_of
from vmtailor.stages.image_fetch import host_architecture

__all__ = ["own_cache", "private_registry", "registry"]
pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(host_architecture() != "amd64", reason="the image made here is for amd64"),
]


def send(folder: Path, name: str, *options: str, entrypoint: str = "/prog") -> None:
    """Put an image of one file, which is no program, into a registry."""
    content = [tar_of(file("prog", b"\x7fELF", mode=0o755))]
    layout = write_layout(folder / "layout", content, {"Entrypoint": [entrypoint]})
    argv = [require_tool("skopeo"), "copy", "--quiet", "--dest-tls-verify=false", *options, f"oci:{layout}", name]
    run(argv, timeout_s=60)


@pytest.mark.usefixtures("own_cache")
def test_a_registry_is_asked_once_which_image_a_tag_names(registry: str, tmp_path: Path) -> None:
    send(tmp_path, f"docker://{registry}/team/made-up:1")
    family = write_bundle(tmp_path / "family", architecture="x86_64")
    asked = []
    for _ in range(2):
        before = len(requests(tmp_path))
        subject = subject_of(
            RunOptions(Path(f"docker://{registry}/team/made-up:1")), ImageRunOptions(family=str(family))
        )
        asked.append([one for one in requests(tmp_path)[before:] if one.endswith(("/manifests/1", "/tags/list"))])
        assert bundle_folder.load(subject.bundle).image.config.argv == ("/prog",)
    assert asked == [["GET /v2/team/made-up/manifests/1"]] * 2


def test_a_fit_behind_a_run_gets_its_image_from_a_private_registry(
    private_registry: str, own_cache: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit_behind, "NICE", 0)  # a busy host would let it wait
    name = f"docker://{private_registry}/team/made-up:1"
    # A fit of it ends as soon as it is fetched.
    send(tmp_path, name, f"--dest-creds={USER}:{PASSWORD}", entrypoint="/missing")
    secret = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    authfile = tmp_path / "auth.json"
    authfile.write_text(json.dumps({"auths": {private_registry: {"auth": secret}}}))
    image = Image(name, "sha256:" + "1a" * 32, ImageConfig("amd64", entrypoint=("/missing",)), "", "2b" * 32, 1, 1)
    ends = {}
    for wanted in (PullOptions(), PullOptions(authfile=authfile)):
        folder = fit_behind.begin(image, own_cache, wanted)
        deadline = time.monotonic() + 120
        while fit_behind.goes_on(folder):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ends[wanted.authfile] = records.load(FitBehind, folder / fit_behind.RECORD).said
    assert "the registry refuses" in ends[None]
    assert "/missing" in ends[authfile], ends
    written = [path for path in own_cache.root.rglob("*") if path.is_file()]
    assert folder / fit_behind.LOG in written
    for word in (PASSWORD, secret):
        assert not [path for path in written if os.fsencode(word) in path.read_bytes()]
