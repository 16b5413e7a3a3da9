# SPDX-License-Identifier: Apache-2.0
"""Images, and what else an option may name, made by somebody who means harm: each is a function of a folder."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fakes.hostile import (
    VND,
    Parts,
    docker_archive,
    tar_of_folder,
)
from tests.fakes.tars import entry, file, tar_of

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
