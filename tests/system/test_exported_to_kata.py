# SPDX-License-Identifier: Apache-2.0
"""A kernel that was fitted for Kata Containers, booted in a machine like Kata's: guest image on persistent memory or on
a virtio disk, a virtio console, devices that are plugged in. Kata itself, its agent and its guest image are not to be
had from registries of packages: a script stands for the agent, and asks for what that needs. Processors are not plugged
in: Linux takes such only from a hypervisor that it knows, and emulation is none."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRWPair
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import kata_image
from tests.fakes.program import run_program
from tests.system.conftest import FIT_S, Fitted
from tests.system.test_exported_machines import exported

pytestmark = [pytest.mark.system, pytest.mark.slow]

#: Says what there is, asks the host to plug things in (`plug`), and says what came.
INIT = """\
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
say() { echo "agent: $*"; }
say root $(awk '$2 == "/" { root = $1 " " $3 " " $4 } END { print root }' /proc/mounts)
for name in virtiofs overlay fuse ext4 tmpfs; do grep -qw $name /proc/filesystems && say fs $name; done
say drivers $(ls /sys/bus/virtio/drivers)
for name in vsock hvc0 sda; do [ -e /dev/$name ] && say device $name; done
echo "agent on its console" >/dev/hvc0
mkdir /tmp/low /tmp/up /tmp/work /tmp/all /tmp/groups
mount -t overlay all -o lowerdir=/tmp/low,upperdir=/tmp/up,workdir=/tmp/work /tmp/all && say overlay
mount -t cgroup2 groups /tmp/groups && say groups $(cat /tmp/groups/cgroup.controllers)
unshare -m -u -i -n -p -f true && say namespaces
grep -q '^Seccomp:' /proc/self/status && say seccomp
memory() { awk '/MemTotal/ { print int($2 / 1024) }' /proc/meminfo; }
disk() { cat /sys/block/vd?/serial 2>/dev/null | grep -q plugged; }
say before $(memory)
say plug
for second in $(seq 60); do
    disk && grep -q offline /sys/devices/system/memory/*/state && break
    sleep 1
done
for one in /sys/devices/system/memory/memory*; do grep -q offline $one/state && echo online >$one/state; done
say after $(memory)
disk && say disk came
reboot -f
"""


@pytest.fixture(scope="module")
def kernel(lighttpd: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernel of an export to Kata: minutes, where it is not cached."""
    made = tmp_path_factory.mktemp("kata")
    refit = ("refit", lighttpd.bundle, "--for", "kata", "-o", made / "bundle", "--repeat", "2")
    ended = run_program(made, *refit, timeout_s=FIT_S)
    assert ended.code == 0, ended.stderr
    return exported(made / "bundle", made, "--to", "kata") / "vmlinux"


class Talk:
    """QEMU's own line."""

    def __init__(self, file: BufferedRWPair) -> None:
        self.file = file
        self.file.readline()
        self.ask("qmp_capabilities")

    def ask(self, execute: str, **arguments: Any) -> None:
        self.file.write(json.dumps({"execute": execute, "arguments": arguments}).encode() + b"\n")
        self.file.flush()
        while "return" not in (found := json.loads(self.file.readline())):
            assert "error" not in found, found


@contextmanager
def talk_to(path: Path) -> Iterator[Talk]:
    """QEMU's line at a socket, closed at the end."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(30)
        line.connect(str(path))
        with line.makefile("rwb") as file:
            yield Talk(file)


#: As Kata's QEMU has them: the image on persistent memory, or on a virtio disk.
ROOTS = {
    "pmem": (
        "root=/dev/pmem0p1 rootflags=dax ro",
        (
            "-object", "memory-backend-file,id=image,mem-path=guest.img,size=128M,share=off",
            "-device", "nvdimm,memdev=image",
        ),
    ),
    "disk": (
        "root=/dev/vda1 ro",
        ("-drive", "file=guest.img,format=raw,if=none,id=image,readonly=on", "-device", "virtio-blk-pci,drive=image"),
    ),
}  # fmt: skip


@contextmanager
def machine(kernel: Path, folder: Path, kind: str) -> Iterator[subprocess.Popen[bytes]]:
    """A machine whose console is in the file `console`, and what it writes to hvc0 in `hvc0`."""
    words, image = ROOTS[kind]
    argv = ["qemu-system-x86_64", "-M", "q35,accel=tcg,nvdimm=on", "-cpu", "max", "-smp", "1"]
    argv += ["-m", "256M,slots=4,maxmem=2G", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    argv += ["-qmp", "unix:qmp,server=on,wait=off", "-serial", "file:console", "-kernel", str(kernel)]
    argv += ["-append", f"{words} rootfstype=ext4 console=ttyS0 panic=-1 reboot=t clearcpuid=141", *image]
    argv += ["-device", "virtio-serial-pci", "-chardev", "file,id=c,path=hvc0", "-device", "virtconsole,chardev=c"]
    argv += ["-device", "virtio-scsi-pci", "-drive", "if=none,id=s,format=raw,file=second.img"]
    argv += ["-device", "scsi-hd,drive=s", "-drive", "if=none,id=t,format=raw,file=third.img"]
    argv += ["-device", "pcie-root-port,id=slot1,slot=1,chassis=1"]
    with (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


def wait_for(text: str, folder: Path, process: subprocess.Popen[bytes], limit_s: float = 180.0) -> None:
    end = time.monotonic() + limit_s
    while text not in (
        said := (folder / "console").read_text(errors="replace") if (folder / "console").exists() else ""
    ):
        assert process.poll() is None and time.monotonic() < end, said + (folder / "stderr").read_text()
        time.sleep(0.2)


@pytest.mark.parametrize("kind", ["pmem", "disk"])
def test_what_agent_and_runtime_ask_for_is_there(kind: str, kernel: Path, tmp_path: Path) -> None:
    if shutil.which("busybox") is None:
        pytest.skip("needs busybox-static")
    kata_image.write(tmp_path / "guest.img", tmp_path / "root", INIT)
    for name in ("second.img", "third.img"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 20)
    with machine(kernel, tmp_path, kind) as running:
        wait_for("agent: plug\n", tmp_path, running)
        with talk_to(tmp_path / "qmp") as talk:
            talk.ask("object-add", **{"qom-type": "memory-backend-ram", "id": "more", "size": 256 << 20})
            talk.ask("device_add", driver="pc-dimm", id="dimm", memdev="more")
            talk.ask("device_add", driver="virtio-blk-pci", id="disk", drive="t", bus="slot1", serial="plugged")
        wait_for("agent: disk came\n", tmp_path, running)
        assert running.wait(60) == 0
    said = [
        line.removeprefix("agent: ") for line in (tmp_path / "console").read_text().splitlines() if "agent: " in line
    ]
    root = next(line for line in said if line.startswith("root "))
    assert re.match(r"root /dev/(root|pmem0p1|vda1) ext4 ", root) and ("dax" in root) is (kind == "pmem")
    lines = (
        "fs virtiofs",
        "fs overlay",
        "device vsock",
        "device hvc0",
        "device sda",
        "overlay",
        "namespaces",
        "seccomp",
    )
    assert set(lines) <= set(said), said
    drivers = next(line for line in said if line.startswith("drivers "))
    assert {"virtiofs", "virtio_blk", "virtio_console", "vmw_vsock_virtio_transport"} <= set(drivers.split())
    groups = next(line for line in said if line.startswith("groups "))
    assert {"cpu", "memory", "pids", "cpuset"} <= set(groups.split())
    memory = [int(next(line for line in said if line.startswith(when)).split()[1]) for when in ("before", "after")]
    assert memory[1] - memory[0] > 200  # MiB; 256 were plugged in
    assert "agent on its console" in (tmp_path / "hvc0").read_text()
