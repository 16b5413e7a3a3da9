# SPDX-License-Identifier: Apache-2.0
"""A fitted kernel beside the old ones of a disk, started by firmware and the loader of the disk. The kernel that stands
in for a fitted one finds no root: the loader comes back to the old entry."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.fakes import loader_disks, systems
from tests.system.test_exported_disks import firmware_of
from tests.system.test_exported_machines import started

from vmtailor.analysis.systems import loader_change
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.guest import guest_programs
from vmtailor.model.architecture import presumed
from vmtailor.model.bundle import Bundle
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.systems.system import System
from vmtailor.pipeline import bundle_install
from vmtailor.pipeline.systems import subjects
from vmtailor.stages.boot import own_kernel

pytestmark = pytest.mark.system

SAVED = Path(__file__).parent.parent / "data/saved/system"
OLD_WORDS = "root=/dev/vda{number} rw console=ttyS0 panic=-1"
SYMBOLS = (
    "ACPI",
    "PCI",
    "PCI_MSI",
    "X86_PM_TIMER",
    "VIRTIO_PCI",
    "PARTITION_ADVANCED",
    "EFI_PARTITION",
    "EFI",
    "MSDOS_PARTITION",
)


@dataclass(frozen=True)
class Files:
    """A bundle as far as an installation reads it."""

    path: Path
    bundle: Bundle
    system: System
    config: dict[str, str]
    is_system: bool = True


@pytest.fixture(scope="module")
def kernel() -> KernelBaseline:
    return packaged_baseline.provide(selection.of_host(), presumed(), Store())


def tree(folder: Path, kernel: KernelBaseline) -> Path:
    """A system of one program with a RAM disk of its own."""
    modules = Path(kernel.modules_dir)
    root = systems.busybox_tree(folder / "root", Path(kernel.vmlinuz), modules, kernel.release)
    first = systems.ext4(folder / "first.raw", root, size_mib=64)
    with subjects.opened(f"disk:{first}", Store()) as found:
        small = guest_programs.of(presumed().name).small_init
        taken = own_kernel.taken_out(found.subject, found.root, small, folder / "own")
    first.unlink()
    shutil.copyfile(taken.initrd, root / f"boot/initrd.img-{kernel.release}")
    return root


def grub(folder: Path, kernel: KernelBaseline) -> Path:
    words = OLD_WORDS.format(number=1)
    return loader_disks.grub_disk(folder / "disk.raw", tree(folder, kernel), kernel.release, words)


def systemd_boot(folder: Path, kernel: KernelBaseline) -> Path:
    words = OLD_WORDS.format(number=2)
    return loader_disks.systemd_boot_disk(folder / "disk.raw", tree(folder, kernel), kernel.release, words)


@pytest.fixture
def install(kernel: KernelBaseline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    def installed(disk: Path) -> Path:
        with subjects.opened(f"disk:{disk}", Store()) as found:
            system = found.subject
        words = ("root=/dev/vda1", "ro", "console=ttyS0", "panic=-1", "fitted=yes")
        bundle = replace(records.load(Bundle, SAVED / "bundle.json"), words=words, name="web", kernel_version="6.12.1")
        files = Files(tmp_path, bundle, system, dict.fromkeys(SYMBOLS, "y"))
        monkeypatch.setattr("vmtailor.drivers.host.bundle_folder.load", lambda *_: files)
        monkeypatch.setattr("vmtailor.pipeline.bundle_kernel_forms.made", lambda *_: Path(kernel.vmlinuz))
        before = disk.read_bytes()
        done = bundle_install.install(tmp_path, disk, tmp_path / "new.raw", Store())
        assert disk.read_bytes() == before and done.disk == tmp_path / "new.raw"
        return done.disk

    return installed


def console_of(disk: Path, firmware: str, until: str, folder: Path, limit_s: float) -> str:
    """What a machine prints that starts from a disk by firmware, until it prints a text."""
    command = (
        "exec qemu-system-x86_64 -machine q35 -accel tcg -cpu max -m 512 -nographic -nic none"
        f" -drive file={disk},format=raw,if=virtio{firmware}"
    )
    with started("sh", "-c", command, cwd=folder):
        end = time.monotonic() + limit_s
        while True:
            text = (folder / "console").read_text(errors="replace")
            if until in text:
                return text
            assert time.monotonic() < end, text[-3000:]
            time.sleep(0.5)


@pytest.mark.parametrize(
    ("make", "firmware"), [(grub, "bios"), pytest.param(systemd_boot, "uefi", marks=pytest.mark.slow)]
)
def test_the_new_entry_is_tried_and_the_old_one_comes_back(
    make: Callable[[Path, KernelBaseline], Path],
    firmware: str,
    kernel: KernelBaseline,
    install: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader_change, "TRIES", 1)
    new = install(make(tmp_path, kernel))
    text = console_of(new, firmware_of(firmware, tmp_path), "tiny: up", tmp_path, 300)
    tried, _, again = text.partition("Kernel panic")
    assert "fitted=yes" in tried and "Unable to mount root fs" in again.splitlines()[0] + tried[-2000:] + again[:200]
    assert "fitted=yes" not in again and "tiny: up" in again
    assert "root=PARTUUID=" in tried


def test_systemd_boot_gets_an_entry_whose_boots_it_counts(
    kernel: KernelBaseline, install: Callable[[Path], Path], tmp_path: Path
) -> None:
    disk = systemd_boot(tmp_path, kernel)
    new = install(disk)
    assert sorted(loader_disks.listed(new, "/loader/entries")) == ["old.conf", "vmtailor-web+3.conf"]
    assert sorted(loader_disks.listed(new, "/vmtailor/vmtailor-web")) == ["config", "linux"]
    with subjects.opened(f"disk:{new}", Store()) as found:
        layout = found.subject.disk
        assert layout is not None and layout.root == 2
    entry = systems.tool("mtype", "-i", f"{new}@@{systems.MIB}", "::/loader/entries/vmtailor-web+3.conf").decode()
    assert "linux /vmtailor/vmtailor-web/linux\n" in entry and "options root=PARTUUID=" in entry
    settings = systems.tool("mtype", "-i", f"{new}@@{systems.MIB}", "::/loader/loader.conf").decode()
    assert "#default old*" in settings


def test_a_disk_in_use_is_refused(kernel: KernelBaseline, install: Callable[[Path], Path], tmp_path: Path) -> None:
    disk = grub(tmp_path, kernel)
    with systems.locked_as_by_qemu(disk), pytest.raises(UserInputError, match="in use by a running machine"):
        install(disk)
    with disk.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        with pytest.raises(UserInputError, match="another program has locked it"):
            install(disk)
    install(disk)
    with pytest.raises(UserInputError, match="exists"):
        install(disk)
    subprocess.run(["/usr/sbin/e2fsck", "-fn", f"{tmp_path / 'new.raw'}?offset=1048576"], check=True, timeout=60)
