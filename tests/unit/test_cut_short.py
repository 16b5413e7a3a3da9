# SPDX-License-Identifier: Apache-2.0
"""What a tool has left cut short is an error, wherever it is read; and no small file of a stranger's fills a disk."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard
from tests.fakes.bundle_data import bundle, write_bundle
from tests.fakes.tars import file, tar_of

from vmtailor.base.cache.store import Store
from vmtailor.base.disk_full import DiskFull
from vmtailor.base.errors import HostError, UserInputError, VmtailorError
from vmtailor.drivers.distribution import apt_lists, debian_packages
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.image import allowance, skopeo
from vmtailor.drivers.image.allowance import ImageLimits, WrittenByTool
from vmtailor.drivers.kernel import symbolizer
from vmtailor.drivers.rootfs import small_initrd
from vmtailor.drivers.rootfs.initramfs import cpio
from vmtailor.drivers.rootfs.initramfs import file as member
from vmtailor.model.architecture import named

MIB = 1 << 20


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose programs are found before the host's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def write_tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("cut", [512 + 512, 512 + 512 + 512, 512 + 100])
def test_a_package_whose_unpacking_stops_between_two_files_is_damaged(tmp_path: Path, tools: Path, cut: int) -> None:
    (tmp_path / "tar").write_bytes(tar_of(file("./usr/a.ko", b"A" * 300), file("./usr/b.ko", b"B" * 300)))
    written = tmp_path / "out"

    def place(name: str) -> Path:
        return written / name

    deb = tmp_path / "package.deb"
    write_tool(tools, "dpkg-deb", f"cat {tmp_path}/tar")
    assert [path.name for path in debian_packages.extract(deb, place)] == ["a.ko", "b.ko"]
    write_tool(tools, "dpkg-deb", f"head -c {cut} {tmp_path}/tar; exit 2")
    with pytest.raises(HostError, match=r"package\.deb is damaged"):
        debian_packages.extract(deb, place)
    write_tool(tools, "dpkg-deb", f"head -c {cut} {tmp_path}/tar; kill -9 $$")
    with pytest.raises(HostError, match=r"package\.deb is damaged"):
        debian_packages.extract(deb, place)


def test_who_wants_one_file_of_a_package_needs_no_end(tmp_path: Path, tools: Path) -> None:
    (tmp_path / "tar").write_bytes(tar_of(file("./usr/a.ko", b"A" * 300), file("./usr/b.ko", b"B" * 300)))
    write_tool(tools, "dpkg-deb", f"head -c 1024 {tmp_path}/tar; exit 2")
    debian_packages.extract_one(tmp_path / "package.deb", "usr/a.ko", tmp_path / "a.ko")
    assert (tmp_path / "a.ko").read_bytes() == b"A" * 300


def test_package_lists_that_a_full_disk_cut_short_are_not_taken_for_current(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = tmp_path / "lists"
    hosts.mkdir()
    monkeypatch.setattr(apt_lists, "_HOST_LISTS", hosts)
    write_tool(
        tools,
        "apt-get",
        'case "$*" in *indextargets*) echo "Debian|http://mirror.test/debian/|bookworm|main";; '
        f"*) for d in {tmp_path}/cache/package-lists/*/lists; do touch $d/x_Packages; done\n"
        'echo "E: Write error - write (28: No space left on device)" >&2; exit 100;; esac',
    )
    with pytest.raises(DiskFull, match="no space is left for the package lists"):
        apt_lists.of(named("arm64"), Store(tmp_path / "cache"))
    assert not list((tmp_path / "cache").rglob("fetched"))


@pytest.mark.parametrize("tool", ["llvm-symbolizer", "addr2line"])
def test_addresses_without_an_answer_are_not_taken_for_unknown(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    binary = tmp_path / "vmlinux"
    binary.write_bytes(b"")
    if tool == "addr2line":
        monkeypatch.setattr(symbolizer, "_NAMES", ())
    one = "0x10\\nf\\na.c:1\\n" if tool == "addr2line" else "f\\na.c:1:1\\n\\n"
    write_tool(tools, tool, f"printf '{one}'")
    assert [frame.function for frame in symbolizer.symbolize(binary, [0x10])[0x10]] == ["f"]
    with pytest.raises(HostError, match="answered 1 of 2 addresses"):
        symbolizer.symbolize(binary, [0x10, 0x20])


@pytest.mark.attack
@pytest.mark.parametrize("size", [MIB, 64 * MIB])
def test_an_initial_ram_disk_that_unpacks_without_end_ends_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(small_initrd, "MAX_UNPACKED", 2 * MIB)
    monkeypatch.setenv("TMPDIR", "/nowhere")
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    path = tmp_path / "initrd"
    path.write_bytes(zstandard.compress(cpio([member("a.ko", bytes(size))])))
    if size == MIB:
        assert small_initrd.read(path) == {"a.ko": bytes(size)}
        return
    with pytest.raises(UserInputError, match=r"unpacks to more than 2\sMiB"):
        small_initrd.read(path)


def test_an_initial_ram_disk_that_is_cut_within_its_packing_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "initrd"
    packed = zstandard.compress(cpio([member(f"{number}.ko", os.urandom(200_000)) for number in range(5)]))
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(UserInputError, match="damaged"):
        small_initrd.read(path)


@pytest.mark.attack
def test_a_file_of_holes_in_a_bundle_does_not_fill_the_disk_when_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_bundle(tmp_path / "shared")
    with (folder / "root.erofs").open("r+b") as large:
        large.truncate(40 * MIB)
    folder.chmod(0o777)
    store = Store(tmp_path / "cache")
    monkeypatch.setattr(allowance, "free_bytes", lambda _: 70 * MIB)
    with pytest.raises(DiskFull, match="no space is left"):
        BundleFolder(folder, bundle(), store)._copy("root.erofs", "00" * 32)
    assert not list((store.root / "bundle-files").iterdir())


@pytest.mark.attack
def test_a_tool_that_writes_leaves_64_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, free = 0, 0
    bound = WrittenByTool(tmp_path, 100 * MIB, lambda: written, lambda: VmtailorError("too much"))
    monkeypatch.setattr(allowance, "free_bytes", lambda _: free)
    written, free = 16 * MIB - 1, 0
    bound.look()
    written, free = 16 * MIB, 128 * MIB
    bound.look()
    free -= 1
    with pytest.raises(DiskFull):
        bound.look()
    written, free = 100 * MIB + 1, 1 << 40
    with pytest.raises(VmtailorError, match="too much"):
        bound.look()


@pytest.mark.attack
def test_a_registry_that_sends_more_than_the_disk_has_room_for(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tool(tools, "skopeo", f"truncate -s 20M {tmp_path}/blob; exec sleep 1000")
    monkeypatch.setattr(skopeo, "LOOK_S", 0.01)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100 * MIB))
    with pytest.raises(DiskFull, match="no space is left for the image"):
        skopeo.copy("docker://x", tmp_path / "image", tmp_path, skopeo.Access(None, "amd64"), limits=ImageLimits())
