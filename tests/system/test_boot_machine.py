# SPDX-License-Identifier: Apache-2.0
"""A machine with an init of its own, for real: a packaged kernel, an initial RAM disk, an ext4 disk whose init is a
small program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor.analysis.guests.machine_variants import USUAL
from vmtailor.base import natives
from vmtailor.base.cache.store import Store
from vmtailor.base.process import require_tool, run
from vmtailor.booting import series_run
from vmtailor.booting.booter import boot
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.guest.ready import parse_signal
from vmtailor.drivers.rootfs import initramfs, initrd_additions, small_initrd
from vmtailor.drivers.rootfs.initramfs import cpio, directory, file, node
from vmtailor.model.architecture import presumed
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.workload import OwnInit
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.machine import Disk, DiskMode
from vmtailor.stages.boot import profile
from vmtailor.stages.boot.boot_attribution import release_of

pytestmark = pytest.mark.system

INIT = r"""
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (!fork()) {
        prctl(PR_SET_NAME, "busy child");
        for (volatile unsigned long i = 0; i < 400000000ul; i++)
            ;
        _exit(0);
    }
    sleep(4);
    printf("the disk's init runs as %d\n", getpid());
    fflush(stdout);
    for (;;)
        pause();
}
"""


@pytest.fixture(scope="module")
def kernel() -> KernelBaseline:
    return packaged_baseline.provide(selection.of_host(), presumed(), Store())


def test_from_a_rebuilt_ram_disk_with_the_collector(kernel: KernelBaseline, tmp_path: Path) -> None:
    source, root = tmp_path / "init.c", tmp_path / "root"
    source.write_text(INIT)
    for name in ("sbin", "dev", "proc", "root"):
        (root / name).mkdir(parents=True)
    run([require_tool("musl-gcc", "musl-tools"), "-static", "-o", str(root / "sbin/init"), str(source)], timeout_s=60)
    image = tmp_path / "disk"
    run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(image), "16M"], timeout_s=60)
    # A distribution's initial RAM disk, as far as it matters here: it has the modules.
    modules = Path(kernel.modules_dir) / "kernel"
    needed = ("virtio_blk", "crc32c-intel", "crc32c_generic", "ext4", "jbd2", "mbcache", "crc16")
    found = [path for name in needed for path in modules.rglob(f"{name}.ko*")]
    initrd = tmp_path / "initrd"
    initrd.write_bytes(cpio([file(f"usr/lib/modules/x/kernel/{p.name}", p.read_bytes()) for p in found]))
    folder = natives.locate().folder
    small = tmp_path / "small"
    loaded = small_initrd.rebuild(initrd, Disk(str(image), mode=DiskMode.OVERLAID), folder / "small-init", small)
    assert "virtio_blk" in loaded

    words = ("root=/dev/vda", "ro", "console=ttyS0", "panic=-1")
    vm = replace(
        USUAL,
        memory_bytes=256 << 20,
        kernel=kernel.vmlinuz,
        initrd=str(small),
        words=words,
        disks=(Disk(str(image), mode=DiskMode.OVERLAID),),
    )
    vm = profile.with_collector(vm, folder / "collector", tmp_path / "out")
    found_boot, gathered = boot(
        vm, OwnInit(parse_signal("log:the disk's init runs as 1$"), 280.0, collector=True), tmp_path
    )
    series_run.keep(gathered, tmp_path / "boot", vm, "collected")
    console = gathered.console.decode("utf-8", "replace")
    assert found_boot.outcome is Outcome.READY, f"{found_boot.problem}\n{console[-3000:]}"
    assert {m.name for m in found_boot.milestones} >= {"kernel", "root mounted", "ready"}

    timeline = profile.timeline_of(tmp_path / "boot")
    assert timeline.kernel.version == kernel.release == release_of(Path(kernel.vmlinuz))
    processes = {p.name: p for p in timeline.processes}
    assert processes["busy child"].exclusive_us and processes["busy child"].exclusive_us > 50_000
    assert processes[initrd_additions.COLLECTOR].observer


def test_a_root_disk_that_is_not_there_is_a_panic_with_words(kernel: KernelBaseline, tmp_path: Path) -> None:
    initrd = tmp_path / "initrd"
    program = (natives.locate().folder / "small-init").read_bytes()
    initrd.write_bytes(cpio([directory("dev"), node("dev/console", 5, 1), file("init", program, 0o755)]))
    words = ("root=LABEL=x", "console=ttyS0", "panic=-1")
    vm = replace(USUAL, memory_bytes=256 << 20, kernel=kernel.vmlinuz, initrd=str(initrd), words=words, network=False)
    found_boot, gathered = boot(vm, OwnInit(parse_signal("login"), 200.0), tmp_path)
    assert found_boot.outcome is Outcome.PANIC
    assert "root=LABEL=x is no device" in gathered.console.decode("utf-8", "replace")


def test_a_driver_that_refuses_does_not_end_the_boot(kernel: KernelBaseline, tmp_path: Path) -> None:
    """crc32c-intel does, on a processor without SSE 4.2."""
    module = next((Path(kernel.modules_dir) / "kernel").rglob("crc32c-intel.ko"))
    initrd = tmp_path / "initrd"
    program = (natives.locate().folder / "small-init").read_bytes()
    initrd.write_bytes(initramfs.archive([(module.stem, module.read_bytes())], program))
    vm = replace(
        USUAL, cpu_model="qemu64", memory_bytes=256 << 20, kernel=kernel.vmlinuz, initrd=str(initrd),
        words=("root=LABEL=x", "console=ttyS0", "panic=-1"), network=False,
    )  # fmt: skip
    _, gathered = boot(vm, OwnInit(parse_signal("login"), 200.0), tmp_path)
    said = gathered.console.decode("utf-8", "replace")
    assert "crc32c-intel.ko is not loaded: No such device" in said
    assert "root=LABEL=x is no device" in said
