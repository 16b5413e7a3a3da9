# SPDX-License-Identifier: Apache-2.0
"""A bundle exported to libkrun: its program is compiled against the library, and starts the machine in the lab."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.contract.test_exported_images import copy, read_back
from tests.fakes.program import run_program
from tests.system.conftest import Fitted
from tests.system.test_exported_machines import answer, free_port

from vmtailor.drivers.lab.lab_monitor import LabMonitor, drain
from vmtailor.drivers.libkrun.libkrun_monitor import LibkrunMonitor
from vmtailor.drivers.monitors import lab_folder, monitors
from vmtailor.drivers.monitors.monitor import Orders, StartPlace
from vmtailor.drivers.monitors.running_machine import RunningMachine
from vmtailor.drivers.targets.libkrun_target import c_strings
from vmtailor.model.architecture import of_host
from vmtailor.model.machine import Machine, PublishedPort

pytestmark = [pytest.mark.system, pytest.mark.slow]
TREE = Path(__file__).parents[2]
#: Starts the program where the lab has the exported files, which is a disk that is only read.
_STARTS = "#!/bin/sh\ncp /mnt/start /run/start && chmod 755 /run/start && cd /mnt && exec /run/start\n"
#: The same with an image's files in a folder that is the machine's root.
_SHARES = """#!/bin/sh
mkdir -p /dev/pts && mount -t devpts devpts /dev/pts && cp -r /mnt/image /mnt/start /run &&
    chmod 755 /run/start /run/image/.vmtailor/init && exec /run/start
"""
#: Makes the calls that crun 1.29 makes: the container's folder is the root, its console libkrun's own (hvc0), before a
#: terminal as podman makes one.
_AS_CRUN = """
#include <pty.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>
int32_t krun_create_ctx(void);
int32_t krun_set_vm_config(uint32_t ctx, uint8_t cpus, uint32_t ram_mib);
int32_t krun_set_root(uint32_t ctx, const char *path);
int32_t krun_set_kernel(uint32_t ctx, const char *path, uint32_t format, const char *initrd, const char *words);
int32_t krun_set_workdir(uint32_t ctx, const char *path);
int32_t krun_set_exec(uint32_t ctx, const char *path, const char *const argv[], const char *const envp[]);
int32_t krun_add_net_tap(uint32_t ctx, const char *device, const uint8_t *mac, uint32_t features, uint32_t flags);
int32_t krun_start_enter(uint32_t ctx);
int main(void) {
    const char *none[] = {0};
    uint8_t mac[] = {0x52, 0x54, 0, 0x12, 0x34, 0x56};
    char said[4096];
    int terminal;
    pid_t machine = forkpty(&terminal, 0, 0, 0);
    if (machine < 0)
        return 1;
    for (ssize_t got; machine > 0;)
        if ((got = read(terminal, said, sizeof said)) <= 0 || write(1, said, (size_t)got) < 0)
            return 0;
    uint32_t ctx = (uint32_t)krun_create_ctx();
    if (krun_set_vm_config(ctx, %d, %d) || krun_set_root(ctx, "/run/image") || krun_set_workdir(ctx, "/") ||
        krun_set_kernel(ctx, "/run/image%s", %d, 0, %s) || krun_set_exec(ctx, "/.vmtailor/init", none, none) ||
        krun_add_net_tap(ctx, "tap0", mac, 0, 0))
        return 1;
    return krun_start_enter(ctx) != 0;
}
"""


class Given(LibkrunMonitor):
    """Starts what it is given, with nothing of a machine but its network."""

    given: dict[str, bytes]

    def _orders(self, machine: Machine, kernel: str, place: StartPlace) -> Orders:
        return Orders(("start",), self.given)


@pytest.fixture(scope="module")
def library() -> Path:
    """The library, of which the lab has the same build."""
    tools = TREE / "tools"
    subprocess.run([sys.executable, tools / "lab.py"], check=True, stdout=subprocess.PIPE, timeout=1500)
    if "libkrun" not in lab_folder.load(of_host().name)[0].monitors:
        pytest.skip("the lab was built without libkrun")
    said = subprocess.run([sys.executable, tools / "build_libkrun.py"], check=True, capture_output=True, text=True)
    return Path(said.stdout.strip())


@dataclass
class Place:
    """A machine in the lab, whose folder and start the test makes."""

    library: Path
    folder: Path

    @contextlib.contextmanager
    def served(self, script: str, files: dict[str, bytes]) -> Iterator[tuple[RunningMachine, int]]:
        """The machine that a script starts with files of the lab's disk, and the port that leads to its port 80."""
        program = self.folder / "program"
        program.write_text(script)
        inner = Given(monitors.named("libkrun").row)
        inner.given = files
        kernel = self.folder / "kernel"
        kernel.touch()  # none that the lab would look at
        port = free_port()
        machine = Machine(
            board=of_host().board_names[0], memory_bytes=256 << 20, kernel=str(kernel), network=True,
            ports=(PublishedPort("127.0.0.1", port, 80),), monitor="lab/libkrun",
        )  # fmt: skip
        with LabMonitor(inner, program).start(machine) as running:
            yield running, port

    def compiled(self, source: str) -> bytes:
        (self.folder / "start.c").write_text(source)
        argv = ["cc", "-O2", "-o", *map(str, (self.folder / "start", self.folder / "start.c", self.library))]
        subprocess.run(argv, check=True, timeout=60)
        return (self.folder / "start").read_bytes()


@pytest.fixture
def place(library: Path, tmp_path: Path) -> Place:
    return Place(library, tmp_path)


def console_of(running: RunningMachine) -> bytes:
    """What the machine's console has shown so far."""
    shown = bytearray()
    drain(running.serial, shown)
    return bytes(shown)


def exported(bundle: Path, target: str, folder: Path) -> Path:
    out = folder / "out"
    ended = run_program(folder, "export", bundle, "--to", target, "--address", "10.0.2.15/24,10.0.2.2", "-o", out)
    assert ended.code == 0, ended.stderr
    return out


def test_the_program_starts_the_machine_under_kvm(place: Place, lighttpd: Fitted) -> None:
    """Asked from this host, through the lab's network."""
    out = exported(lighttpd.bundle, "libkrun", place.folder)
    strict = "CFLAGS=-O2 -Wall -Wextra -Werror -std=c11 -pedantic"
    subprocess.run(["make", f"LIBKRUN={place.library}", strict], cwd=out, check=True, timeout=60)
    files = {name: (out / name).read_bytes() for name in ("start", "vmlinux", "root.erofs")}
    with place.served(_STARTS, files) as (running, port):
        assert b"<html" in answer(f"http://127.0.0.1:{port}/", 300.0).lower()
        assert b"server started" in console_of(running)


def test_an_image_for_crun_starts_as_crun_starts_it(place: Place, exportable: Path) -> None:
    """By libkrun under KVM, with the image's files in a folder that is the machine's root."""
    out = exported(exportable, "libkrun:crun", place.folder)
    copy(f"oci:{out}/image:latest", f"dir:{place.folder}/came")
    _, _, contents = read_back(place.folder / "came")
    told = json.loads(contents[".krun_vm.json"])
    words = c_strings(told["kernel_cmdline"])
    source = _AS_CRUN % (told["cpus"], told["ram_mib"], told["kernel_path"], told["kernel_format"], words)
    files = {f"image/{name}": content for name, content in contents.items()}
    with place.served(_SHARES, {**files, "start": place.compiled(source)}) as (running, port):
        assert b"<html" in answer(f"http://127.0.0.1:{port}/", 300.0).lower(), running.stderr()
        assert b"server started" in console_of(running)
