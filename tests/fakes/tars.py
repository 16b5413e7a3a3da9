# SPDX-License-Identifier: Apache-2.0
"""Layers and images for tests, made entry by entry."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vmtailor.drivers.image.layers import Layer

MTIME = 1_700_000_000


def entry(name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", **more: Any) -> tarfile.TarInfo:
    """A header. `more` sets any attribute of TarInfo."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mtime = kind, link, MTIME
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    for key, value in more.items():
        setattr(info, key, value)
    return info


def file(name: str, data: bytes = b"", **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, size=len(data), **more), data


def directory(name: str, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, tarfile.DIRTYPE, **more), b""


def symlink(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, tarfile.SYMTYPE, link=target, mode=0o777), b""


def hardlink(name: str, target: str, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    """One more name. Its header describes the file, too: `more` is to be that of the first name."""
    return entry(name, tarfile.LNKTYPE, link=target, **more), b""


def device(name: str, major: int, minor: int) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, tarfile.CHRTYPE, devmajor=major, devminor=minor), b""


def tar_of(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar in the pax format; names are written as they are, hostile ones too."""
    out = io.BytesIO()
    for info, data in entries:
        out.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        out.write(data + bytes(-len(data) % 512))
    out.write(bytes(1024))
    return out.getvalue()


def layers_of(folder: Path, tars: Iterable[bytes]) -> list[Layer]:
    """Layers in files, with their true content digests."""
    layers = []
    for index, data in enumerate(tars):
        path = folder / f"layer{index}"
        path.write_bytes(data)
        layers.append(Layer(path, f"layer{index}", f"sha256:{hashlib.sha256(data).hexdigest()}"))
    return layers


def read_flat(path: Path) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """What a flat archive holds, in its order. Directories without their slash, the root as `.`."""
    found = {}
    with tarfile.open(path, "r:", encoding="utf-8", errors="surrogateescape") as archive:
        for info in archive:
            source = archive.extractfile(info) if info.isreg() else None
            assert info.name not in found, f"{info.name} twice"
            found[info.name] = (info, source.read() if source else b"")
    return found


def config_of(tars: Iterable[bytes], config: Mapping[str, Any], architecture: str = "amd64") -> dict[str, Any]:
    diff_ids = [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in tars]
    return {
        "architecture": architecture,
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }


def write_layout(
    folder: Path, tars: list[bytes], config: Mapping[str, Any], architectures: Iterable[str] = ("amd64",)
) -> Path:
    """An OCI layout: one image, or with several architectures a list of them."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes) -> dict[str, Any]:
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return {"digest": f"sha256:{name}", "size": len(data)}

    def described(kind: str, document: Any) -> dict[str, Any]:
        return {"mediaType": kind, **blob(json.dumps(document).encode())}

    vnd = "application/vnd.oci.image"
    manifests = []
    for architecture in architectures:
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{vnd}.manifest.v1+json",
            "config": described(f"{vnd}.config.v1+json", config_of(tars, config, architecture)),
            "layers": [{"mediaType": f"{vnd}.layer.v1.tar", **blob(data)} for data in tars],
        }
        described_manifest = described(f"{vnd}.manifest.v1+json", manifest)
        manifests.append({**described_manifest, "platform": {"architecture": architecture, "os": "linux"}})
    if len(manifests) > 1:
        index = {"schemaVersion": 2, "mediaType": f"{vnd}.index.v1+json", "manifests": manifests}
        top = described(f"{vnd}.index.v1+json", index)
    else:
        top = {key: value for key, value in manifests[0].items() if key != "platform"}
    top["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [top]}))
    return folder


def largest_blob(layout: Path) -> Path:
    """The layer of an OCI layout that is larger than all else in it."""
    return max((layout / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
