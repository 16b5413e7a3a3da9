# SPDX-License-Identifier: Apache-2.0
"""A disk with loaders of its own as a target: firmware boots it, and nothing else is needed."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

from vmtailor.base import process
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.targets import disk_table, loader_disk, system_parts, unified_image
from vmtailor.drivers.targets.loader_disk import DiskContent
from vmtailor.drivers.targets.system_parts import SystemParts
from vmtailor.drivers.targets.target import DHCP, ENDED, Export, ExportFolder, ExportTarget, Guide, asks
from vmtailor.model.architecture import named

#: Init's word: its disks are partitions of the first one.
_PARTITIONS = "VT_DISKS=partitions"
#: Forms of disks: the variant → what qemu-img is told; the raw disk is not converted.
_FORMS = {
    "raw": (),
    "qcow2": ("-O", "qcow2", "-o", "compat=1.1"),
    "vmdk": ("-O", "vmdk", "-o", "subformat=streamOptimized"),
}
_CONVERT_S = 600
_SYSTEM = (
    "- The system's partitions have their numbers and places. Its own loaders are not on the disk: these start the "
    "fitted kernel.",
    "- The system sets its own address. Its console is the first serial port. It powers off by ACPI.",
)


class DiskTarget(ExportTarget):
    """Writes `disk.raw`, `disk.qcow2` or `disk.vmdk`."""

    def refusal(self, export: Export) -> UserInputError | None:
        if export.volume is not None and not guest_volume.has_partitions(export.files.init):
            return self.refuse("its init is older than disks with partitions", "fit the image again")
        if export.is_system and system_parts.needs_mbr(export.files.system):
            return self.refuse("its /etc/fstab names partitions by PARTUUID of an MBR", "--to qemu keeps the MBR")
        if export.is_system and system_parts.on_volume(export.files.system):
            return self.refuse("the root is an LVM volume", "--to qemu takes the disk as it is")
        if not loader_disk.plain_words(export.machine.words):
            return self.refuse("GRUB cannot hand on quotes and backslashes of its kernel command line", "--to qemu can")
        return None

    def write(self, export: Export, folder: ExportFolder) -> Guide:
        raw = folder.made("disk.raw")
        _write_raw(export, raw)
        disk = raw
        if options := _FORMS[export.variant]:
            folder.written.remove("disk.raw")
            disk = folder.made(f"disk.{export.variant}")
            tool = process.require_tool("qemu-img", "qemu-utils")
            process.run([tool, "convert", "-f", "raw", *options, str(raw), str(disk)], timeout_s=_CONVERT_S)
            raw.unlink()
        disk.chmod(0o600 if export.volume is not None else 0o644)  # the run volume may hold secrets
        return _guide(export, disk.name, self.row.board)


def _write_raw(export: Export, disk: Path) -> None:
    seed = f"{export.name} {export.files.listed(export.bundle.root).sha256}"
    if not export.is_system:
        words = _words(export.machine.words, disk_table.uuid_of("root", seed))
        _write_content(export, disk, (*words, _PARTITIONS), seed, None)
        return
    with system_parts.opened(export) as system:
        parts = system_parts.beside_loaders(system, seed)
        _write_content(export, disk, _words(export.machine.words, parts.root.uuid), seed, parts)


def _write_content(export: Export, disk: Path, words: tuple[str, ...], seed: str, parts: SystemParts | None) -> None:
    with tempfile.TemporaryDirectory(dir=disk.parent) as scratch:
        unified = Path(scratch) / "unified.efi"
        unified_image.write(export.kernel, " ".join(words), export.name, export.bundle.kernel_version, unified)
        content = DiskContent(root=export.root, kernel=export.kernel, unified=unified, run=export.volume, system=parts)
        loader_disk.write(disk, content, words, seed, Path(scratch))


def _words(words: tuple[str, ...], root: uuid.UUID) -> tuple[str, ...]:
    """Return the kernel's words for a disk that has the root as a partition."""
    kept = [word for word in words if not word.startswith("root=")]
    return (f"root=PARTUUID={root}", *kept)


def _guide(export: Export, disk: str, board: str) -> Guide:
    machine = export.machine
    form = disk.rpartition(".")[2]
    forward = "".join(f",hostfwd={one.protocol}:{one.host_place}-:{one.guest_port}" for one in machine.ports)
    network = f"-nic user,model=virtio-net-pci{forward}" if export.address else "-nic none"
    mib = machine.memory_bytes >> 20
    start = (
        f"{named(machine.architecture).emulator.program} -machine {board} -cpu max -m {mib} -nographic {network} "
        f"-drive file={disk},format={form},if=virtio"
    )
    boots = (
        f"- `{disk}` boots on BIOS and on UEFI, without Secure Boot. Disk and network must be virtio devices on PCI."
    )
    if export.is_system:
        return Guide(start, ENDED, (boots, *_SYSTEM))
    port = next((one for one in machine.ports if one.protocol == "tcp"), None)
    notes = (
        boots,
        "- Its address comes from a DHCP server of its network." if export.address == DHCP else
        f"- Its address is {export.address or 'none: it has no network'}.",
        "- Its console is the first serial port. It powers off by ACPI when its container has ended.",
    )  # fmt: skip
    if port is None:
        return Guide(f"{start} </dev/null", ENDED, notes)
    return Guide(f"{start} </dev/null &", asks(port.host_place), notes)
