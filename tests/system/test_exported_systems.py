# SPDX-License-Identifier: Apache-2.0
"""A system with an init of its own in exports: systemd and a web server, started without vmtailor."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes import systems
from tests.fakes.program import run_program
from tests.system.conftest import EXAMPLES, FIT_S
from tests.system.test_exported_disks import command_of, firmware_of
from tests.system.test_exported_machines import answer, exported, free_port, started
from tests.system.test_exported_monitors import qemu

pytestmark = [pytest.mark.system, pytest.mark.slow]

#: Writes a file, and gives the system the address of QEMU's own network: it has none of its own. udev may give the
#: interface another name meanwhile.
ADDRESS = r"""
[Service]
Type=oneshot
ExecStart=/usr/bin/busybox sh -c "echo kept >/srv/www/kept && sync"
ExecStart=/usr/bin/busybox sh -c "until busybox ifconfig $(busybox ls /sys/class/net | busybox grep ^e) 10.0.2.15 \
    netmask 255.255.255.0 up; do busybox sleep 1; done"
[Install]
WantedBy=multi-user.target
"""
UNITS = "/etc/systemd/system"
PAGE = b"a small system\n"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of the small system: as in test_system_fit.py, from the cache behind it."""
    folder = tmp_path_factory.mktemp("system")
    disk = folder / "small.raw"
    subprocess.run([sys.executable, str(EXAMPLES / "build.py"), "small-system", str(disk)], check=True, timeout=600)
    words = ("fit", f"disk:{disk}", "-x", EXAMPLES / "small-system" / "exercise.toml", "--memory", "512M")
    ended = run_program(folder, *words, "--repeat", "1", "-o", folder / "bundle", timeout_s=FIT_S)
    assert ended.code == 0, ended.stderr
    return folder / "bundle"


@pytest.fixture(scope="module")
def for_pci(system: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same on a kernel for boards with PCI and for disks with a table: minutes, where it is not cached."""
    made = tmp_path_factory.mktemp("pci")
    refit = ("refit", system, "--for", "disk,libvirt,firecracker", "-o", made / "bundle", "--repeat", "1")
    ended = run_program(made, *refit, timeout_s=FIT_S)
    assert ended.code == 0, ended.stderr
    return made / "bundle"


def with_address(disk: Path, at: int = 0) -> None:
    """Put the unit of the address onto an exported disk."""
    with_unit(disk, "address.service", ADDRESS, at)


def with_unit(disk: Path, name: str, text: str, at: int = 0) -> None:
    """Put a unit onto an exported disk, which is the export's own. `at`: the byte where the root begins."""
    unit = disk.parent / name
    unit.write_text(text)
    orders = (
        f"cd {UNITS}\nwrite {unit} {unit.name}\ncd multi-user.target.wants\nsymlink {unit.name} {UNITS}/{unit.name}\n"
    )
    systems.tool("debugfs", "-w", "-f", "-", f"{disk}?offset={at}", data=orders)
    unit.unlink()


def test_a_script_of_qemu_starts_it_and_what_it_writes_stays(system: Path, tmp_path: Path) -> None:
    port = free_port()
    out = exported(system, tmp_path, "--to", "qemu", "-p", f"{port}:80")
    assert "```sh\n./start\n" in (out / "README.md").read_text()
    with_address(out / "disk.raw")
    with started("./start", cwd=out):
        assert answer(f"http://127.0.0.1:{port}/", 300.0) == PAGE
    # The machine ended as by a power cut: the journal is played first.
    subprocess.run(["/usr/sbin/e2fsck", "-fy", out / "disk.raw"], capture_output=True, timeout=60, check=False)
    assert systems.tool("debugfs", "-R", "cat /srv/www/kept", out / "disk.raw") == b"kept\n"


def test_firecrackers_machine_starts_it_from_its_root_device(system: Path, tmp_path: Path) -> None:
    """QEMU stands in: its microvm, words for the devices, and the words that Firecracker adds for a root device."""
    port = free_port()
    out = exported(system, tmp_path, "--to", "firecracker", "-m", "512M")
    with_address(out / "disk.raw")
    argv = qemu(out, "firecracker")
    argv[argv.index("-netdev") + 1] = f"user,id=n,hostfwd=tcp:127.0.0.1:{port}-:80"
    assert argv[-1].endswith(" root=/dev/vda rw") and argv[-1].count("root=") == 1
    with started(*argv, cwd=out):
        assert answer(f"http://127.0.0.1:{port}/", 300.0) == PAGE


@pytest.mark.parametrize("kind", ["bios", "uefi"])
def test_firmware_boots_it_from_a_disk_with_our_loaders(kind: str, for_pci: Path, tmp_path: Path) -> None:
    port = free_port()
    out = exported(for_pci, tmp_path, "--to", "disk")
    with_address(out / "disk.raw", 1 << 20)
    command = command_of(out).replace("-nic user,", f"-nic user,hostfwd=tcp:127.0.0.1:{port}-:80,")
    with started("sh", "-c", command + firmware_of(kind, tmp_path), cwd=out):
        assert answer(f"http://127.0.0.1:{port}/", 400.0) == PAGE


def test_uefi_firmware_starts_a_unified_kernel_image_alone(for_pci: Path, tmp_path: Path) -> None:
    """From a folder as a FAT file system: no loader, no disk but the root, and the words that are inside."""
    port = free_port()
    out = exported(for_pci, tmp_path, "--to", "kernel:uki", "--name", "uki")
    boot = tmp_path / "esp" / "EFI" / "BOOT"
    boot.mkdir(parents=True)
    shutil.copyfile(out / "uki.efi", boot / "BOOTX64.EFI")
    disk = shutil.copyfile(for_pci / "disk.raw", tmp_path / "disk.raw")
    with_address(disk)
    command = (
        "exec qemu-system-x86_64 -machine q35 -accel tcg -cpu max -m 512 -nographic -no-reboot"
        f" -nic user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:{port}-:80"
        f" -drive file={disk},format=raw,if=none,id=root -device virtio-blk-pci,drive=root"
        f" -drive file=fat:{tmp_path}/esp,format=raw,if=none,id=esp,readonly=on"
        " -device virtio-blk-pci,drive=esp,bootindex=1"
    )
    with started("sh", "-c", command + firmware_of("uefi", tmp_path), cwd=out):
        assert answer(f"http://127.0.0.1:{port}/", 400.0) == PAGE


def test_libvirts_schema_has_its_domain(for_pci: Path, tmp_path: Path) -> None:
    out = exported(for_pci, tmp_path, "--to", "libvirt", "--name", "vm")
    subprocess.run(["virt-xml-validate", out / "vm.xml", "domain"], check=True, capture_output=True, timeout=60)
