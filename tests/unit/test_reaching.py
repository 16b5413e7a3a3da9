# SPDX-License-Identifier: Apache-2.0
"""The reach of an image is found again; each of its files, too, in another image."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from tests.fakes.kernel_tree import read_facts

from vmtailor.analysis.reach import contents
from vmtailor.analysis.reach.file_requests import KernelNames
from vmtailor.base.cache.store import Store
from vmtailor.drivers.image import flat_archive
from vmtailor.drivers.image.flat_archive import FlatArchive
from vmtailor.model.architecture import presumed
from vmtailor.model.image import Image, ImageConfig
from vmtailor.model.reach import Nearness
from vmtailor.pipeline import reach_cache

KERNEL = KernelNames({73: "flock"}, {})


def archive(path: Path, **files: bytes) -> FlatArchive:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"bin/{name}")
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
    return flat_archive.read(path)


def image(sha256: str) -> Image:
    return Image("oci:x", sha256, ImageConfig("amd64", cmd=("/bin/run",)), "", sha256, 1, 1)


def test_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    plain = contents.read

    def counted(data: bytes, *more: object) -> contents.Contents:
        read.append(data)
        return plain(data, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(contents, "read", counted)
    store = Store(tmp_path / "cache")
    elf = b"\x7fELF\x01\x01\x01" + bytes(9) + b"\x02\x00\x03\x00" + bytes(60)
    one = archive(tmp_path / "a.tar", run=b"#!/bin/old\n", old=elf)
    first = reach_cache.reach_of(image("1"), one, ["/bin/old"], KERNEL, presumed(), store)
    assert [(f.path, f.nearness) for f in first.files] == [("/bin/old", Nearness.OPENED), ("/bin/run", Nearness.OPENED)]
    assert [ask.key for f in first.files for ask in f.asks] == ["ELF32", "#!"]
    assert len(read) == 2
    assert reach_cache.reach_of(image("1"), one, ["/bin/old"], KERNEL, presumed(), store) == first and len(read) == 2
    other = archive(tmp_path / "b.tar", run=b"#!/bin/old\necho\n", old=elf)
    reach_cache.reach_of(image("2"), other, [], KERNEL, presumed(), store)
    assert read[2:] == [b"#!/bin/old\necho\n"]  # the program is the same


def test_names_come_from_the_kernel_s_source(tmp_path: Path) -> None:
    header = tmp_path / "include/uapi/linux/fcntl.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define F_SETLK 6\n")
    table = tmp_path / presumed().calls[0].file
    table.parent.mkdir(parents=True)
    table.write_text(f"73 {presumed().calls[0].abis[0]} flock sys_flock\n")
    names = reach_cache.names_of(read_facts(), tmp_path, presumed())
    assert names.calls == {73: "flock"} and names.constants == {"F_SETLK": 6}
    assert {"AF_UNIX", "AF_LOCAL"} <= names.families
