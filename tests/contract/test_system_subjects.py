# SPDX-License-Identifier: Apache-2.0
"""Systems with an init of their own are read from every form of disk and tree, by the field's tools and without root;
what cannot be fitted is refused by name, and leaves nothing behind."""

from __future__ import annotations

import os
import struct
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.fakes import systems
from tests.fakes.hostile import vmtailor
from tests.fakes.hostile_images import nothing_left
from tests.fakes.systems import BOOT_UUID, MIB, RELEASE, ROOT_UUID, ext4, partitioned, patched, tool, tree

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.drivers.disks import disk_image as opened_disks
from vmtailor.model.systems.system import InitKind, System, TableKind
from vmtailor.pipeline.systems import subjects

pytestmark = pytest.mark.contract

Make = Callable[[Path], Path]
SUPERBLOCK = 1024


@pytest.fixture(autouse=True)
def _temporary(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python keeps the folder that it chose first."""
    monkeypatch.setattr("tempfile.tempdir", str(place / "tmp"))


def read(path: Path, prefix: str = "disk:", partition: int | None = None) -> System:
    with subjects.opened(f"{prefix}{path}", Store(), partition=partition) as found:
        return found.subject


def whole(folder: Path) -> Path:
    return ext4(folder / "disk.raw", tree(folder / "tree"))


def gpt(folder: Path) -> Path:
    return partitioned(folder / "disk.raw", tree(folder / "tree"))


def mbr(folder: Path) -> Path:
    return partitioned(folder / "disk.raw", tree(folder / "tree"), "dos")


def qcow2(folder: Path) -> Path:
    tool("qemu-img", "convert", "-c", "-O", "qcow2", gpt(folder), folder / "disk.qcow2")
    return folder / "disk.qcow2"


@pytest.mark.parametrize("make", [whole, gpt, mbr, qcow2])
def test_a_disk_of_every_form_is_read(make: Make, place: Path) -> None:
    path = make(place)
    before = path.read_bytes()
    found = read(path)
    assert path.read_bytes() == before
    nothing_left(place)
    assert (found.os.pretty_name, found.os.codename, found.architecture) == ("Made-up 1", "one", "x86_64")
    assert found.init.program == "/usr/lib/systemd/systemd" and found.init.kind is InitKind.SYSTEMD
    kernel = found.installed
    assert kernel is not None and kernel.release == RELEASE
    assert (kernel.image_bytes, kernel.initrd_bytes, kernel.modules, kernel.modules_bytes) == (2000, 3000, 1, 1000)
    assert kernel.config == f"/boot/config-{RELEASE}"
    assert found.entry is not None and found.entry.title == "Made-up GNU/Linux"
    assert found.entry.words == (f"root=UUID={ROOT_UUID}", "ro", "quiet") and len(found.entries) == 2
    assert [(m.place, m.options) for m in found.mounts] == [("/", ("errors=remount-ro",))]
    assert [u.name for u in found.units] == ["getty.target", "ours.service"] and found.masked == ("noisy.service",)
    assert found.default_target == "multi-user.target"
    disk = found.disk
    assert disk is not None and disk.format == ("qcow2" if make is qcow2 else "raw")
    kinds: dict[Make, TableKind] = {whole: TableKind.NONE, gpt: TableKind.GPT, mbr: TableKind.MBR, qcow2: TableKind.GPT}
    assert disk.table is kinds[make] and disk.root == (0 if make is whole else 2)
    assert [one.content for one in disk.partitions] == ([] if make is whole else ["", "ext4"])


def test_boot_on_a_partition_of_its_own_and_entries_of_the_specification(place: Path) -> None:
    root = tree(place / "tree", separate_boot=True)
    found = read(partitioned(place / "d", root, boot=systems.boot_tree(place / "boot")))
    assert found.disk is not None and (found.disk.root, found.disk.boot, found.disk.firmware) == (3, 2, ("uefi",))
    assert found.kernel == RELEASE and found.installed is not None
    assert found.installed.initrd == f"/boot/initramfs-{RELEASE}.img"
    assert found.entry is not None and found.entry.kernel == f"/boot/vmlinuz-{RELEASE}"
    assert found.entry.words == (f"root=UUID={ROOT_UUID}", "ro", "isolcpus=1")
    assert BOOT_UUID in {part.uuid for part in found.disk.partitions}


def test_a_folder_and_an_archive_say_the_same(place: Path) -> None:
    root = tree(place / "tree", kernel=False)
    with tarfile.open(place / "tree.tar.gz", "w:gz") as archive:
        archive.add(root, ".")
    folder, packed = read(root, "rootfs:"), read(place / "tree.tar.gz", "rootfs:")
    assert replace(folder, reference="", identity="") == replace(packed, reference="", identity="")
    assert folder.kernel == "" and folder.disk is None and folder.units


def test_the_verb_shows_it_and_its_document_is_the_record(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gpt(place)
    shown = vmtailor(["show", path], capsys, monkeypatch)
    assert (shown.code, shown.stderr) == (0, "")
    assert all(word in shown.stdout for word in ("Made-up 1", RELEASE, "GPT", "ours.service", "noisy.service"))
    printed = vmtailor(["show", f"disk:{path}", "--json"], capsys, monkeypatch)
    document = msgspec.json.decode(printed.stdout)
    assert document.pop("schema") == "vmtailor/subject/2"
    assert msgspec.convert(document, System) == read(path)


# --- what is refused ---


def no_table(folder: Path) -> Path:
    (folder / "disk").write_bytes(bytes(2 * MIB))
    return folder / "disk"


def sun_table(folder: Path) -> Path:
    with (folder / "disk").open("wb") as file:
        file.truncate(64 * MIB)
    tool("sfdisk", "-q", folder / "disk", data="label: sun\nsize=10M\n")
    return folder / "disk"


def cut_off(folder: Path) -> Path:
    os.truncate(gpt(folder), 12 * MIB)
    return folder / "disk.raw"


def reaching_beyond(folder: Path) -> Path:
    path = mbr(folder)
    return patched(path, 446 + 16 + 12, struct.pack("<I", 0x7FFFFFFF))


def squashed(folder: Path) -> Path:
    tool("mkfs.erofs", folder / "disk", tree(folder / "tree"))
    return folder / "disk"


def encrypted(folder: Path) -> Path:
    header = b"LUKS\xba\xbe" + struct.pack(">H", 1) + b"aes".ljust(32, b"\0") + b"xts-plain64".ljust(32, b"\0")
    with (folder / "disk").open("wb") as file:
        file.truncate(64 * MIB)
    tool("sfdisk", "-q", folder / "disk", data="label: gpt\nsize=20M,type=linux\n")
    return patched(folder / "disk", MIB, header.ljust(592, b"\0"))


def encrypted_whole(folder: Path) -> Path:
    return patched(no_table(folder), 0, b"LUKS\xba\xbe" + struct.pack(">H", 1))


def volumes(folder: Path) -> Path:
    label = bytearray(512)
    label[:8], label[8:16], label[20:32] = b"LABELONE", struct.pack("<Q", 1), struct.pack("<I", 32) + b"LVM2 001"
    label[32:64] = b"x" * 32
    label[16:20] = struct.pack("<I", zlib.crc32(label[20:], ~0xF597A6CF & 0xFFFFFFFF) ^ 0xFFFFFFFF)
    return patched(no_table(folder), 512, bytes(label))


def hibernated(folder: Path) -> Path:
    path = partitioned(folder / "disk.raw", tree(folder / "tree"), boot=tree(folder / "swap"))
    page = bytearray(4096)
    page[-10:] = b"S1SUSPEND\0"
    return patched(path, 5 * MIB, bytes(page) + bytes(16 * MIB - 4096))


def sleeping_in_a_file(folder: Path) -> Path:
    root = tree(folder / "tree")
    with (root / "etc/fstab").open("a") as fstab:
        fstab.write("/swapfile none swap sw 0 0\n")
    page = bytearray(4096)
    page[-10:] = b"S1SUSPEND\0"
    systems.put(root, "swapfile", bytes(page) + bytes(60 * 1024))
    return ext4(folder / "disk.raw", root)


def not_unmounted(folder: Path) -> Path:
    path = whole(folder)
    at = SUPERBLOCK + 0x60
    told = struct.unpack("<I", path.read_bytes()[at : at + 4])[0]
    return patched(path, at, struct.pack("<I", told | 4))


def in_use(folder: Path) -> Path:
    return patched(whole(folder), SUPERBLOCK + 0x3A, struct.pack("<H", 0))


def of_another_processor(folder: Path) -> Path:
    return ext4(folder / "disk.raw", tree(folder / "tree", machine=22))


def without_kernel(folder: Path) -> Path:
    return ext4(folder / "disk.raw", tree(folder / "tree", kernel=False))


def without_init(folder: Path) -> Path:
    root = tree(folder / "tree")
    (root / "usr/sbin/init").unlink()
    return ext4(folder / "disk.raw", root)


def no_system(folder: Path) -> Path:
    systems.put(folder / "tree", "photo.jpg", b"x")
    return ext4(folder / "disk.raw", folder / "tree")


def two_systems(folder: Path) -> Path:
    return partitioned(folder / "disk.raw", tree(folder / "tree"), boot=tree(folder / "other"))


def standing_on_another(folder: Path) -> Path:
    tool("qemu-img", "create", "-f", "qcow2", "-b", whole(folder), "-F", "raw", folder / "disk.qcow2")
    return folder / "disk.qcow2"


def damaged_qcow2(folder: Path) -> Path:
    return patched(qcow2(folder), 24, struct.pack(">Q", 1 << 62))


def huge_qcow2(folder: Path) -> Path:
    tool("qemu-img", "create", "-f", "qcow2", folder / "disk.qcow2", "60T")
    return folder / "disk.qcow2"


def foreign(folder: Path) -> Path:
    tool("qemu-img", "convert", "-O", "vmdk", whole(folder), folder / "disk.vmdk")
    return folder / "disk.vmdk"


def empty(folder: Path) -> Path:
    (folder / "disk").write_bytes(b"")
    return folder / "disk"


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "disk")
    return folder / "disk"


def broken_folders(folder: Path) -> Path:
    """Every block of the inode table is noise."""
    path = whole(folder)
    told = tool("dumpe2fs", path).decode()
    block = int(told.split("Inode table at ")[1].split("-")[0])
    return patched(path, block * 1024, b"\xa5" * 64 * 1024)


REFUSED: dict[Make, str] = {
    no_table: "has no file system that is known", sun_table: "table of the unsupported kind sun",
    cut_off: "damaged partition table|reaches beyond the disk", reaching_beyond: "reaches beyond the disk",
    squashed: "a file system of the kind erofs", encrypted: "is encrypted .LUKS", encrypted_whole: "is encrypted .LUKS",
    volumes: "is a part of LVM volumes that no metadata", hibernated: "is hibernated: a system sleeps in partition 2",
    sleeping_in_a_file: "is hibernated: a system sleeps in /swapfile",
    not_unmounted: "was not cleanly unmounted", in_use: "was not cleanly unmounted",
    of_another_processor: "is a system for S390, 64 bits", without_kernel: "has no kernel inside",
    without_init: "has no init", no_system: "has no system on it", two_systems: "has systems on partitions 2 and 3",
    standing_on_another: "depends on another file", damaged_qcow2: "is a damaged qcow2 image",
    huge_qcow2: "says that it is a disk of", foreign: "disk image format vmdk",
    empty: "it has 0 bytes", pipe: "it is a named pipe", broken_folders: "is damaged|has no system on it",
}  # fmt: skip


@pytest.mark.attack
@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_what_no_machine_is_fitted_from_is_refused_by_name(make: Make, place: Path) -> None:
    path = make(place)
    with pytest.raises(UserInputError, match=REFUSED[make]) as refused:
        read(path)
    assert str(path) in refused.value.message and refused.value.hint and "\n" not in refused.value.message
    nothing_left(place)


def test_one_of_two_systems_is_chosen_by_its_partition(place: Path) -> None:
    path = two_systems(place)
    found = read(path, partition=3)
    assert found.disk is not None and found.disk.root == 3
    with pytest.raises(UserInputError, match="has no partition 7"):
        read(path, partition=7)


def test_an_image_that_changes_meanwhile_is_refused(place: Path) -> None:
    path = whole(place)
    with (
        pytest.raises(UserInputError, match="changed while it was read"),
        subjects.opened(f"disk:{path}", Store()),
        path.open("ab") as file,
    ):
        file.write(b"x" * 512)
    nothing_left(place)


def test_an_image_that_a_machine_writes_is_refused(place: Path) -> None:
    path = whole(place)
    with pytest.raises(UserInputError, match="is in use by a running machine"), systems.locked_as_by_qemu(path):
        read(path)


def test_an_image_that_may_not_be_written_is_read(place: Path) -> None:
    path = whole(place)
    path.chmod(0o400)
    assert read(path).kernel == RELEASE


def test_no_space_to_unpack_is_the_hosts_error(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = qcow2(place)
    monkeypatch.setattr("vmtailor.drivers.image.allowance.free_bytes", lambda _: 0)
    with pytest.raises(VmtailorError, match="no space is left") as refused:
        read(path)
    assert refused.value.exit_code == 3
    nothing_left(place)
    assert opened_disks.MOST_BYTES >= 1 << 40


@pytest.mark.attack
def test_names_of_any_bytes_and_links_that_lead_nowhere(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(place / "tree")
    for name in ("new\nline", "debugfs: ls -p <2>", "semi;colon", "$(touch x)", "<2>", "\udcff\udcfe", "a b", '"'):
        systems.put(root, f"etc/systemd/system/multi-user.target.wants/{name}", "-> /dev/null")
    systems.put(root, "boot/grub/loop", "-> loop")
    systems.put(root, "etc/inittab", "-> ../../../../../../etc/shadow")
    long = "/".join(["x" * 100] * 9)
    systems.put(root, "etc/systemd/system/long.service", f"-> {long}")
    found = read(ext4(place / "d", root))
    assert {"semi;colon", "$(touch x)", "<2>", "a b"} <= {unit.name for unit in found.units}
    shown = vmtailor(["show", place / "d", "--all"], capsys, monkeypatch)
    assert shown.code == 0 and "new\nline" not in shown.stdout
