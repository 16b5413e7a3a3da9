# SPDX-License-Identifier: Apache-2.0
"""A system of one program on a partition of a qcow2 disk, fitted for real by an exercise that asks it from outside,
too; its bundle serves at a published port."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes import systems
from tests.fakes.asking import answered
from tests.fakes.program import finish, run_program, started

from vmtailor.base.cache.store import Store
from vmtailor.base.files import records
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.model.architecture import presumed
from vmtailor.model.bundle import Bundle
from vmtailor.model.kernel import KernelBaseline

pytestmark = [pytest.mark.system, pytest.mark.slow]

#: The network as QEMU has it for guests, without a client that asks for addresses.
RC = """
for name in failover net_failover virtio_net; do
    for file in /lib/modules/*/kernel/net/core/$name.ko* /lib/modules/*/kernel/drivers/net/$name.ko*; do
        [ -e "$file" ] && busybox insmod "$file"
    done
done
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
echo "tiny: has a network"
"""
EXERCISE = """
ports = [80]
[ready]
kind = "http"
port = 80
[[load]]
kind = "http"
port = 80
[load.expect]
contains = "hello from a system"
[[load]]
kind = "host-command"
argv = ["curl", "--silent", "--show-error", "--fail", "--max-time", "60", "http://127.0.0.1:{port:80}/"]
[load.expect]
contains = "hello from a system"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("network")


def disk_of(folder: Path, kernel: KernelBaseline) -> Path:
    modules = Path(kernel.modules_dir)
    root = systems.busybox_tree(
        folder / "root", Path(kernel.vmlinuz), modules, kernel.release, rc=systems.RC + RC,
        more_modules=("failover", "net_failover", "virtio_net"),
    )  # fmt: skip
    raw = systems.partitioned(folder / "disk.raw", root, root_mib=48)
    systems.tool("qemu-img", "convert", "-c", "-O", "qcow2", raw, folder / "disk.qcow2")
    return folder / "disk.qcow2"


@pytest.fixture(scope="module")
def fitted(folder: Path) -> dict[str, Any]:
    disk = disk_of(folder, packaged_baseline.provide(selection.of_host(), presumed(), Store()))
    (folder / "x.toml").write_text(EXERCISE)
    before = disk.read_bytes()
    ended = run_program(
        folder / "fit", "fit", f"disk:{disk}", "-x", folder / "x.toml", "--machine", "q35", "--memory", "256M",
        "--repeat", "1", "-o", folder / "bundle", "--json", timeout_s=3600,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    assert not ended.left_over and not ended.left_files and disk.read_bytes() == before
    found: dict[str, Any] = msgspec.json.decode(ended.stdout)
    return found


def test_it_is_verified_from_inside_and_outside(fitted: dict[str, Any], folder: Path) -> None:
    assert fitted["verified"] and fitted["proof"] == "exercised with load"
    assert fitted["tailored"]["symbols_prompted"] < fitted["baseline"]["symbols_prompted"] / 3
    bundle = records.load(Bundle, folder / "bundle" / "bundle.json")
    assert bundle.network and bundle.root == "disk.qcow2" and "root=/dev/vda2" in bundle.words


def test_its_bundle_serves_at_a_published_port(fitted: dict[str, Any], folder: Path) -> None:
    with started(folder / "run", "run", "-p", "80", folder / "bundle") as running:
        running.wait_for("tiny: has a network", 300.0, where=running.out)
        told = re.search(r"127\.0\.0\.1:(\d+) leads to port 80/tcp", running.stderr)
        assert told, running.stderr
        assert b"hello from a system" in answered(f"http://127.0.0.1:{told[1]}/")
        running.process.terminate()
        ended = finish(running, 60.0)
    assert ended.code == 0 and not ended.left_over and not ended.left_files
