# SPDX-License-Identifier: Apache-2.0
"""The image stage with the real skopeo and a real registry on loopback: every source, and every kind of bad input."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.registry import registry
from tests.fakes.tars import directory, file, largest_blob, layers_of, read_flat, symlink, tar_of, write_layout

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.process import require_tool, run
from vmtailor.drivers.image.allowance import ImageLimits, TooLarge
from vmtailor.drivers.image.image_reference import Source, parse_reference
from vmtailor.drivers.image.layers import merge
from vmtailor.drivers.rootfs.rootfs import CONSOLE, Extra, extra_layer
from vmtailor.model.image import HealthCheck, Port
from vmtailor.stages.image_fetch import ImageOptions, fetch, host_architecture

__all__ = ["registry"]
pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(host_architecture() != "amd64", reason="the images made here are for amd64"),
]

LAYERS = [
    tar_of(directory("bin"), file("bin/prog", b"\x7fELF", mode=0o755), file("old", b"1"), symlink("sbin", "bin")),
    tar_of(file(".wh.old"), file("etc/plain", b"text"), directory("srv")),
]
CONFIG = {
    "Entrypoint": ["prog"],
    "Cmd": ["-a", "b c"],
    "Env": ["PATH=/nowhere:/sbin", "A=b=c"],
    "WorkingDir": "/srv",
    "User": "33:33",
    "ExposedPorts": {"80/tcp": {}, "53/udp": {}},
    "Volumes": {"/data": {}},
    "StopSignal": "SIGQUIT",
    "Healthcheck": {"Test": ["CMD-SHELL", "prog --check"], "Interval": 5_000_000_000, "Retries": 2},
    "Labels": {"a": "b"},
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    return write_layout(tmp_path / "layout", LAYERS, CONFIG)


def skopeo_copy(source: str, destination: str, *options: str) -> None:
    run([require_tool("skopeo"), "copy", "--quiet", *options, source, destination], timeout_s=60)


def check_whole(image: Any) -> None:
    config = image.config
    assert config.argv == ("prog", "-a", "b c")
    assert config.env == (("PATH", "/nowhere:/sbin"), ("A", "b=c"))
    assert (config.working_dir, config.user, config.stop_signal) == ("/srv", "33:33", "SIGQUIT")
    assert config.exposed_ports == (Port(53, "udp"), Port(80, "tcp"))
    assert (config.volumes, config.labels) == (("/data",), (("a", "b"),))
    assert config.health_check == HealthCheck(("/bin/sh", "-c", "prog --check"), 5.0, 30.0, 0.0, 2)
    assert config.architecture == "amd64"
    flat = read_flat(Path(image.archive))
    assert "old" not in flat and flat["etc/plain"][1] == b"text"
    assert image.unpacked_bytes == 8 and image.entries == len(flat) - 1


def only_cache_is_left(store: Store) -> None:
    assert list((store.root / "scratch").iterdir()) == []
    assert not list(store.root.rglob(".filling-*"))


def test_every_kind_of_source(layout: Path, tmp_path: Path, store: Store) -> None:
    docker, oci = tmp_path / "docker.tar", tmp_path / "oci.tar"
    skopeo_copy(f"oci:{layout}:latest", f"docker-archive:{docker}:name:tag")
    skopeo_copy(f"oci:{layout}:latest", f"oci-archive:{oci}")
    references = [
        f"oci:{layout}", f"oci:{layout}:latest", str(layout), f"{layout}:latest", f"docker-archive:{docker}",
        f"docker-archive:{docker}:name:tag", str(docker), f"oci-archive:{oci}", str(oci),
    ]  # fmt: skip
    archives = set()
    for reference in references:
        image = fetch(reference, store)
        assert image.reference == reference
        check_whole(image)
        archives.add(image.archive_sha256)
    assert len(archives) == 1
    piped = fetch("docker-archive:-", store, stdin=lambda: io.BytesIO(docker.read_bytes()))
    check_whole(piped)
    packed = fetch("docker-archive:-", store, stdin=lambda: io.BytesIO(gzip.compress(docker.read_bytes())))
    check_whole(packed)
    (tmp_path / "packed.tar.gz").write_bytes(gzip.compress(docker.read_bytes()))
    check_whole(fetch(str(tmp_path / "packed.tar.gz"), store))
    (tmp_path / "cut.tar.gz").write_bytes(gzip.compress(docker.read_bytes())[:-50])
    with pytest.raises(UserInputError):
        fetch(f"docker-archive:{tmp_path / 'cut.tar.gz'}", store)
    with pytest.raises(UserInputError, match="docker-archive:-"):
        fetch("docker-archive:-", store, stdin=lambda: io.BytesIO(docker.read_bytes()[:3000]))
    only_cache_is_left(store)


def test_the_second_time_nothing_is_copied(layout: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fetch(f"oci:{layout}", store)
    monkeypatch.setenv("PATH", "/nowhere")  # no skopeo now
    monkeypatch.setattr("vmtailor.drivers.image.skopeo.require_tool", lambda name: f"/nowhere/{name}")
    assert fetch(f"oci:{layout}", store) == first
    Path(first.archive).unlink()
    with pytest.raises(HostError):
        fetch(f"oci:{layout}", store)


def test_what_was_half_fetched_is_fetched_again(layout: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("vmtailor.stages.image_fetch.layers.merge", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch(f"oci:{layout}", store)
    only_cache_is_left(store)
    check_whole(fetch(f"oci:{layout}", store))


def test_the_user_s_words_are_put_over_the_image_s(layout: Path, store: Store) -> None:
    options = ImageOptions(
        entrypoint=("/bin/prog",), env=(("A", "new"), ("B", "2")), user="root", working_dir="/", cmd=None
    )
    config = fetch(f"oci:{layout}", store, options).config
    assert config.argv == ("/bin/prog",)  # as with docker run --entrypoint, the image's command goes too
    assert dict(config.env) == {"PATH": "/nowhere:/sbin", "A": "new", "B": "2"}
    assert (config.user, config.working_dir) == ("root", "/")
    assert fetch(f"oci:{layout}", store, ImageOptions(cmd=("x",))).config.argv == ("prog", "x")


def test_a_real_registry(layout: Path, registry: str, store: Store, tmp_path: Path) -> None:
    for form in ("oci", "v2s2"):
        skopeo_copy(
            f"oci:{layout}", f"docker://{registry}/some/{form}:1", "--dest-tls-verify=false", f"--format={form}"
        )
    image = fetch(f"docker://{registry}/some/oci:1", store)
    check_whole(image)
    inspect = [require_tool("skopeo"), "inspect", "--raw", "--tls-verify=false", f"docker://{registry}/some/oci:1"]
    manifest = run(inspect, timeout_s=60).stdout
    assert image.digest == f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    check_whole(fetch(f"docker://{registry}/some/oci@{image.digest}", store))
    with pytest.raises(UserInputError, match="not there"):
        fetch(f"docker://{registry}/some/oci:2", store)
    with pytest.raises(UserInputError):
        fetch(f"docker://{registry}/nothing", store)


def test_a_moved_tag_is_noticed(layout: Path, registry: str, store: Store, tmp_path: Path) -> None:
    name = f"docker://{registry}/moving:latest"
    skopeo_copy(f"oci:{layout}", name, "--dest-tls-verify=false")
    first = fetch(name, store)
    other = write_layout(tmp_path / "other", [*LAYERS, tar_of(file("more", b"x"))], CONFIG)
    skopeo_copy(f"oci:{other}", name, "--dest-tls-verify=false")
    second = fetch(name, store)
    assert first.digest != second.digest and second.entries == first.entries + 1


def test_a_damaged_blob_in_a_registry(layout: Path, registry: str, store: Store, tmp_path: Path) -> None:
    name = f"docker://{registry}/damaged:1"
    skopeo_copy(f"oci:{layout}", name, "--dest-tls-verify=false")
    blobs = [path for path in (tmp_path / "registry").rglob("data") if b'"schemaVersion"' not in path.read_bytes()]
    assert len(blobs) == 3
    for blob in blobs:
        whole = blob.read_bytes()
        blob.write_bytes(whole[:-20] + bytes([whole[-20] ^ 0xFF]) + whole[-19:])
        with pytest.raises(UserInputError) as caught:
            fetch(name, store)
        assert "does not match" in caught.value.message, caught.value.details
        assert blob.parent.name in caught.value.message
        blob.write_bytes(whole)
    only_cache_is_left(store)


def test_no_registry_there(store: Store) -> None:
    with pytest.raises(HostError, match="cannot be reached"):
        fetch("docker://127.0.0.1:1/x", store)


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "missing"])
def test_damaged_layers(layout: Path, store: Store, damage: str) -> None:
    fetch(f"oci:{layout}", store)  # what the cache has must not hide the damage
    blob = largest_blob(layout)
    data = bytearray(blob.read_bytes())
    if damage == "flip":
        data[600] ^= 1
        blob.write_bytes(data)
    elif damage == "truncate":
        blob.write_bytes(data[:-700])
    elif damage == "empty":
        blob.write_bytes(b"")
    else:
        blob.unlink()
    with pytest.raises(UserInputError, match=blob.name) as caught:
        fetch(f"oci:{layout}", store)
    assert caught.value.exit_code == 2 and caught.value.hint
    only_cache_is_left(store)


def test_content_that_differs_from_its_promise(tmp_path: Path, store: Store) -> None:
    """All blobs match their digests, but the configuration promises other content."""
    layout = write_layout(tmp_path / "lying", LAYERS, CONFIG)
    index = json.loads((layout / "index.json").read_text())
    blobs = layout / "blobs" / "sha256"
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
    config = json.loads((blobs / manifest["config"]["digest"][7:]).read_text())
    config["rootfs"]["diff_ids"][0] = "sha256:" + "0" * 64

    def put(document: Any) -> dict[str, Any]:
        data = json.dumps(document).encode()
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return {"digest": f"sha256:{name}", "size": len(data)}

    manifest["config"].update(put(config))
    index["manifests"][0].update(put(manifest))
    (layout / "index.json").write_text(json.dumps(index))
    with pytest.raises(UserInputError, match="digest"):
        fetch(f"oci:{layout}", store)


@pytest.mark.parametrize("kind", ["docker-archive", "oci-archive"])
def test_truncated_archives(layout: Path, tmp_path: Path, store: Store, kind: str) -> None:
    whole = tmp_path / "whole.tar"
    skopeo_copy(f"oci:{layout}:latest", f"{kind}:{whole}:name:tag" if kind == "docker-archive" else f"{kind}:{whole}")
    for share in (0.2, 0.5, 0.7):
        cut = tmp_path / "cut.tar"
        cut.write_bytes(whole.read_bytes()[: int(whole.stat().st_size * share)])
        with pytest.raises(UserInputError):
            fetch(f"{kind}:{cut}", store)
    only_cache_is_left(store)


def test_another_architecture(tmp_path: Path, store: Store) -> None:
    alone = write_layout(tmp_path / "alone", LAYERS, CONFIG, ["s390x"])
    with pytest.raises(UserInputError, match=r"s390x.*amd64"):
        fetch(f"oci:{alone}", store)
    listed = write_layout(tmp_path / "list", LAYERS, CONFIG, ["ppc64le", "s390x"])
    with pytest.raises(UserInputError, match="amd64"):
        fetch(f"oci:{listed}", store)
    several = write_layout(tmp_path / "several", LAYERS, CONFIG, ["arm64", "amd64", "s390x"])
    assert fetch(f"oci:{several}", store).config.architecture == "amd64"
    chosen = fetch(f"oci:{several}", store, ImageOptions(architecture="s390x"))
    assert chosen.config.architecture == "s390x"


def test_an_image_that_names_no_architecture_is_for_the_one_that_is_asked_for(tmp_path: Path, store: Store) -> None:
    nameless = write_layout(tmp_path / "nameless", LAYERS, CONFIG, [""])
    for asked, found in (("", "amd64"), ("arm64", "arm64"), ("amd64", "amd64"), ("", "amd64")):
        image = fetch(f"oci:{nameless}", store, ImageOptions(architecture=asked))
        assert image.config.architecture == found
        assert image.ignored == (f"architecture (not said: taken as {found})",)
    odd = write_layout(tmp_path / "odd", LAYERS, CONFIG, ["aarch64"])
    assert fetch(f"oci:{odd}", store).config.architecture == "arm64"
    with pytest.raises(UserInputError, match=r"arm64, not for linux/amd64"):
        fetch(f"oci:{odd}", store, ImageOptions(architecture="amd64"))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"Entrypoint": None, "Cmd": None}, "no entry point"),
        ({"Entrypoint": [], "Cmd": []}, "no entry point"),
        ({"Entrypoint": ["/bin/absent"]}, "'/bin/absent'.*is not in the image"),
        ({"Entrypoint": ["absent"]}, "'absent'.*is not in the image"),
        ({"Entrypoint": ["./prog"]}, "is not in the image"),
        ({"Entrypoint": ["/bin"]}, "is a directory"),
        ({"Entrypoint": ["/etc/plain"]}, "is not an executable file"),
        ({"Entrypoint": ["", "x"]}, "empty"),
        ({"Entrypoint": [""], "Cmd": []}, "no entry point"),
        ({"Entrypoint": "shell form"}, "'/bin/sh'.*is not in the image"),
        ({"Env": "A=b"}, "Env"),
        ({"ExposedPorts": [99999]}, "ExposedPorts"),
        ({"Healthcheck": {"Test": "WHAT"}}, "Test"),
    ],
)
def test_images_that_cannot_start(tmp_path: Path, store: Store, change: dict[str, Any], match: str) -> None:
    layout = write_layout(tmp_path / "odd", LAYERS, {**CONFIG, **change})
    with pytest.raises(UserInputError, match=match) as caught:
        fetch(f"oci:{layout}", store)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("entry", ["/sbin/prog", "prog", "../bin/prog", "/sbin/../bin/prog"])
def test_entry_points_are_found_through_path_and_links(tmp_path: Path, store: Store, entry: str) -> None:
    layout = write_layout(tmp_path / "odd", LAYERS, {**CONFIG, "Entrypoint": [entry]})
    assert fetch(f"oci:{layout}", store).config.argv[0] == entry


def test_a_name_that_is_ours(tmp_path: Path, store: Store) -> None:
    layout = write_layout(tmp_path / "odd", [*LAYERS, tar_of(symlink(".vmtailor", "/etc"))], CONFIG)
    with pytest.raises(UserInputError, match="vmtailor"):
        fetch(f"oci:{layout}", store)


def test_a_hostile_layer_through_the_whole_stage(tmp_path: Path, store: Store) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for bad in (
        tar_of(file("../../../../../../" + str(outside / "evil"), b"x")),
        tar_of(symlink("l", str(outside)), file("l/../../x", b"x")),
    ):
        layout = write_layout(tmp_path / "hostile", [*LAYERS, bad], CONFIG)
        with pytest.raises(UserInputError, match="hostile"):
            fetch(f"oci:{layout}", store)
        run(["rm", "-rf", str(layout)], timeout_s=30)
    assert list(outside.iterdir()) == []
    only_cache_is_left(store)


def test_limits_of_the_whole_stage(layout: Path, store: Store) -> None:
    with pytest.raises(UserInputError, match="entries"):
        fetch(f"oci:{layout}", store, ImageOptions(limits=ImageLimits(entries=6)))
    # Directories that no entry describes do not count.
    implied = write_layout(
        layout.parent / "implied", [tar_of(file("a/b/c/d/prog", mode=0o755))], {"Cmd": ["/a/b/c/d/prog"]}
    )
    assert fetch(f"oci:{implied}", store, ImageOptions(limits=ImageLimits(entries=1))).entries == 5


def test_a_plain_directory(tmp_path: Path, store: Store) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    program = root / "bin" / "prog"
    program.write_bytes(b"x" * 700)
    program.chmod(0o755)
    os.link(program, root / "same")
    (root / "sbin").symlink_to("bin")
    os.mkfifo(root / "pipe")
    os.utime(root, (1, 1))
    with pytest.raises(UserInputError, match="no entry point"):
        fetch(str(root), store)
    image = fetch(f"rootfs:{root}", store, ImageOptions(entrypoint=("/sbin/prog", "-x")))
    flat = read_flat(Path(image.archive))
    assert list(flat) == [".", "bin", "bin/prog", "pipe", "same", "sbin"]
    assert flat["bin/prog"][1] == b"x" * 700 and flat["bin/prog"][0].mode == 0o755 and flat["bin/prog"][0].uid == 0
    assert (flat["same"][0].linkname, flat["sbin"][0].linkname) == ("bin/prog", "bin")
    assert image.digest == f"sha256:{image.archive_sha256}" and image.unpacked_bytes == 700
    again = fetch(str(root), store, ImageOptions(entrypoint=("/sbin/prog", "-x")))
    assert again.archive_sha256 == image.archive_sha256
    (root / ".wh.odd").touch()
    with pytest.raises(UserInputError, match="deletions"):
        fetch(str(root), store)


def test_a_plain_directory_merges_like_an_image(tmp_path: Path, store: Store) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "prog").write_bytes(b"1")
    (root / "prog").chmod(0o755)
    image = fetch(str(root), store, ImageOptions(entrypoint=("/prog",)))
    over = extra_layer([CONSOLE, Extra("x", data=b"2")])
    stack = [*layers_of(tmp_path, [Path(image.archive).read_bytes(), over])]
    merge(stack, tmp_path / "flat")
    assert set(read_flat(tmp_path / "flat")) == {".", "prog", "dev", "dev/console", "x"}


def test_references(tmp_path: Path) -> None:
    assert parse_reference("docker://a/b:c").source == Source.DOCKER
    assert parse_reference("docker-daemon:a:b").rest == "a:b"
    (tmp_path / "junk.tar").write_bytes(b"junk")
    (tmp_path / "other.tar").write_bytes(tar_of(file("x")))
    for bad in ("nonsense", "oci:", str(tmp_path / "junk.tar"), str(tmp_path / "other.tar"), "/nowhere/at/all", ""):
        with pytest.raises(UserInputError) as caught:
            parse_reference(bad)
        assert caught.value.hint


@pytest.mark.parametrize("driver", ["vfs", "overlay"])
def test_podmans_store(driver: str, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by skopeo as podman would: by root, or in a user namespace, which takes newuidmap and newgidmap."""
    another = tar_of(directory("srv/own", mode=0o700, uid=33, gid=33), file("srv/own/a", mode=0o600, uid=33, gid=33))
    layout = write_layout(tmp_path / "layout", [*LAYERS, another], CONFIG)
    settings = tmp_path / "storage.conf"
    folders = f'graphroot = "{tmp_path}/graph"\nrunroot = "{tmp_path}/run"\n'
    settings.write_text(f'[storage]\ndriver = "{driver}"\n{folders}')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(settings))
    if os.geteuid() != 0 and (shutil.which("newuidmap") is None or shutil.which("newgidmap") is None):
        with pytest.raises(HostError, match="cannot be read without root: this host lacks the programs newuidmap"):
            fetch("containers-storage:localhost/mine:1", store)
        return
    stored = "containers-storage:localhost/mine:1"
    skopeo_copy(f"oci:{layout}:latest", stored)
    try:
        image = fetch(stored, store)
        check_whole(image)
        assert read_flat(Path(image.archive))["srv/own/a"][0].uid == 33
        assert image.archive_sha256 == fetch(f"oci:{layout}", store).archive_sha256
        with pytest.raises(UserInputError, match="not in podman's store"):
            fetch("containers-storage:localhost/mine:2", store)
        with pytest.raises(TooLarge):
            fetch(stored, store, ImageOptions(limits=ImageLimits(4, 1000)))
    finally:  # without root its files are those of users that the user who asks may not remove
        run([require_tool("skopeo"), "delete", stored], timeout_s=60)
        overlay = f"{tmp_path}/graph/overlay"  # skopeo as root mounts it on itself, and leaves it so
        while f" {overlay} " in Path("/proc/self/mounts").read_text():
            run(["umount", overlay], timeout_s=30)
    only_cache_is_left(store)


def test_no_docker_engine(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(HostError, match="Docker engine"):
        fetch("docker-daemon:a:b", store)


def test_a_full_disk(layout: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    small = tmp_path / "small"
    small.mkdir()
    noise = [tar_of(file("prog", os.urandom(400_000), mode=0o755))]
    big = write_layout(tmp_path / "big", noise, {**CONFIG, "Entrypoint": ["/prog"]})
    run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(small)], timeout_s=30)
    try:
        with pytest.raises(HostError, match=r"space|left"):
            fetch(f"oci:{big}", Store(small / "cache"))
        assert list((small / "cache" / "scratch").iterdir()) == []
    finally:  # this very process still says there that it uses the cache
        run(["umount", "--lazy", str(small)], timeout_s=30)
