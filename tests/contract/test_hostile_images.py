# SPDX-License-Identifier: Apache-2.0
"""Hostile images through the command line: each is refused at once, in one message with the place and a next step, and
leaves nothing behind; what only looks odd is read."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.hostile import (
    ACCEPTED,
    ENOUGH,
    GOOD,
    VND,
    Parts,
    pax_number,
    vmtailor,
)
from tests.fakes.hostile_images import (
    BLOB,
    CHAR,
    DEEP,
    DEEP_NAME,
    DIGITS,
    ENDLESS,
    FIFO,
    NEVER_SHORT,
    SMALL,
    ZEROS,
    Make,
    a_huge_header,
    a_link_to,
    a_pipe,
    a_socket,
    bare,
    blob_becomes,
    blobs_elsewhere,
    config,
    docker,
    docker_with_packed_layer,
    gnu_sparse,
    index,
    index_becomes,
    layer,
    manifest,
    nest,
    nothing_left,
    oci_archive,
    oci_archive_of,
    packed,
    raw_config,
    sparse,
    spoiled,
    tree,
    two_megabytes,
    with_urls,
    zstd,
)
from tests.fakes.tars import config_of, directory, entry, file, hardlink, symlink, tar_of

from vmtailor.stages.image_fetch import host_architecture

pytestmark = [
    pytest.mark.contract,
    pytest.mark.attack,
    pytest.mark.skipif(host_architecture() != "amd64", reason="the images made here are for amd64"),
]

IMAGES: dict[str, tuple[Make, str]] = {
    # numbers without end
    "health check interval 10^400": (config(Healthcheck={**NEVER_SHORT, "Interval": ENDLESS}), "Interval"),
    "health check interval 2^63": (config(Healthcheck={**NEVER_SHORT, "Interval": 2**63}), "Interval"),
    "health check timeout 10^4000": (config(Healthcheck={**NEVER_SHORT, "Timeout": 10**4000}), "Timeout"),
    "health check retries 10^400": (config(Healthcheck={**NEVER_SHORT, "Retries": ENDLESS}), "Retries"),
    "health check interval infinity": (config(Healthcheck={**NEVER_SHORT, "Interval": float("inf")}), "Interval"),
    "health check interval nan": (config(Healthcheck={**NEVER_SHORT, "Interval": float("nan")}), "Interval"),
    "user 10^30": (config(User="1" + "0" * 30), "User"),
    "group of 5,000 digits": (config(User=f"0:{DIGITS}"), "User"),
    "40,000 ranges of all ports": (
        config(ExposedPorts={f"{n}-65535": {} for n in range(1, 40_000)}), "ExposedPorts"),
    "number of 5,000 digits in the configuration": (raw_config(b'{"a": ' + b"9" * 5000 + b"}"), "JSON"),
    "uid 10^30 in a layer": (layer(pax_number("f", uid="1" + "0" * 30)), "user or group"),
    "uid of 5,000 digits in a layer": (layer(pax_number("f", uid=DIGITS)), "user or group"),
    "gid nan in a layer": (layer(pax_number("f", gid="nan")), "user or group"),
    "size of 5,000 digits in a layer": (layer(pax_number("f", size=DIGITS)), "size"),
    "size -1 in a layer": (layer(pax_number("f", size="-1")), "size"),
    "sparse map of 5,000 digits": (
        layer(pax_number("f", **{"GNU.sparse.map": f"{DIGITS},1", "GNU.sparse.size": "9"})), "layer sha256:"),
    "manifest schema 10^400": (manifest(lambda m: {**m, "schemaVersion": ENDLESS}), "cannot"),
    "layer size 10^30": (
        manifest(lambda m: {**m, "layers": [{**m["layers"][0], "size": 10**30}]}), "size"),
    "layer size -1": (manifest(lambda m: {**m, "layers": [{**m["layers"][0], "size": -1}]}), "size"),
    # depth, and documents that are large or say things twice
    "2,000 nested directories": (layer(tar_of(directory(DEEP_NAME), file("prog", b"\x7fELF", mode=0o755))), "deep"),
    "2,000 nested directories by links": (
        layer(tar_of(
            directory("d/" * 700), symlink("l", "d/" * 700), file("l/" + "e/" * 700 + "f"),
            file("prog", b"\x7fELF", mode=0o755))), "deep"),
    "deeply nested configuration": (raw_config(DEEP), "JSON"),
    "nested value in the configuration": (
        raw_config(b'{"config": {"User": ' + b"[" * 970 + b"]" * 970 + b"}}"), "image's description"),
    "deeply nested manifest": (manifest(lambda _: DEEP), "JSON"),
    "deeply nested index": (index(lambda _: DEEP), "index.json"),
    "huge index": (index(lambda _: b"{" + b" " * (9 << 20) + b"}"), "index.json"),
    "huge configuration": (raw_config(b"{" + b" " * (9 << 20) + b"}"), "maximum allowed size"),
    "layers said twice": (
        manifest(lambda m: json.dumps(m)[:-1].encode() + b', "layers": []}'), "twice"),
    "layers said twice, once in capitals": (manifest(lambda m: {**m, "LAYERS": []}), "twice"),
    "configuration says a key twice": (
        raw_config(b'{"config": {"User": "0", "User": "1"}, "architecture": "amd64"}'), "twice"),
    "5,000 layers": (manifest(lambda m: {**m, "layers": m["layers"] * 5000}), "layers"),
    "a NUL in the entry point": (config(Entrypoint=["/prog\0"]), "Entrypoint"),
    "a NUL in a variable": (config(Env=["A=b\0c"]), "Env"),
    "a NUL in the user": (config(User="a\0b"), "User"),
    "a NUL in a volume": (config(Volumes={"/a\0": {}}), "Volumes"),
    "a NUL in the architecture": (raw_config(b'{"architecture": "a\\u0000"}'), "architecture"),
    "half a character in a label": (raw_config(b'{"config": {"Labels": {"a": "\\ud800"}}}'), "Labels"),
    "a word that no program can get": (config(Cmd=["x" * 200_000]), "Cmd"),
    "an architecture of a megabyte": (raw_config(json.dumps({"architecture": "x" * 10**6}).encode()), "architecture"),
    "an entry point of a megabyte": (config(Entrypoint=["x/" * 50_000]), "entry point"),
    "100,000 variables": (config(Env=[f"A{n}={'x' * 20}" for n in range(100_000)]), "Env"),
    # what is no file among the blobs
    "a FIFO among the blobs": (blob_becomes(os.mkfifo), "pipe"),
    "a socket among the blobs": (blob_becomes(a_socket), "socket"),
    "a folder among the blobs": (blob_becomes(Path.mkdir), "folder"),
    "a link to a device among the blobs": (blob_becomes(a_link_to("/dev/zero")), "leads out"),
    "a link out of the layout": (blob_becomes(a_link_to("/etc/hostname")), "leads out"),
    "a link to nothing": (blob_becomes(a_link_to("nothing")), "nothing"),
    "a link in circles": (spoiled(lambda i: (i / "blobs" / "loop").symlink_to("loop")), "loop"),
    "a FIFO as the index": (index_becomes(os.mkfifo), "pipe"),
    "the index is /dev/zero": (
        index_becomes(a_link_to("/dev/zero")), "leads out"),
    "blobs is a link out": (
        spoiled(blobs_elsewhere),
        "leads out"),
    "a blob of 8 TB": (blob_becomes(sparse), "raise the limit"),
    "no index": (spoiled(lambda i: (i / "index.json").unlink()), "index.json"),
    # layers from elsewhere
    "a layer with a URL": (with_urls(), "127.0.0.1:1"),
    "a layer with a URL in capitals": (with_urls("URLS"), "127.0.0.1:1"),
    "a layer with a URL in odd letters": (with_urls("url\u017f"), "127.0.0.1:1"),
    "a layer that may not be distributed": (
        with_urls("other", f"{VND}.layer.nondistributable.v1.tar"), "nondistributable"),
    "a foreign layer of Docker's": (
        with_urls("other", "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"), "foreign"),
    "a layer with a URL, the only image said to be for another machine": (
        lambda f: with_platform(with_urls()(f), "windows", "s390x"), "127.0.0.1:1"),
    "a manifest with a URL in the index": (
        index(lambda i: {**i, "manifests": [{**i["manifests"][0], "urls": ["http://127.0.0.1:1/m"]}]}), "127.0.0.1:1"),
    "an archive with such a layer": (oci_archive_of(with_urls()), "127.0.0.1:1"),
    # archives of images
    "oci-archive with a FIFO": (oci_archive(FIFO), "pipe"),
    "oci-archive with a device": (oci_archive(CHAR), "null"),
    "oci-archive with a link": (oci_archive(symlink(BLOB, "/etc/passwd")), "a" * 64),
    "oci-archive with a hard link": (oci_archive(hardlink(BLOB, "index.json")), "a" * 64),
    "oci-archive that leads out": (oci_archive(file("../../out", b"x")), "leads out"),
    "oci-archive with an absolute name": (oci_archive(file("/../out", b"x")), "leads out"),
    "oci-archive with a sparse file of 1 EB": (oci_archive(gnu_sparse(BLOB, 1 << 60)), "raise the limit"),
    "oci-archive with the index twice": (oci_archive(file("index.json", b"{}")), "twice"),
    "oci-archive with a deep index": (oci_archive_of(index(lambda _: DEEP)), "index.json"),
    "oci-archive, compressed bomb": (packed(oci_archive(file(BLOB, bytes(4 << 20))), gzip.compress, *SMALL), "1M"),
    "docker-archive with a FIFO": (docker((entry("layer.tar", tarfile.FIFOTYPE), b"")), "layer.tar"),
    "docker-archive with a device": (docker(CHAR), "null"),
    "docker-archive that leads out": (docker(file("../x", b"")), "leads out"),
    "docker-archive with a deep manifest": (docker(file("manifest.json", DEEP)), "manifest.json"),
    "docker-archive with a sparse file of 1 EB": (docker(gnu_sparse("layer2.tar", 1 << 60)), "raise the limit"),
    "docker-archive with a huge manifest": (docker(file("manifest.json", b" " * (9 << 20))), "manifest.json"),
    "docker-archive whose layer leads out": (docker(Layers=["../../etc/passwd"]), "missing"),
    "docker-archive with a header of 8 GB": (
        lambda f: f"docker-archive:{a_huge_header(f / 'image.tar')}", "headers"),
    "the same without its prefix": (lambda f: a_huge_header(f / "image.tar"), "headers"),
    "docker-archive, bomb in a layer": (
        lambda f: (f"docker-archive:{docker_with_packed_layer(f / 'image.tar', ZEROS)}", *SMALL), "1M"),
    "docker-archive, gzip bomb": (packed(docker(file("zeros", bytes(4 << 20))), gzip.compress, *SMALL), "1M"),
    "docker-archive, xz bomb": (packed(docker(file("zeros", bytes(4 << 20))), lzma.compress, *SMALL), "1M"),
    "docker-archive, bzip2 bomb": (packed(docker(file("zeros", bytes(4 << 20))), bz2.compress, *SMALL), "1M"),
    "docker-archive, zstd bomb": (packed(docker(file("zeros", bytes(4 << 20))), zstd, *SMALL), "1M"),
    "an archive told by its content, bomb": (
        packed(bare(docker(file("zeros", bytes(4 << 20)))), gzip.compress, *SMALL), "1M"),
    "a FIFO as the archive": (a_pipe("docker-archive"), "pipe"),
    "/dev/zero as the archive": (lambda _: "docker-archive:/dev/zero", "/dev/zero"),
    "a folder as the archive": (lambda f: f"oci-archive:{f}", "folder"),
    # bombs in layers
    "gzip bomb": (layer(ZEROS, gzip.compress(ZEROS), *SMALL), "1M"),
    "zstd bomb": (layer(ZEROS, zstd(ZEROS), *SMALL), "1M"),
    "xz bomb": (layer(ZEROS, lzma.compress(ZEROS), *SMALL), "1M"),
    "many tiny files": (
        layer(tar_of(file("prog", b"\x7fELF", mode=0o755), *(file(f"f{n}") for n in range(2000))), None, *SMALL), "1M"),
    "sparse file of 1 EB in a layer": (layer(tar_of(gnu_sparse("f", 1 << 60))), "raise the limit"),
    "zeros after the end": (layer(GOOD + bytes(4 << 20), gzip.compress(GOOD + bytes(4 << 20)), *SMALL), "1M"),
    # folders
    "rootfs nested 600 deep": (tree(nest), "deep"),
    "rootfs with a file of 8 TB": (tree(lambda r: sparse(r / "big")), "raise the limit"),
    "rootfs beyond the limit": (tree(two_megabytes, *SMALL), "1M"),
    "rootfs with a mark of deletion": (tree(lambda r: (r / ".wh.x").touch()), ".wh.x"),
    "rootfs is a FIFO": (a_pipe("rootfs"), "folder"),
    "rootfs is /proc": (lambda _: ("rootfs:/proc/self", "--entrypoint", "/exe"), "/proc"),
}  # fmt: skip


@pytest.mark.parametrize("name", IMAGES)
def test_a_hostile_image(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, word = IMAGES[name]
    made = make(place)
    reference, *options = made if isinstance(made, tuple) else (made,)
    text = f"oci:{reference}" if isinstance(reference, Path) and reference.is_dir() else str(reference)
    said = vmtailor(["fit", text, "-o", place / "bundle", *ENOUGH, *options], capsys, monkeypatch)
    assert said.code == 2, said.stderr
    assert ACCEPTED not in said.stderr
    assert said.stderr.count("error:") == 1 and said.stderr.count("hint:") == 1, said.stderr
    assert word in said.stderr, said.stderr
    assert len(said.stderr) < 20_000
    nothing_left(place)


def linked_inside(image: Path) -> None:
    blob = next((image / "blobs" / "sha256").iterdir())
    blob.rename(image / "elsewhere")
    blob.symlink_to("../../elsewhere")


def with_platform(image: str | Path | tuple[str | Path, ...], system: str, processor: str) -> Path:
    """Return the layout with a platform beside its only manifest."""
    assert isinstance(image, Path)
    document = json.loads((image / "index.json").read_text())
    document["manifests"][0]["platform"] = {"os": system, "architecture": processor}
    (image / "index.json").write_text(json.dumps(document))
    return image


def in_a_list(image: Path, processor: str) -> None:
    """Put the image into a list of two, as one for `processor`."""
    index = json.loads((image / "index.json").read_text())
    one = index["manifests"][0]
    others = [{**one, "platform": {"os": "linux", "architecture": name}} for name in ("s390x", processor)]
    data = json.dumps({"schemaVersion": 2, "mediaType": f"{VND}.index.v1+json", "manifests": others}).encode()
    name = hashlib.sha256(data).hexdigest()
    (image / "blobs" / "sha256" / name).write_bytes(data)
    listed = {"mediaType": f"{VND}.index.v1+json", "digest": f"sha256:{name}", "size": len(data)}
    (image / "index.json").write_text(json.dumps({**index, "manifests": [listed]}))


def without_kinds(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest with what is needed alone."""
    both = (manifest["config"], *manifest["layers"])
    config, *layers = [{key: one[key] for key in ("digest", "size")} for one in both]
    return {"config": config, "layers": layers}


def stated(**top: Any) -> Make:
    """An image with other words beside `config`; None takes one away."""
    document = {**config_of([GOOD], {"Cmd": ["/prog"]}), **top}
    return raw_config(json.dumps({key: value for key, value in document.items() if value is not None}).encode())


SIGNALS = ("SIGRTMIN+3", "SIGRTMAX-3", "rtmin+3", "37", "quit")
ODD_BUT_GOOD: dict[str, Make] = {
    **{f"stop signal {text}": config(StopSignal=text) for text in SIGNALS},
    "a layer without its last padding": layer(GOOD[:-1024] + tar_of(file("last", b"x" * 700))[: 512 + 700]),
    "a link that stays in the layout": spoiled(linked_inside),
    "an oci-archive": oci_archive(),
    "a docker-archive": docker(),
    "a docker-archive, packed": packed(docker(), gzip.compress),
    "an image just below the limit": layer(ZEROS, gzip.compress(ZEROS), "--max-image-size", "5M"),
    "a folder": tree(lambda root: os.mkfifo(root / "pipe")),
    "an entry point taken back": config(Entrypoint=[""], Cmd=["/prog"]),
    "an entry point of null beside words of null": config(Entrypoint=None, Cmd=["/prog", None]),
    "x86_64 as the processor": stated(architecture="x86_64"),
    "X86-64 as the processor": stated(architecture="X86-64"),
    "the processor in capitals": stated(architecture="AMD64"),
    "Linux in capitals": stated(os="Linux"),
    "no system said": stated(os=None),
    "no date, no history": stated(created=None, history=[]),
    "a history that is too short": stated(history=[{"created_by": "x"}], created="yesterday"),
    "content without its type": stated(rootfs={"diff_ids": config_of([GOOD], {})["rootfs"]["diff_ids"]}),
    "fields that nobody knows": stated(container_config={"Cmd": 5}, x=[[]], config={"Cmd": ["/prog"], "Y": 10**30}),
    "keys in small letters": stated(config={"entrypoint": ["/prog"], "env": ["A=1"], "healthcheck": {"test": []}}),
    "x86_64 in a list of images": spoiled(lambda image: in_a_list(image, "x86_64")),
    "another machine in the index": lambda folder: with_platform(Parts().write(folder / "i"), "linux", "x"),
    "a manifest without kinds": manifest(without_kinds),
    "a health check of several words for the shell": config(Healthcheck={"Test": ["CMD-SHELL", "a", "b"]}),
    "a label of null": config(Labels={"a": None, "b": "c"}),
    "volumes of null": config(Volumes={"/v": None}),
    "a layer of 0 bytes": lambda folder: Parts(blobs=[GOOD, b""]).write(folder / "image"),
    "a layer of 0 bytes, packed": lambda folder: Parts(
        blobs=[gzip.compress(b""), gzip.compress(GOOD)], tars=[b"", GOOD]).write(folder / "image"),
    "links of aufs": layer(tar_of(
        directory(".wh..wh.plnk"), file(".wh..wh.plnk/7.9", b"\x7fELF" + bytes(60), mode=0o755), file(".wh..wh.aufs"),
        hardlink("prog", ".wh..wh.plnk/7.9"), hardlink("usr/same", "/.wh..wh.plnk/7.9"))),
    "a name that goes up": layer(tar_of(
        file("w/a/../../prog", b"\x7fELF" + bytes(60), mode=0o755), hardlink("w/../l", "w/b/../../prog", mode=0o755))),
    "302 folders deep": layer(tar_of(
        directory("d/" * 302), file("prog", b"\x7fELF" + bytes(60), mode=0o755), file("e/" * 302 + "f", b"x"))),
    "a user with a blank": config(User="my user"),
    "a relative folder to work in": config(WorkingDir="srv"),
}  # fmt: skip


APPLE = {"LIBARCHIVE.xattr.com.apple.provenance": "AQIAJL", "SCHILY.xattr.com.apple.provenance": "\x01\x02"}
#: What is passed over, and the words that say so.
IGNORED: dict[str, tuple[Make, str]] = {
    "no processor": (stated(architecture=None), "architecture (not said: taken as amd64)"),
    "a processor of null": (raw_config(b'{"architecture": null, "os": null, ' + json.dumps(
        config_of([GOOD], {"Cmd": ["/prog"]})).encode().partition(b'"os": "linux", ')[2]), "architecture (not said"),
    "a health check in the oldest form": (
        config(Healthcheck={"Test": ["curl", "-f", "http://localhost/"]}),
        "Healthcheck 'curl -f http://localhost/' (it begins with none of CMD, CMD-SHELL and NONE)"),
    "a health check without a command": (config(Healthcheck={"Test": ["CMD"]}), "Healthcheck 'CMD' (no command)"),
    "an empty command of a health check": (config(Healthcheck={"Test": ["CMD-SHELL", ""]}), "'CMD-SHELL ' (no command"),
    "a health check's time below 0": (
        config(Healthcheck={"Test": ["CMD", "/prog"], "Timeout": -1}), "Healthcheck's Timeout (less than 0)"),
    "port 0": (config(ExposedPorts={"0/tcp": {}, "80/tcp": {}}), "ExposedPorts '0/tcp' (no port)"),
    "ports by name": (
        config(ExposedPorts={f"{name}/tcp": {} for name in ("http", "https", "ssh", "smtp", "ftp")}),
        "ExposedPorts 'ftp/tcp', 'http/tcp', 'https/tcp' and 2 more (no port)"),
    "ports the wrong way round": (config(ExposedPorts={"8002-8000/tcp": {}}), "ExposedPorts '8002-8000/tcp' (no port)"),
    "a port of 5,000 digits": (config(ExposedPorts={DIGITS: {}}), "ExposedPorts '9999"),
    "a port of a protocol without ports": (config(ExposedPorts={"8/icmp": {}}), "ExposedPorts '8/icmp' (no port)"),
    "attributes of macOS": (
        layer(tar_of(
            directory("usr", pax_headers=APPLE),
            file("prog", b"\x7fELF" + bytes(60), mode=0o755, pax_headers=APPLE))),
        "attribute 'com.apple.provenance' of 2 files (Linux has no place for it)"),
    "attributes of NFS": (
        layer(tar_of(
            file("prog", b"\x7fELF" + bytes(60), mode=0o755, pax_headers={"SCHILY.xattr.system.nfs4_acl": "\0" * 80}))),
        "attribute 'system.nfs4_acl' of 1 file"),
    "variables without a value or a name": (config(Env=["A", "=B", "C=1"]), "Env 'A', '=' (no variable)"),
    "a stop signal of 5,000 digits": (config(StopSignal=DIGITS), "(no signal: SIGTERM is sent)"),
    "stop signal 65": (config(StopSignal="65"), "StopSignal '65' (no signal"),
    "stop signal SIGRTMAX-31": (config(StopSignal="SIGRTMAX-31"), "StopSignal 'SIGRTMAX-31' (no signal"),
    "stop signal SIGRTMIN+99": (config(StopSignal="SIGRTMIN+99"), "StopSignal 'SIGRTMIN+99' (no signal"),
}  # fmt: skip


@pytest.mark.parametrize("name", IGNORED)
def test_what_engines_pass_over_is_passed_over_with_one_remark(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, words = IGNORED[name]
    for _ in range(2):  # the second image is the cache's
        image = place / "image"
        if not image.exists():
            make(place)
        said = vmtailor(["fit", f"oci:{image}", "-o", place / "bundle", *ENOUGH], capsys, monkeypatch)
        assert ACCEPTED in said.stderr, said.stderr
        remarks = [line for line in said.stderr.splitlines() if line.startswith("! ")]
        assert len(remarks) == 1 and "ignored, as container engines do: " in remarks[0], said.stderr
        assert words in remarks[0], said.stderr
        assert len(said.stderr) < 2000
    nothing_left(place)


@pytest.mark.parametrize("name", ODD_BUT_GOOD)
def test_what_only_looks_odd_is_read(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ODD_BUT_GOOD[name](place)
    reference, *options = made if isinstance(made, tuple) else (made,)
    text = f"oci:{reference}" if isinstance(reference, Path) else str(reference)
    said = vmtailor(["fit", text, "-o", place / "bundle", *ENOUGH, *options], capsys, monkeypatch)
    assert ACCEPTED in said.stderr, said.stderr
    nothing_left(place)
