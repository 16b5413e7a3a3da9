# SPDX-License-Identifier: Apache-2.0
"""Exports to Firecracker and Cloud Hypervisor. Where there is no program of theirs, QEMU starts the exported kernel,
words and disks in a machine with the same kind of devices, on the TAP device of the exported script."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.system.conftest import Fitted, with_image
from tests.system.test_exported_machines import answer, exported, free_port

from vmtailor.drivers.cloud_hypervisor.cloud_hypervisor_monitor import CloudHypervisorMonitor
from vmtailor.drivers.firecracker.firecracker_monitor import FirecrackerMonitor
from vmtailor.drivers.lab.lab_monitor import LabMonitor
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import Orders, StartPlace
from vmtailor.model.machine import Machine, PublishedPort

pytestmark = pytest.mark.system
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a TAP device and rules of nftables are root's to make")
TREE = Path(__file__).parents[2]

#: QEMU's boards with the devices of each target: the board, and the bus of its virtio devices.
BOARDS = {
    "firecracker": ("microvm,acpi=off", "device"),
    "firecracker:acpi": ("microvm,acpi=on,ioapic2=off", "device"),
    "firecracker:pci": ("q35", "pci"),
    "cloud-hypervisor": ("q35", "pci"),
}


def told(out: Path) -> tuple[str, dict[str, str], str]:
    """The words of an exported machine, its disks with QEMU's words for each, and the TAP device; no device where it
    has no network. For a root device there are the words that Firecracker adds."""
    if (out / "vm.json").exists():
        found: dict[str, Any] = json.loads((out / "vm.json").read_text())
        disks = {one["path"]: "readonly=on" for one in found["disks"]}
        return found["payload"]["cmdline"], disks, _tap(found.get("net", []), "tap")
    found = json.loads((out / "config.json").read_text())
    disks = {one["path_on_host"]: f"readonly={'on' if one['is_read_only'] else 'off'}" for one in found["drives"]}
    words = found["boot-source"]["boot_args"]
    for one in found["drives"]:
        if one["is_root_device"]:
            root = f"PARTUUID={one['partuuid']}" if "partuuid" in one else "/dev/vda"
            words += f" root={root} {'ro' if one['is_read_only'] else 'rw'}"
    return words, disks, _tap(found.get("network-interfaces", []), "host_dev_name")


def _tap(interfaces: list[dict[str, str]], field: str) -> str:
    return interfaces[0][field] if interfaces else ""


def qemu(out: Path, target: str, *cpu: str) -> list[str]:
    """QEMU's command for an exported machine, in its folder. A board with ACPI gets words for its devices, too, as
    Firecracker adds them."""
    (board, bus), (words, disks, tap) = BOARDS[target], told(out)
    argv = ["qemu-system-x86_64", "-M", board, *(cpu or ("-accel", "tcg", "-cpu", "max")), "-m", "256", "-nodefaults"]
    argv += ["-no-user-config", "-display", "none", "-serial", "stdio", "-kernel", "vmlinux"]
    devices = []
    for number, (disk, more) in enumerate(disks.items()):
        argv += ["-drive", f"id=d{number},file={disk},format=raw,if=none,{more}"]
        devices.append(f"virtio-blk-{bus},drive=d{number}")
    if tap:
        argv += ["-netdev", f"tap,id=n,ifname={tap},script=no,downscript=no"]
        devices.append(f"virtio-net-{bus},netdev=n" + ",romfile=" * (bus == "pci"))
    for number, device in enumerate(devices):
        argv += ["-device", device + f",bus=virtio-mmio-bus.{number}" * ("acpi=on" in board)]
        words += f" virtio_mmio.device=512@{0xFEB00000 + 512 * number:#x}:{16 + number}" * ("acpi=on" in board)
    return [*argv, "-append", words]


#: Runs in a network of its own: the script makes it, the machine starts, and answers what its arguments name.
_HOST = """
set -eu
ip link set lo up
GROUP=root ./network up
GROUP=root ./network up # again: nothing changes
"$@" </dev/null >console 2>&1 &
machine=$!
for place in $PLACES; do
    i=0
    until curl -sf -m 2 "http://$place/"; do i=$((i + 1)); [ $i -lt 60 ] || { cat console; exit 1; }; sleep 1; done
done
kill $machine
wait $machine || true
./network down
nft list ruleset
ip -brief link show type tun
"""


def served(out: Path, target: str, places: str) -> None:
    """Start an exported server in a network of its own, and ask it at these places of the host."""
    argv = ["unshare", "--net", "--mount-proc", "--pid", "--fork", "sh", "-c", _HOST, "sh", *qemu(out, target)]
    env = {**os.environ, "PLACES": places}
    done = subprocess.run(argv, cwd=out, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.lower().count("<html") == len(places.split())
    assert done.stdout.endswith("</html>\n"), "something of the network is left"


@ROOT
def test_a_machine_on_the_scripts_tap_device_answers_at_its_published_ports(lighttpd: Fitted, tmp_path: Path) -> None:
    """At a port of loopback, at one of every address, from inside and by the host's own, and at its own address."""
    out = exported(lighttpd.bundle, tmp_path, "--to", "firecracker", "-p", "8081:80", "-p", "0.0.0.0:8082:80")
    served(out, "firecracker", "127.0.0.1:8081 127.0.0.1:8082 172.16.0.1:8082 172.16.0.2:80")


@ROOT
@pytest.mark.slow
@pytest.mark.parametrize("target", ["firecracker:pci", "cloud-hypervisor"])
def test_a_server_answers_where_acpi_names_its_devices(target: str, exportable: Path, tmp_path: Path) -> None:
    out = exported(exportable, tmp_path, "--to", target, "-p", "8081:80")
    served(out, target, "127.0.0.1:8081")


@pytest.mark.slow
def test_cloud_hypervisors_machine_ends_by_acpi(exportable: Path, tmp_path: Path) -> None:
    """It would start again after a reset."""
    hello = with_image(exportable, "hello", tmp_path, network=False)
    out = exported(hello, tmp_path, "--to", "cloud-hypervisor")
    argv = qemu(out, "cloud-hypervisor")
    assert "-no-reboot" not in argv
    done = subprocess.run(argv, cwd=out, capture_output=True, timeout=120, check=False, stdin=subprocess.DEVNULL)
    assert done.stdout.count(b"Hello from a machine made to measure.") == 1 and done.returncode == 0
    assert b"the container ended with status 3" in done.stdout


#: Programs of monitors that no package has: by what variable an export's script takes one.
PROGRAMS = {"firecracker": "FIRECRACKER", "cloud-hypervisor": "CLOUD_HYPERVISOR"}
#: Starts an export where the lab has its files, which is a disk that is only read and holds no programs.
_STARTS = (
    "#!/bin/sh\ncp /mnt/monitor /run/monitor && chmod 755 /run/monitor && {variable}=/run/monitor exec sh /mnt/start\n"
)


class _ExportedFolder:
    """Starts an exported folder as it is, with nothing of a machine but its network."""

    folder: Path
    monitor: Path

    def _orders(self, machine: Machine, kernel: str, place: StartPlace) -> Orders:
        files = [one for one in self.folder.iterdir() if one.name != "network"]  # the lab makes its own
        found = {one.name: one.read_bytes() for one in files} | {"monitor": self.monitor.read_bytes()}
        return Orders(("start",), found)


class _ToFirecracker(_ExportedFolder, FirecrackerMonitor):
    pass


class _ToCloudHypervisor(_ExportedFolder, CloudHypervisorMonitor):
    pass


def stand_in(out: Path, target: str, folder: Path) -> Path:
    """A script in place of a monitor, which starts the exported machine in QEMU under KVM."""
    script = folder / "monitor"
    script.write_text(f"#!/bin/sh\nexec {shlex.join(qemu(out, target, '-accel', 'kvm', '-cpu', 'host'))}\n")
    return script


@pytest.mark.slow
@pytest.mark.parametrize("target", ["firecracker", "firecracker:acpi", "firecracker:pci", "cloud-hypervisor"])
def test_the_script_starts_the_machine_under_kvm(
    target: str, lighttpd: Fitted, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Asked from this host, through the lab's network. Where no program is named, the lab's QEMU stands in for it."""
    name = target.partition(":")[0]
    program = os.environ.get(f"VMTAILOR_{PROGRAMS[name]}", "")
    subprocess.run([sys.executable, TREE / "tools" / "lab.py"], check=True, stdout=subprocess.PIPE, timeout=1500)
    bundle = lighttpd.bundle if target == "firecracker" else request.getfixturevalue("exportable")
    out = exported(bundle, tmp_path, "--to", target, "--address", "10.0.2.15/24,10.0.2.2")
    script, port = tmp_path / "script", free_port()
    script.write_text(_STARTS.format(variable=PROGRAMS[name]))
    kind = _ToFirecracker if name == "firecracker" else _ToCloudHypervisor
    inner = kind(monitors.named(name).row)
    inner.folder, inner.monitor = out, Path(program) if program else stand_in(out, target, tmp_path)
    machine = Machine(
        board="microvm" if name == "firecracker" else "q35", acpi=name != "firecracker", memory_bytes=256 << 20,
        kernel=str(out / "vmlinux"), network=True, ports=(PublishedPort("127.0.0.1", port, 80),), monitor=f"lab/{name}",
    )  # fmt: skip
    with LabMonitor(inner, script).start(machine) as running:
        assert b"<html" in answer(f"http://127.0.0.1:{port}/", 300.0).lower()
        running.serial.wait_readable(1.0)
