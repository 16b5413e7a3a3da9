# SPDX-License-Identifier: Apache-2.0
"""Hostile input through the command line: each is refused at once, in one message with the place and a next step, and
leaves nothing behind."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import socket
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.hostile import (
    ACCEPTED,
    ENOUGH,
    GOOD,
    VND,
    Parts,
    docker_archive,
    pax_number,
    tar_of_folder,
    vmtailor,
)
from tests.fakes.tars import directory, entry, file, hardlink, symlink, tar_of

from vmtailor.stages.image import host_architecture

pytestmark = [
    pytest.mark.contract,
    pytest.mark.attack,
    pytest.mark.skipif(host_architecture() != "amd64", reason="the images made here are for amd64"),
]

Make = Callable[[Path], "str | Path | tuple[str | Path, ...]"]
ENDLESS = 10**400
DIGITS = "9" * 5000
DEEP = b"[" * 100_000
BLOB = "blobs/sha256/" + "a" * 64


def config(**inner: Any) -> Make:
    return lambda folder: Parts(config=inner).write(folder / "image")


def raw_config(text: bytes) -> Make:
    return lambda folder: Parts(config=text).write(folder / "image")


def layer(tar: bytes, blob: bytes | None = None, *options: str) -> Make:
    return lambda folder: (Parts(blobs=[blob or tar], tars=[tar]).write(folder / "image"), *options)


def manifest(change: Callable[[dict[str, Any]], Any]) -> Make:
    return lambda folder: Parts(manifest=change).write(folder / "image")


def index(change: Callable[[dict[str, Any]], Any]) -> Make:
    return lambda folder: Parts(index=change).write(folder / "image")


def spoiled(spoil: Callable[[Path], None]) -> Make:
    def make(folder: Path) -> Path:
        image = Parts().write(folder / "image")
        spoil(image)
        return image

    return make


def blob_becomes(make: Callable[[Path], None]) -> Make:
    """The layer's blob is replaced."""

    def spoil(image: Path) -> None:
        blob = max((image / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
        blob.unlink()
        make(blob)

    return spoiled(spoil)


def index_becomes(make: Callable[[Path], None]) -> Make:
    def spoil(image: Path) -> None:
        (image / "index.json").unlink()
        make(image / "index.json")

    return spoiled(spoil)


def blobs_elsewhere(image: Path) -> None:
    (image / "blobs").rename(image.parent / "b")
    (image / "blobs").symlink_to(image.parent / "b")


def a_pipe(prefix: str) -> Make:
    def make(folder: Path) -> str:
        os.mkfifo(folder / "pipe")
        return f"{prefix}:{folder / 'pipe'}"

    return make


def two_megabytes(root: Path) -> None:
    (root / "big").write_bytes(bytes(2 << 20))


def a_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name[:60])
            Path(path.name[:60]).rename(path.name)
    finally:
        os.chdir(here)


def a_link_to(text: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(text)


def sparse(path: Path) -> None:
    with path.open("wb") as out:
        out.truncate(1 << 43)


def with_urls(key: str = "urls", kind: str = f"{VND}.layer.v1.tar") -> Make:
    def change(manifest: dict[str, Any]) -> dict[str, Any]:
        manifest["layers"][0].update({key: ["http://127.0.0.1:1/layer"], "mediaType": kind})
        return manifest

    return manifest_of(change)


def manifest_of(change: Callable[[dict[str, Any]], Any]) -> Make:
    return manifest(change)


def oci_archive(*members: tuple[tarfile.TarInfo, bytes]) -> Make:
    def make(folder: Path) -> str:
        image = Parts().write(folder / "image")
        return f"oci-archive:{tar_of_folder(image, folder / 'image.tar', *members)}"

    return make


def oci_archive_of(of: Make) -> Make:
    return lambda folder: f"oci-archive:{tar_of_folder(Path(str(of(folder))), folder / 'image.tar')}"


def docker(*members: tuple[tarfile.TarInfo, bytes], **more: Any) -> Make:
    return lambda folder: f"docker-archive:{docker_archive(folder / 'image.tar', *members, **more)}"


def bare(make: Make) -> Make:
    """The same without its prefix: the kind is told by the content."""
    return lambda folder: str(make(folder)).partition(":")[2]


def packed(make: Make, pack: Callable[[bytes], bytes], *options: str) -> Make:
    def packing(folder: Path) -> tuple[str, ...]:
        reference = str(make(folder))
        prefix, _, path = reference.rpartition(":")
        Path(path).write_bytes(pack(Path(path).read_bytes()))
        return (f"{prefix}:{path}" if prefix else path, *options)

    return packing


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


def tree(grow: Callable[[Path], None], *options: str) -> Make:
    def make(folder: Path) -> tuple[str, ...]:
        root = folder / "root"
        root.mkdir()
        (root / "prog").write_bytes(b"\x7fELF" + bytes(60))
        (root / "prog").chmod(0o755)
        grow(root)
        return (f"rootfs:{root}", "--entrypoint", "/prog", *options)

    return make


def nest(root: Path) -> None:
    """Folders within folders, deeper than any name can say."""
    handle = os.open(root, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d" * 10, dir_fd=handle)
        inner = os.open("d" * 10, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)


def gnu_sparse(name: str, size: int) -> tuple[tarfile.TarInfo, bytes]:
    claims = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.realsize": str(size),
        "GNU.sparse.name": name,
    }
    return entry(name, size=512, pax_headers=claims), b"0\n" + bytes(510)


ZEROS = tar_of(file("prog", b"\x7fELF" + bytes(60), mode=0o755), file("zeros", bytes(4 << 20)))
SMALL = ("--max-image-size", "1M")
DEEP_NAME = "d/" * 2000
CHAR = (entry("blobs/sha256/null", tarfile.CHRTYPE, devmajor=1, devminor=3), b"")
FIFO = (entry("blobs/sha256/pipe", tarfile.FIFOTYPE), b"")
NEVER_SHORT = {"Test": ["CMD", "/prog"]}

IMAGES: dict[str, tuple[Make, str]] = {
    # numbers without end
    "health check interval 10^400": (config(Healthcheck={**NEVER_SHORT, "Interval": ENDLESS}), "Interval"),
    "health check interval 2^63": (config(Healthcheck={**NEVER_SHORT, "Interval": 2**63}), "Interval"),
    "health check timeout 10^4000": (config(Healthcheck={**NEVER_SHORT, "Timeout": 10**4000}), "Timeout"),
    "health check retries 10^400": (config(Healthcheck={**NEVER_SHORT, "Retries": ENDLESS}), "Retries"),
    "health check interval infinity": (config(Healthcheck={**NEVER_SHORT, "Interval": float("inf")}), "Interval"),
    "health check interval nan": (config(Healthcheck={**NEVER_SHORT, "Interval": float("nan")}), "Interval"),
    "stop signal of 5,000 digits": (config(StopSignal=DIGITS), "signal"),
    "stop signal 65": (config(StopSignal="65"), "signal"),
    "stop signal SIGRTMAX-31": (config(StopSignal="SIGRTMAX-31"), "signal"),
    "stop signal SIGRTMIN+99": (config(StopSignal="SIGRTMIN+99"), "signal"),
    "user 10^30": (config(User="1" + "0" * 30), "User"),
    "group of 5,000 digits": (config(User=f"0:{DIGITS}"), "User"),
    "port of 5,000 digits": (config(ExposedPorts={DIGITS: {}}), "ExposedPorts"),
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
            directory("d/" * 200), symlink("l", "d/" * 200), file("l/" + "e/" * 200 + "f"),
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


def a_huge_header(path: Path) -> Path:
    with path.open("wb") as out:
        out.write(entry("x", tarfile.XHDTYPE, size=1 << 33).tobuf(tarfile.GNU_FORMAT))
        out.truncate(1 << 33)
    return path


def docker_with_packed_layer(path: Path, tar: bytes) -> Path:
    from tests.fakes.hostile import CONFIG, dumped
    from tests.fakes.tars import config_of

    manifest = [{"Config": "config.json", "RepoTags": ["a:b"], "Layers": ["layer.tar"]}]
    members = [
        file("manifest.json", dumped(manifest)),
        file("config.json", dumped(config_of([tar], CONFIG))),
        file("layer.tar", gzip.compress(tar)),
    ]
    path.write_bytes(tar_of(*members))
    return path


def nothing_left(folder: Path) -> None:
    cache = folder / "cache" / "vmtailor"
    assert not list(cache.rglob(".filling-*"))
    assert not (cache / "scratch").is_dir() or not any((cache / "scratch").iterdir())
    assert not (folder / "bundle").exists()
    assert list((folder / "tmp").iterdir()) == []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path


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


SIGNALS = ("SIGRTMIN+3", "SIGRTMAX-3", "rtmin+3", "37", "quit")
ODD_BUT_GOOD: dict[str, Make] = {
    **{
        f"stop signal {text}": config(StopSignal=text) for text in ("SIGRTMIN+3", "SIGRTMAX-3", "rtmin+3", "37", "quit")
    },
    "a layer without its last padding": layer(GOOD[:-1024] + tar_of(file("last", b"x" * 700))[: 512 + 700]),
    "a link that stays in the layout": spoiled(linked_inside),
    "an oci-archive": oci_archive(),
    "a docker-archive": docker(),
    "a docker-archive, packed": packed(docker(), gzip.compress),
    "an image just below the limit": layer(ZEROS, gzip.compress(ZEROS), "--max-image-size", "5M"),
    "a folder": tree(lambda root: os.mkfifo(root / "pipe")),
}


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


def exercise(text: str | bytes) -> Make:
    def make(folder: Path) -> tuple[str | Path, ...]:
        data = text if isinstance(text, bytes) else text.encode()
        (folder / "x.toml").write_bytes(data)
        return (f"oci:{Parts().write(folder / 'image')}", "-x", folder / "x.toml")

    return make


def with_option(*options: str) -> Make:
    return lambda folder: (f"oci:{Parts().write(folder / 'image')}", *options)


def with_file(option: str, make: Callable[[Path], None], *more: str) -> Make:
    def making(folder: Path) -> tuple[str | Path, ...]:
        make(folder / "given")
        return (f"oci:{Parts().write(folder / 'image')}", option, folder / "given", *more)

    return making


def holding(data: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(data)

    return make


STEP = '[[load]]\nkind = "tcp"\nport = 1\n'
LOAD = '[[load]]\nkind = "command"\n'
CONFIGURATION = "--baseline-config"
FITS: dict[str, tuple[Make, str]] = {
    "exercise: port of 5,000 digits": (exercise(f"[ready]\nkind = 'tcp'\nport = {DIGITS}"), "x.toml"),
    "exercise: hexadecimal port without end": (
        exercise(f"[ready]\nkind = 'tcp'\nport = 0x{'f' * 9000}"), "ready.port"),
    "exercise: port is infinite": (exercise("[ready]\nkind = 'tcp'\nport = inf"), "ready.port"),
    "exercise: timeout is nan": (exercise("[stop]\ntimeout_s = nan"), "stop.timeout_s"),
    "exercise: timeout 1e400": (exercise("[stop]\ntimeout_s = 1e400"), "stop.timeout_s"),
    "exercise: timeout without end": (exercise(f"[stop]\ntimeout_s = 0x{'f' * 9000}"), "stop.timeout_s"),
    "exercise: a billion repeats": (exercise(STEP + "repeat = 1_000_000_000"), "load[1].repeat"),
    "exercise: 257 steps": (exercise(STEP * 257), "256"),
    "exercise: 20,000 steps": (exercise(STEP * 20_000), "256"),
    "exercise: a kind of a megabyte": (exercise(f"[ready]\nkind = '{'x' * 1_000_000}'"), "ready.kind"),
    "exercise: a key of 100 KB": (exercise(f"{'x' * 100_000} = 1"), "not known"),
    "exercise: a text of 100 KB to look for": (
        exercise(LOAD + f"argv = ['x']\nexpect = {{ contains = '{'x' * 100_000}' }}"), "contains"),
    "exercise: a word of 200 KB": (exercise(LOAD + f"argv = ['{'x' * 200_000}']"), "load[1].argv"),
    "exercise: a NUL in a word": (exercise(LOAD + 'argv = ["a\\u0000"]'), "load[1].argv"),
    "exercise: a NUL in the signal": (exercise('[stop]\nsignal = "TERM\\u0000"'), "stop.signal"),
    "exercise: a signal of 5,000 digits": (exercise(f"[stop]\nsignal = '{DIGITS}'"), "stop.signal"),
    "exercise: nested lists": (exercise(b"a = " + DEEP), "deep"),
    "exercise: nested tables": (exercise(b"a = " + b"{a=" * 50_000), "deep"),
    "exercise: a key of 100,000 parts": (exercise("a." * 100_000 + "a = 1"), "parts"),
    "exercise: a table of 100,000 parts": (exercise("[" + '"a".' * 100_000 + "a]"), "parts"),
    "exercise: a date as a port": (exercise("[ready]\nkind = 'tcp'\nport = 2020-01-01"), "ready.port"),
    "exercise: two megabytes": (exercise(b"#" * (2 << 20)), "larger"),
    "exercise: no UTF-8": (exercise(b"\xff\xfe"), "x.toml"),
    "exercise: a FIFO": (with_file("-x", os.mkfifo), "named pipe"),
    "exercise: a folder": (with_file("-x", Path.mkdir), "a folder"),
    "exercise: /dev/zero": (with_option("-x", "/dev/zero"), "a device"),
    "configuration: a FIFO": (with_file(CONFIGURATION, os.mkfifo), "named pipe"),
    "configuration: /dev/zero": (with_option(CONFIGURATION, "/dev/zero"), "a device"),
    "configuration: 8 TB": (with_file(CONFIGURATION, sparse), "larger"),
    "configuration: binary": (with_file(CONFIGURATION, holding(os.urandom(5000))), "no kernel configuration"),
    "configuration: a NUL": (with_file(CONFIGURATION, holding(b"CONFIG_X=y\0\n")), "no kernel configuration"),
    "configuration: empty": (with_file(CONFIGURATION, holding(b"")), "no kernel configuration"),
    "credentials: a FIFO": (with_file("--authfile", os.mkfifo), "named pipe"),
    "memory of 5,000 digits": (with_option("--memory", DIGITS), "memory"),
    "memory 1e3G": (with_option("--memory", "1e3G"), "1e3G"),
    "memory 0": (with_option("--memory", "0"), "memory"),
    "memory -1G": (with_option("--memory=-1G"), "memory"),
    "memory in Arabic digits": (with_option("--memory", "\u0661\u0660\u0660M"), "memory"),
    "10^30 CPUs": (with_option("--cpus", "1" + "0" * 30), "--cpus"),
    "-1 CPUs": (with_option("--cpus=-1"), "--cpus"),
    "CPUs of 5,000 digits": (with_option("--cpus", DIGITS), "--cpus"),
    "10^30 boots": (with_option("--boots", "1" + "0" * 30), "--boots"),
    "an image size of 5,000 digits": (with_option("--max-image-size", DIGITS + "G"), "image"),
    "an image size of 0": (with_option("--max-image-size", "0G"), "1M to 16T"),
    "an image size of 1e3G": (with_option("--max-image-size", "1e3G"), "1e3G"),
    "a NUL in --entrypoint": (with_option("--entrypoint", "/prog\0x"), "NUL"),
    "half a character in --entrypoint": (with_option("--entrypoint", "/prog\udcff"), "UTF-8"),
    "a NUL in the reference": (lambda _: "docker://a\0b", "UTF-8"),
    "a reference that is no text": (lambda _: "docker://a\udcff", "UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("name", FITS)
def test_hostile_options_and_files(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, word = FITS[name]
    made = make(place)
    arguments = list(made) if isinstance(made, tuple) else [made]
    enough = ENOUGH[:2] if CONFIGURATION in arguments else ENOUGH
    said = vmtailor(["fit", *arguments, "-o", place / "bundle", *enough], capsys, monkeypatch)
    assert said.code == 2, said.stderr
    assert ACCEPTED not in said.stderr
    assert said.stderr.count("error:") == 1 and said.stderr.count("hint:") == 1, said.stderr
    assert word in said.stderr, said.stderr
    assert len(said.stderr) < 5000
    nothing_left(place)


@pytest.mark.parametrize("source", ["endless", "folder", "closed", "empty"])
def test_hostile_standard_input(
    source: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: dict[str, bytes | Path | None] = {"endless": Path("/dev/zero"), "closed": None}
    words = {"endless": "1M", "empty": "archive", "closed": "docker save", "folder": "a directory"}
    if source == "folder":
        monkeypatch.setattr("vmtailor.stages.image._standard_input", Unreadable)
    arguments = ["fit", "docker-archive:-", "-o", str(place / "bundle"), *ENOUGH, *SMALL]
    said = vmtailor(arguments, capsys, monkeypatch, stdin=sources.get(source, b""))
    assert said.code == 2 and said.stderr.count("error:") == 1, said.stderr
    assert words[source] in said.stderr
    nothing_left(place)


class Unreadable:
    """What reading standard input gives when a shell made it a folder."""

    def read(self, _size: int) -> bytes:
        raise IsADirectoryError(21, "Is a directory")


def gzipped_lines(path: Path) -> None:
    block = gzip.compress((b"x" * 63 + b"\n") * (1 << 15), 9)
    with path.open("wb") as out:
        for _ in range(80):
            out.write(block)


LOGS: dict[str, tuple[Callable[[Path], object], tuple[str, ...], str]] = {
    "a FIFO": (os.mkfifo, ("analyze", "LOG"), "named pipe"),
    "/dev/zero": (lambda p: p.symlink_to("/dev/zero"), ("analyze", "LOG"), "a device"),
    "a socket": (a_socket, ("analyze", "LOG"), "cannot be read"),
    "an empty folder": (Path.mkdir, ("analyze", "LOG"), "holds no files"),
    "a gzip bomb": (gzipped_lines, ("analyze", "LOG"), "more than"),
    "compare with a FIFO": (os.mkfifo, ("compare", "LOG", "LOG"), "named pipe"),
    "gate on a FIFO": (os.mkfifo, ("gate", "LOG", "kernel_us <= 1"), "named pipe"),
    "budgets from a FIFO": (os.mkfifo, ("gate", "/etc/hostname", "-f", "LOG"), "named pipe"),
    "budgets from /dev/zero": (lambda p: p.symlink_to("/dev/zero"), ("gate", "x", "-f", "LOG"), "a device"),
    "a budget of 5,000 digits": (Path.touch, ("gate", "LOG", f"kernel_us <= {DIGITS}"), ""),
    "a bundle that is a FIFO": (os.mkfifo, ("explain", "LOG"), "does not exist"),
    "boot: memory of 5,000 digits": (Path.touch, ("boot", "--kernel", "LOG", "--memory", DIGITS), "memory"),
    "boot: 10^30 CPUs": (Path.touch, ("boot", "--kernel", "LOG", "--cpus", "1" + "0" * 30), "--cpus"),
    "boot: 10^30 times": (Path.touch, ("boot", "--kernel", "LOG", "--times", "1" + "0" * 30), "--times"),
    "boot: a timeout of nan": (Path.touch, ("boot", "--kernel", "LOG", "--timeout", "nan"), "timeout"),
    "boot: a timeout without end": (Path.touch, ("boot", "--kernel", "LOG", "--timeout", "inf"), "timeout"),
    "boot: a FIFO as the kernel": (os.mkfifo, ("boot", "--kernel", "LOG"), "no file"),
    "boot: a FIFO as the disk": (os.mkfifo, ("boot", "LOG"), ""),
    "boot: a port of 5,000 digits": (Path.touch, ("boot", "--kernel", "LOG", "--ready", f"tcp:{DIGITS}"), ""),
    "run: a port of 5,000 digits": (Path.mkdir, ("run", "-p", f"{DIGITS}:80", "LOG"), "publishes no port"),
    "run: memory 1e3G": (Path.mkdir, ("run", "--memory", "1e3G", "LOG"), "1e3G"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_hostile_logs_and_options_of_other_verbs(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmtailor.analysis.bootlog.archive.WRITER_MS", 200)
    monkeypatch.chdir(place)
    make, arguments, word = LOGS[name]
    make(place / "LOG")
    said = vmtailor(arguments, capsys, monkeypatch)
    assert said.code == (125 if arguments[0] == "run" else 2), said.stderr
    assert said.stderr.count("error:") == 1, said.stderr
    assert word in said.stderr, said.stderr
    nothing_left(place)
