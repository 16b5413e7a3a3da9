# SPDX-License-Identifier: Apache-2.0
"""A system on a disk traced for real: a packaged kernel, an ext4 disk whose init is a small program."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vmtailor.analysis.systems.log import Mark, Reading
from vmtailor.base import natives
from vmtailor.base.cache.store import Store
from vmtailor.base.process import require_tool, run
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.guest.ready import parse_signal
from vmtailor.model.architecture import presumed
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.workload import OwnInit
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.pipeline.systems import subjects, system_kernel
from vmtailor.stages.system_watch import chunks_of

pytestmark = [pytest.mark.system, pytest.mark.slow]

#: It looks whether somebody stayed behind, asks for what the kernel has as a module, has a child that hangs, and says
#: what it found.
INIT = r"""
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The file begins with the number of the call; "running" while the child has not come so far. */
static void until_it_waits_in_a_pipe(int child) {
    char path[64], said[64] = "";
    int number = -1;
    snprintf(path, sizeof path, "/proc/%d/syscall", child);
    while (number != SYS_read) {
        FILE *file = fopen(path, "r");
        usleep(10000);
        if (!file)
            continue;
        number = fgets(said, sizeof said, file) && sscanf(said, "%d", &number) == 1 ? number : -1;
        fclose(file);
    }
}

int main(int argc, char **argv) {
    struct stat found;
    struct statvfs sys;
    mount("proc", "/proc", "proc", 0, NULL);
    int child = fork();
    if (!child) {
        int ends[2];
        char one;
        if (!pipe(ends))
            read(ends[0], &one, 1); /* nobody writes */
        _exit(0);
    }
    until_it_waits_in_a_pipe(child);
    int hidden = stat("/watch", &found) != 0 && stat("/init", &found) != 0;
    int fds = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        fds++;
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    int writable = !statvfs("/sys", &sys) && !(sys.f_flag & ST_RDONLY);
    int asked = socket(38, SOCK_SEQPACKET, 0); /* AF_ALG */
    printf("pid %d %s %s %d words %d open %s sys %s\n", getpid(), argv[0], hidden ? "alone" : "not alone", argc,
           fds - 2, asked < 0 ? "none" : "had", writable ? "writable" : "read-only");
    fflush(stdout);
    for (;;)
        sleep(1);
}
"""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernel = packaged_baseline.provide(selection.of_host(), presumed(), Store())
    folder = tmp_path_factory.mktemp("system")
    root, source = folder / "root", folder / "init.c"
    source.write_text(INIT)
    modules = root / "lib/modules" / kernel.release
    for path in (modules / "kernel", *(root / name for name in ("sbin", "dev", "proc", "sys", "etc", "boot"))):
        path.mkdir(parents=True)
    run([require_tool("musl-gcc", "musl-tools"), "-static", "-o", str(root / "sbin/init"), str(source)], timeout_s=60)
    (root / "etc/os-release").write_text('ID=small\nPRETTY_NAME="Small"\n')
    shutil.copyfile(kernel.vmlinuz, root / f"boot/vmlinuz-{kernel.release}")
    alone = ("virtio_pci", "virtio_blk", "crc32c_intel", "crc32c_generic", "mbcache", "crc16")
    needed: dict[str, tuple[str, ...]] = dict.fromkeys(alone, ())
    needed |= {"jbd2": ("crc16",), "ext4": ("mbcache", "jbd2", "crc16")}
    lines = []
    for name, before in needed.items():
        for path in (Path(kernel.modules_dir) / "kernel").rglob("*.ko*"):
            if path.name.partition(".ko")[0].replace("-", "_") == name:
                shutil.copyfile(path, modules / "kernel" / path.name)
                lines.append(f"kernel/{path.name}: " + " ".join(f"kernel/{one}.ko" for one in before))
    (modules / "modules.dep").write_text("\n".join(lines) + "\n")
    (modules / "modules.alias").write_text("alias net-pf-38 af_alg\n")
    (modules / "modules.builtin").write_text("")
    image = folder / "disk.raw"
    run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(image), "64M"], timeout_s=60)
    return image


def test_a_systems_own_init_is_traced_as_pid_1_and_finds_nobody(disk: Path, tmp_path: Path) -> None:
    before = disk.read_bytes()
    work = OwnInit(parse_signal("log:pid 1 /sbin/init alone"), 1200.0)
    with subjects.opened(f"disk:{disk}", Store()) as found:
        record = system_kernel.traced(found, work, tmp_path / "seen", natives.locate(), memory_bytes=256 << 20)
        again = system_kernel.traced(found, work, tmp_path / "seen", natives.locate(), memory_bytes=256 << 20)
    assert record.boot.outcome is Outcome.READY, record.boot.failures
    assert again == record  # found again, not booted
    assert disk.read_bytes() == before
    assert record.figures.skipped == 0 and record.figures.whole and record.figures.processes == 2
    assert record.events and any(one.alias.startswith("virtio:") for one in record.devices)

    reading = Reading()
    everything = list(reading.read(chunks_of(tmp_path / "seen" / record.requests_file)))
    calls = [one for one in everything if isinstance(one, SyscallEvent)]
    assert calls[0].name == "execve" and calls[0].args[0] == '"/sbin/init"'
    (said,) = [one for one in calls if one.name in ("write", "writev") and "pid 1" in ", ".join(one.args)]
    # Its only descriptors are those of the console, and the folder that it counts them in.
    assert "1 words 4 open" in ", ".join(said.args)
    # Its /sys is as on any boot, though somebody looks at it.
    assert "sys writable" in ", ".join(said.args)
    # The child hangs in a call that never returns, and is there all the same.
    assert [one.name for one in calls if one.result is None] == ["read"]
    # The kernel was asked for a module, on behalf of PID 1, and started a program for it that is not in the root.
    asked = [one.text for one in everything if isinstance(one, Mark) and "module_request: net-pf-38" in one.text]
    assert asked and "init-1" in asked[0]
