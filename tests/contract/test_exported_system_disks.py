# SPDX-License-Identifier: Apache-2.0
"""Systems' own disks in exports: what Firecracker is told of them, and the disks with loaders that are made of them."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import systems
from tests.fakes.bundle_data import bundle, exportable
from tests.unit.test_monitor_targets import FIRECRACKER, MMIO, follow

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.disks import partitions
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.targets.target import ExportWishes
from vmtailor.model.bundle import SYSTEM
from vmtailor.model.plan import RootFormat
from vmtailor.model.systems.system import (
    DiskLayout,
    Init,
    InitKind,
    Mount,
    OsRelease,
    SubjectKind,
    System,
    TableKind,
)
from vmtailor.pipeline import bundle_export, bundle_kernel_forms
from vmtailor.pipeline.bundle_export import Exported

pytestmark = pytest.mark.contract
DISK = ("ACPI", "PCI", "PCI_MSI", "X86_PM_TIMER", "VIRTIO_PCI", "PARTITION_ADVANCED", "EFI_PARTITION", "EFI")
WORDS = ("root=/dev/vda2", "ro", "console=ttyS0", "reboot=t")
MIB = 1 << 20


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root with a file that is looked for again."""
    systems.put(tmp_path / "tree", "etc/hostname", "as-it-was\n")
    return tmp_path / "tree"


def bundle_of(
    folder: Path, disk: Path, root: int, *symbols: str, mounts: tuple[Mount, ...] = (), board: str = "microvm"
) -> Path:
    """A bundle of a system on a disk, whose kernel has these symbols."""
    made = exportable(folder / "bundle", *symbols)
    name = f"disk{disk.suffix}"
    shutil.copyfile(disk, made / name)
    kind, _ = partitions.read(disk, disk.stat().st_size, "disk") if root else (TableKind.NONE, ())
    layout = DiskLayout(disk.suffix[1:], disk.stat().st_size, kind, (), root=root)
    system = System(
        "disk:x", SubjectKind.DISK, "x86_64", OsRelease(), Init("/sbin/init", "/sbin/init", InitKind.SYSTEMD), "6.12",
        (), (), mounts, (), disk=layout,
    )  # fmt: skip
    records.save(system, made / SYSTEM)
    seal(made, bundle(name="vm", image=None, root=name, root_format=RootFormat.EXT4, words=WORDS, machine=board))
    return made


def export(made: Path, target: str, tmp_path: Path) -> Exported:
    return bundle_export.export(made, target, tmp_path / "out", ExportWishes(), Store(tmp_path / "cache"))


def hostname(disk: Path, at: int) -> str:
    return systems.tool("debugfs", "-R", "cat /etc/hostname", f"{disk}?offset={at}").decode()


def listed(disk: Path) -> dict[int, dict[str, Any]]:
    found = json.loads(systems.tool("sfdisk", "--json", disk))["partitiontable"]
    assert found["label"] == "gpt"
    return {int(one["node"].removeprefix(str(disk))): one for one in found["partitions"]}


@pytest.mark.parametrize(("form", "board"), [("raw", "microvm"), ("qcow2", "microvm"), ("raw", "q35")])
def test_a_systems_disk_is_firecrackers_root_device(form: str, board: str, tree: Path, tmp_path: Path) -> None:
    """Whatever board the bundle is started on elsewhere: its kernel's needs are kept."""
    disk = systems.ext4(tmp_path / "disk.raw", tree)
    if form == "qcow2":
        systems.tool("qemu-img", "convert", "-O", "qcow2", disk, disk := tmp_path / "disk.qcow2")
    done = export(bundle_of(tmp_path, disk, 0, *MMIO, board=board), "firecracker", tmp_path)
    told = json.loads((done.folder / "config.json").read_text())
    follow(told, FIRECRACKER)
    assert told["boot-source"]["boot_args"] == "console=ttyS0 reboot=t"
    assert told["drives"] == [
        {"drive_id": "disk0", "path_on_host": "disk.raw", "is_root_device": True, "is_read_only": False}
    ]
    assert hostname(done.folder / "disk.raw", 0) == "as-it-was\n"
    unit = (done.folder / "vm.service").read_text()
    assert "ReadWritePaths=/var/lib/machines/vm\n" in unit and "DynamicUser" not in unit
    assert "</dev/null" not in (done.folder / "start").read_text()


def test_firecracker_finds_a_root_on_a_partition_by_its_uuid(tree: Path, tmp_path: Path) -> None:
    disk = systems.partitioned(tmp_path / "disk.raw", tree)
    done = export(bundle_of(tmp_path, disk, 2, *MMIO), "firecracker", tmp_path)
    (drive,) = json.loads((done.folder / "config.json").read_text())["drives"]
    assert drive["partuuid"] == listed(disk)[2]["uuid"].lower()


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A bzImage that is none."""
    image = tmp_path / "bzImage"
    image.write_bytes(b"kernel" * 1000)
    monkeypatch.setattr(bundle_kernel_forms, "made", lambda *_: image)


def command_line(disk: Path, part: dict[str, Any], folder: Path) -> list[str]:
    """The words that the UEFI program of a disk has."""
    fat = folder / "fat.img"
    fat.write_bytes(disk.read_bytes()[part["start"] * 512 :][: part["size"] * 512])
    program, section = folder / "program.efi", folder / "words"
    program.write_bytes(systems.tool("mtype", "-i", fat, "::/EFI/BOOT/BOOTX64.EFI"))
    systems.tool("objcopy", "-O", "binary", "--only-section", ".cmdline", program, section)
    return section.read_bytes().rstrip(b"\0").decode().split()


@pytest.mark.usefixtures("packed")
@pytest.mark.parametrize("label", ["gpt", "dos", "none"])
def test_a_disk_with_our_loaders_keeps_the_systems_partitions(label: str, tree: Path, tmp_path: Path) -> None:
    """Numbers, places, types and UUIDs stay; the loaders' partition is ours. A bare file system becomes the first."""
    path = tmp_path / "disk.raw"
    disk = systems.ext4(path, tree) if label == "none" else systems.partitioned(path, tree, label)
    before = listed(disk) if label == "gpt" else {}
    done = export(bundle_of(tmp_path, disk, 0 if label == "none" else 2, *DISK), "disk", tmp_path)
    out = done.folder / "disk.raw"
    after = listed(out)
    root = after[1 if label == "none" else 2]
    assert hostname(out, root["start"] * 512) == "as-it-was\n"
    types = [one["type"] for one in after.values()]
    assert (
        types.count("C12A7328-F81F-11D2-BA4B-00A0C93EC93B") == types.count("21686148-6449-6E6F-744E-656564454649") == 1
    )
    if label == "gpt":
        assert after[2] == before[2] | {"node": f"{out}2"} and after[1]["uuid"] == before[1]["uuid"]
    efi = next(one for one in after.values() if one["type"].startswith("C12A7328"))
    words = command_line(out, efi, tmp_path)
    assert words == [f"root=PARTUUID={root['uuid'].lower()}", "ro", "console=ttyS0", "reboot=t"]
    assert (
        out.read_bytes()[:440].strip(b"\0")
        and "vmlinuz" in systems.tool("mdir", "-b", "-i", tmp_path / "fat.img", "::/").decode()
    )
    assert "</dev/null" not in done.guide.first and systems.tool("sfdisk", "--verify", out)


@pytest.mark.usefixtures("packed")
def test_the_loaders_file_system_keeps_the_serial_by_which_it_is_mounted(tree: Path, tmp_path: Path) -> None:
    disk = systems.partitioned(tmp_path / "disk.raw", tree)
    systems.tool("mformat", "-i", f"{disk}@@{MIB}", "-v", "BOOTS", "-N", "1a2b3c4d", "-T", "8192", "::")
    done = export(bundle_of(tmp_path, disk, 2, *DISK), "disk", tmp_path)
    _, parts = partitions.read(done.folder / "disk.raw", (done.folder / "disk.raw").stat().st_size, "disk")
    efi = next(one for one in parts if one.type in partitions.EFI)
    assert (efi.number, efi.uuid, efi.label) == (1, "1A2B-3C4D", "BOOTS")


@pytest.mark.usefixtures("packed")
def test_a_system_that_needs_its_mbr_is_refused(tree: Path, tmp_path: Path) -> None:
    disk = systems.partitioned(tmp_path / "disk.raw", tree, "dos")
    mounts = (Mount("PARTUUID=12345678-02", "/", "ext4", ()),)
    with pytest.raises(UserInputError, match="PARTUUID of an MBR"):
        export(bundle_of(tmp_path, disk, 2, *DISK, mounts=mounts), "disk", tmp_path)


@pytest.mark.attack
def test_a_partition_that_the_disk_does_not_have_is_refused(tree: Path, tmp_path: Path) -> None:
    disk = systems.partitioned(tmp_path / "disk.raw", tree)
    made = bundle_of(tmp_path, disk, 2, *MMIO)
    system = records.load(System, made / SYSTEM)
    assert system.disk is not None
    records.save(replace(system, disk=replace(system.disk, root=7)), made / SYSTEM)
    seal(made, bundle(name="vm", image=None, root="disk.raw", root_format=RootFormat.EXT4, words=WORDS))
    with pytest.raises(UserInputError, match="no partition 7"):
        export(made, "firecracker", tmp_path)


@pytest.mark.parametrize("works", [True, False])
def test_a_script_takes_kvm_only_where_it_runs_a_guest(works: bool, tmp_path: Path) -> None:
    """A program stands for QEMU: it plays the trial, and says how it is started in the end."""
    done = export(exportable(tmp_path / "bundle"), "qemu", tmp_path)
    script = (done.folder / "start").read_text()
    assert "-bios kvm-probe.bin" in script and (done.folder / "kvm-probe.bin").stat().st_size == 65536
    program = tmp_path / "program"
    answer = "VTKVM ok" if works else "no"
    program.write_text(f'#!/bin/sh\ncase "$*" in *kvm-probe.bin) echo {answer};; *) echo "$*";; esac\n')
    program.chmod(0o755)
    # Whether this user may open /dev/kvm is not asked here.
    (done.folder / "start").write_text(script.replace("[ -r /dev/kvm ] && [ -w /dev/kvm ]", "true"))
    said = subprocess.run(
        [done.folder / "start"], env={"PATH": "/usr/bin:/bin", "QEMU": str(program)}, capture_output=True, text=True,
        check=True, timeout=30,
    )  # fmt: skip
    assert ("-accel kvm" in said.stdout) is works and ("KVM does not work" in said.stderr) is not works
