# SPDX-License-Identifier: Apache-2.0
"""A copier that writes without end is ended; one that would follow an image elsewhere is not started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.fakes.hostile import Parts

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.drivers.image import skopeo
from vmtailor.drivers.image.allowance import ImageLimits, TooLarge
from vmtailor.stages.image_fetch import ImageOptions, fetch

pytestmark = pytest.mark.attack


def fake(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tools = folder / "tools"
    tools.mkdir()
    (tools / "skopeo").write_text(f"#!/bin/sh\n{script}\n")
    (tools / "skopeo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")


def test_a_registry_that_sends_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    fake(tmp_path, monkeypatch, f"truncate -s 3M {scratch}/blob; exec sleep 1000")
    monkeypatch.setattr(skopeo, "LOOK_S", 0.01)
    with pytest.raises(TooLarge, match=r"docker://x unpacks to more than 2M") as caught:
        skopeo.copy(
            "docker://x", scratch / "image", scratch, skopeo.Access(None, "amd64"), limits=ImageLimits.of_size(2 << 20)
        )
    assert "--max-image-size 4M" in caught.value.hint


def test_a_daemons_image_is_written_twice_and_may_be_as_large_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    fake(tmp_path, monkeypatch, f"truncate -s 3M {scratch}/blob; sleep 0.2")
    monkeypatch.setattr(skopeo, "LOOK_S", 0.01)
    access = skopeo.Access(None, "amd64")
    skopeo.copy("docker-daemon:x", scratch / "image", scratch, access, limits=ImageLimits.of_size(2 << 20))
    (scratch / "blob").unlink()
    with pytest.raises(TooLarge):
        skopeo.copy("docker-daemon:x", scratch / "image", scratch, access, limits=ImageLimits.of_size(1 << 20))


def test_the_disk_is_not_filled_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = -1

    fake(tmp_path, monkeypatch, "exec sleep 1000")
    monkeypatch.setattr(skopeo, "LOOK_S", 0.01)
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    with pytest.raises(HostError, match="no space is left"):
        skopeo.copy("docker://x", tmp_path / "image", tmp_path, skopeo.Access(None, "amd64"))


@pytest.mark.parametrize("urls", [["http://192.0.2.1/layer"], "http://192.0.2.1/layer"])
def test_it_is_not_started_for_a_layer_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, urls: object
) -> None:
    fake(tmp_path, monkeypatch, f"touch {tmp_path}/started; exit 1")
    image = Parts(
        manifest=lambda m: {**m, "layers": [{**m["layers"][0], "urls": urls}]},
    ).write(tmp_path / "image")
    store = Store(tmp_path / "cache")
    with pytest.raises(UserInputError, match=r"192\.0\.2\.1.*outside the image"):
        fetch(f"oci:{image}", store, ImageOptions(architecture="amd64"))
    assert not (tmp_path / "started").exists()
    assert list((store.root / "scratch").iterdir()) == []
    # Without the layer from elsewhere it would have been.
    good = Parts().write(tmp_path / "good")
    with pytest.raises(UserInputError, match="skopeo"):
        fetch(f"oci:{good}", store, ImageOptions(architecture="amd64"))
    assert (tmp_path / "started").exists()
