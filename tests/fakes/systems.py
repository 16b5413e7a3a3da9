# SPDX-License-Identifier: Apache-2.0
"""Small systems with an init, and disks of every form with one on them: made with the tools of the field."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

RELEASE = "6.1.0-9-made-up"
MIB = 1 << 20
#: Ids that tests ask for.
ROOT_UUID, BOOT_UUID = "11111111-2222-4333-8444-555555555555", "66666666-7777-4888-8999-aaaaaaaaaaaa"
GRUB_CFG = f"""\
set default="0"
function gfxmode {{
  set gfxpayload="${{1}}"
}}
menuentry 'Made-up GNU/Linux' --class gnu $menuentry_id_option 'simple' {{
  insmod ext2
  linux /boot/vmlinuz-{RELEASE} root=UUID={ROOT_UUID} ro quiet
  initrd /boot/initrd.img-{RELEASE}
}}
submenu 'Advanced options' {{
  menuentry 'rescue' {{
    linux /boot/vmlinuz-{RELEASE} root=UUID={ROOT_UUID} ro single
  }}
}}
"""
BLS_ENTRY = f"""\
title Made-up {RELEASE}
version {RELEASE}
linux /vmlinuz-{RELEASE}
initrd /initramfs-{RELEASE}.img
options root=UUID={ROOT_UUID} ro $tuned
"""


def tool(*argv: str | Path, data: str | None = None) -> bytes:
    """Run a program of the host; its errors are the test's."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    feed = None if data is None else data.encode()
    return subprocess.run(
        [str(word) for word in argv], check=True, input=feed, capture_output=True, env={**os.environ, "PATH": path}
    ).stdout


def elf(machine: int = 62, bits: int = 64) -> bytes:
    """The head of a program, as far as its processor is concerned."""
    return b"\x7fELF" + bytes([bits // 32, 1, 1]) + bytes(9) + struct.pack("<HH", 3, machine) + bytes(100)


def put(root: Path, name: str, content: str | bytes = b"") -> None:
    """A file of a tree, or a link where the content begins with `-> `."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str) and content.startswith("-> "):
        path.symlink_to(content[3:])
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def tree(root: Path, *, machine: int = 62, kernel: bool = True, separate_boot: bool = False) -> Path:
    """A root tree as a distribution with systemd has it. `separate_boot`: without what is on a disk of its own."""
    for link in ("bin", "sbin", "lib"):
        (root / f"usr/{link}").mkdir(parents=True)
        put(root, link, f"-> usr/{link}")
    put(root, "usr/lib/systemd/systemd", elf(machine))
    put(root, "usr/sbin/init", "-> /lib/systemd/systemd")
    put(root, "etc/os-release", "-> ../usr/lib/os-release")
    put(root, "usr/lib/os-release", 'PRETTY_NAME="Made-up 1"\nID=made-up\nVERSION_ID="1"\nVERSION_CODENAME=one\n')
    boot = f"UUID={BOOT_UUID} /boot ext4 defaults 0 2\n" if separate_boot else ""
    put(root, "etc/fstab", f"# of a test\nUUID={ROOT_UUID} / ext4 errors=remount-ro 0 1\n{boot}")
    put(root, "usr/lib/systemd/system/default.target", "-> multi-user.target")
    put(root, "usr/lib/systemd/system/multi-user.target.wants/getty.target", "-> ../getty.target")
    put(root, "etc/systemd/system/multi-user.target.wants/ours.service", "-> /lib/systemd/system/ours.service")
    put(root, "etc/systemd/system/noisy.service", "-> /dev/null")
    if kernel:
        put(root, f"usr/lib/modules/{RELEASE}/kernel/fs/ext4.ko.xz", b"m" * 1000)
        put(root, f"usr/lib/modules/{RELEASE}/modules.dep", "kernel/fs/ext4.ko.xz:\n")
    (root / "boot").mkdir()
    if kernel and not separate_boot:
        put(root, f"boot/vmlinuz-{RELEASE}", b"k" * 2000)
        put(root, f"boot/initrd.img-{RELEASE}", b"i" * 3000)
        put(root, f"boot/config-{RELEASE}", "CONFIG_EXT4_FS=m\n")
        put(root, "boot/grub/grub.cfg", GRUB_CFG)
    return root


INITTAB = """\
::sysinit:/etc/rc
::respawn:/bin/httpd -f -p 80 -h /srv/www
::shutdown:/bin/umount -a -r
"""
RC = """\
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -o remount,rw /
ifconfig lo 127.0.0.1 up
echo "tiny: up"
"""
APPLETS = "sh mount umount reboot httpd ifconfig touch sleep grep"


def busybox_tree(
    root: Path, kernel: Path, modules: Path, release: str, *, rc: str = RC, more_modules: tuple[str, ...] = ()
) -> Path:
    """A system of one program, with a packaged kernel inside and the modules that its disk needs: it starts in seconds.
    `modules`: lib/modules/RELEASE; `more_modules`: names of those beside what its disk needs."""
    put(root, "bin/busybox", Path("/usr/bin/busybox").read_bytes())
    for name in APPLETS.split():
        put(root, f"bin/{name}", "-> busybox")
    put(root, "sbin/init", "-> ../bin/busybox")
    put(root, "etc/inittab", INITTAB)
    put(root, "etc/rc", rc)
    put(root, "etc/os-release", "ID=tiny\nPRETTY_NAME='A system of one program'\n")
    put(root, "srv/www/index.html", "hello from a system\n")
    for name in ("bin/busybox", "etc/rc"):
        (root / name).chmod(0o755)
    for name in ("proc", "sys", "dev", "mnt", "tmp", "root"):
        (root / name).mkdir()
    put(root, f"boot/vmlinuz-{release}", kernel.read_bytes())
    for path in modules.rglob("*.ko*"):
        if path.name.split(".ko")[0].replace("-", "_") in (*DISK_MODULES, *more_modules):
            put(root, f"usr/lib/modules/{release}/{path.relative_to(modules)}", path.read_bytes())
    put(root, "lib", "-> usr/lib")
    tool("depmod", "-b", root, release)
    return root


#: What a disk with ext4 needs of packaged kernels that have these as modules.
DISK_MODULES = (
    "virtio", "virtio_ring", "virtio_pci", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_blk", "ext4",
    "jbd2", "mbcache", "crc16", "crc32c_generic", "crc32c_intel",
)  # fmt: skip


def boot_tree(root: Path) -> Path:
    """What a /boot of its own has, with entries of the Boot Loader Specification."""
    put(root, f"vmlinuz-{RELEASE}", b"k" * 2000)
    put(root, f"initramfs-{RELEASE}.img", b"i" * 3000)
    put(root, f"loader/entries/0123-{RELEASE}.conf", BLS_ENTRY)
    put(root, "grub2/grubenv", "# GRUB Environment Block\ntuned=isolcpus=1\n#########\n")
    return root


def ext4(out: Path, content: Path, *, size_mib: int = 16, offset: int = 0, uuid: str = ROOT_UUID) -> Path:
    """A file system of a tree, on the whole file or at a place in it."""
    where = ["-E", f"offset={offset}"] if offset else []
    tool("mke2fs", "-q", "-F", "-t", "ext4", "-U", uuid, *where, "-d", content, out, f"{size_mib}M")
    return out


def partitioned(out: Path, content: Path, label: str = "gpt", boot: Path | None = None, *, root_mib: int = 16) -> Path:
    """A disk with a table: a partition to start from, one for /boot where there is a tree for it, and the root."""
    with out.open("wb") as file:
        file.truncate((root_mib + 48) * MIB)
    first = "uefi" if label == "gpt" else "linux"
    middle = "size=16M,type=linux\n" if boot is not None else ""
    tool(
        "sfdisk",
        "-q",
        out,
        data=f"label: {label}\nstart=2048,size=4M,type={first}\n{middle}size={root_mib + 4}M,type=linux\n",
    )
    if boot is not None:
        ext4(out, boot, offset=5 * MIB, uuid=BOOT_UUID)
    return ext4(out, content, size_mib=root_mib, offset=(21 if boot is not None else 5) * MIB)


def patched(path: Path, at: int, data: bytes) -> Path:
    """The same file with some bytes changed."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    return path


@contextlib.contextmanager
def locked_as_by_qemu(path: Path) -> Iterator[None]:
    """The lock that QEMU's file driver holds on an image while a machine may write to it."""
    with path.open("r+b") as file:
        wanted = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 101, 1, 0)
        fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, wanted)
        yield
