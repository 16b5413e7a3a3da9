# SPDX-License-Identifier: Apache-2.0
"""Boots a small guest as some user on some kind of host, says where QEMU is, and stays until its standard input ends.

    confined.py KIND KERNEL DISK PORT

KIND: root | nobody | root-without-namespaces (start it without CAP_SYS_ADMIN) | nobody-without-namespaces (start it in
a mount namespace of its own: it goes into a chroot, where the kernel gives no user namespaces)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from vmtailor.drivers.confinement import confinement
from vmtailor.drivers.qemu import qemu, qemu_program
from vmtailor.model.machine import Clock, Disk, Machine, PublishedPort


def main(kind: str, kernel: str, disk: str, port: str) -> None:
    if kind == "nobody-without-namespaces":
        other = Path(tempfile.mkdtemp(dir="/tmp", prefix="other-root-"))
        subprocess.run(["mount", "--rbind", "/", other], check=True)
        os.chroot(other)
        os.chdir("/")
    if kind.startswith("nobody"):
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    machine = Machine(
        "microvm", 32 << 20, kernel, ("h",), disks=(Disk(disk),), clock=Clock.WALL, network=True,
        ports=(PublishedPort("127.0.0.1", int(port), 80),),
    )  # fmt: skip
    with qemu.start(machine, qmp=True) as running:
        how = confinement.of(qemu_program.installed())
        assert running.serial.wait_readable(30)
        said = {"pid": running._process.pid, "root": how.root, "stranger": how.stranger, "lacking": how.lacking}
        print(json.dumps(said), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
