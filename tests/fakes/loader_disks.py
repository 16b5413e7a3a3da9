# SPDX-License-Identifier: Apache-2.0
"""Disks of systems with boot loaders of their own: GRUB for a BIOS, systemd-boot for UEFI firmware; without root."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

from tests.fakes import systems
from tests.fakes.systems import MIB, ROOT_UUID, put, tool

GRUB = Path("/usr/lib/grub/i386-pc")
STUB = Path("/usr/lib/systemd/boot/efi/systemd-bootx64.efi")
#: What the menus below use.
_MODULES = (
    "biosdisk",
    "part_msdos",
    "ext2",
    "normal",
    "linux",
    "loadenv",
    "test",
    "search",
    "search_fs_uuid",
    "serial",
)
_START = 2048
_MENU = """\
serial --unit=0
terminal_output serial
set timeout=0
set default=0
menuentry 'Old' {{
    search --no-floppy --fs-uuid --set=root {uuid}
    linux /boot/vmlinuz-{release} {words}
    initrd /boot/initrd.img-{release}
}}
"""


def grub_disk(out: Path, root: Path, release: str, words: str, *, size_mib: int = 96) -> Path:
    """A disk with an MBR: GRUB before its one partition, which has the tree `root` with a kernel and its RAM disk."""
    put(root, "boot/grub/grub.cfg", _MENU.format(uuid=ROOT_UUID, release=release, words=words))
    core = out.with_name("core.img")
    tool("grub-mkimage", "-O", "i386-pc", "-d", GRUB, "-p", "(hd0,msdos1)/boot/grub", "-o", core, *_MODULES)
    boot = (GRUB / "boot.img").read_bytes()
    entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff", _START, size_mib * 2048)
    with out.open("wb") as disk:
        disk.truncate((size_mib + 2) * MIB)
        disk.write(boot[:440] + struct.pack("<IH", 0x564D5441, 0) + entry + bytes(48) + b"\x55\xaa")
        disk.write(core.read_bytes())
    core.unlink()
    return systems.ext4(out, root, size_mib=size_mib, offset=_START * 512)


def systemd_boot_disk(out: Path, root: Path, release: str, words: str, *, size_mib: int = 96) -> Path:
    """A disk with a GPT: an EFI system partition with systemd-boot, an entry, kernel and RAM disk; then the root."""
    kernel, initrd = root / f"boot/vmlinuz-{release}", root / f"boot/initrd.img-{release}"
    with out.open("wb") as disk:
        disk.truncate((size_mib + 68) * MIB)
    tool("sfdisk", "-q", out, data=f"label: gpt\nstart=2048,size=64M,type=uefi\nsize={size_mib}M,type=linux\n")
    fat = out.with_name("esp.img")
    with fat.open("wb") as file:
        file.truncate(64 * MIB)
    tool("mformat", "-i", fat, "-v", "ESP", "-F", "::")
    for folder in ("EFI", "EFI/BOOT", "EFI/systemd", "loader", "loader/entries", "old"):
        tool("mmd", "-i", fat, f"::/{folder}")
    entry, settings = out.with_name("old.conf"), out.with_name("loader.conf")
    entry.write_text(f"title Old\nversion {release}\nlinux /old/linux\ninitrd /old/initrd\noptions {words}\n")
    settings.write_text("timeout 0\ndefault old*\n")
    for source, to in (
        (STUB, "EFI/BOOT/BOOTX64.EFI"), (STUB, "EFI/systemd/systemd-bootx64.efi"), (kernel, "old/linux"),
        (initrd, "old/initrd"), (entry, "loader/entries/old.conf"), (settings, "loader/loader.conf"),
    ):  # fmt: skip
        tool("mcopy", "-i", fat, source, f"::/{to}")
    with out.open("r+b") as disk:
        disk.seek(MIB)
        disk.write(fat.read_bytes())
    fat.unlink()
    return systems.ext4(out, root, size_mib=size_mib, offset=65 * MIB)


def listed(disk: Path, folder: str) -> list[str]:
    """Names of files on the FAT file system of such a disk."""
    said = subprocess.run(
        ["mdir", "-b", "-i", f"{disk}@@{MIB}", f"::{folder}/"], check=True, capture_output=True, env=dict(os.environ)
    )
    return [line.rpartition("/")[2] for line in said.stdout.decode().splitlines() if not line.endswith("/")]
