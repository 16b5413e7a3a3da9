# SPDX-License-Identifier: Apache-2.0
"""Exports to Firecracker and Cloud Hypervisor: what their files say of a machine, and what is refused."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.bundle_data import exportable

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.targets.target import ExportWishes
from vmtailor.model.machine import PublishedPort
from vmtailor.pipeline import bundle_export
from vmtailor.pipeline.bundle_export import Exported

pytestmark = pytest.mark.usefixtures("own_cache")

MMIO = ("VIRTIO_MMIO", "VIRTIO_MMIO_CMDLINE_DEVICES", "X86_MPPARSE")
PCI = ("ACPI", "PCI", "PCI_MSI", "VIRTIO_PCI", "VIRTIO_MMIO", "SERIAL_8250_PNP")
WORDS = ("root=/dev/vda", "ro", "console=ttyS0", "quiet", "reboot=t")
PORT = PublishedPort("127.0.0.1", 8080, 80)

#: The objects of Firecracker's configuration file that an export may write, after its API's description: field → its
#: type, whether it is required.
FIRECRACKER: Mapping[str, Mapping[str, tuple[type, bool]]] = {
    "boot-source": {"kernel_image_path": (str, True), "boot_args": (str, False), "initrd_path": (str, False)},
    "machine-config": {"vcpu_count": (int, True), "mem_size_mib": (int, True), "smt": (bool, False)},
    "drives": {
        "drive_id": (str, True), "is_root_device": (bool, True), "path_on_host": (str, True),
        "is_read_only": (bool, True), "partuuid": (str, False),
    },
    "network-interfaces": {"iface_id": (str, True), "host_dev_name": (str, True), "guest_mac": (str, False)},
    "entropy": {},
}  # fmt: skip
#: Those of Cloud Hypervisor's vm.create, likewise.
CLOUD_HYPERVISOR: Mapping[str, Mapping[str, tuple[type, bool]]] = {
    "payload": {"kernel": (str, False), "cmdline": (str, False)},
    "cpus": {"boot_vcpus": (int, True), "max_vcpus": (int, True)},
    "memory": {"size": (int, True)},
    "disks": {"path": (str, False), "readonly": (bool, False)},
    "net": {"tap": (str, False), "mac": (str, False), "ip": (str, False), "mask": (str, False)},
    "serial": {"mode": (str, True)},
    "console": {"mode": (str, True)},
}


def follow(document: Mapping[str, Any], rules: Mapping[str, Mapping[str, tuple[type, bool]]]) -> None:
    """Fail unless a document has known fields alone, of their types, and all that are required."""
    for name, content in document.items():
        fields = rules[name]
        for one in content if isinstance(content, list) else [content]:
            assert set(one) <= set(fields)
            assert {field for field, (_, required) in fields.items() if required} <= set(one)
            assert all(type(value) is fields[field][0] for field, value in one.items())


def export(
    tmp_path: Path, target: str, symbols: tuple[str, ...], wishes: ExportWishes | None = None, **other: Any
) -> Exported:
    values: dict[str, Any] = {"words": WORDS, "name": "web"} | other
    made = exportable(tmp_path / "bundle", *symbols, **values)
    return bundle_export.export(made, target, tmp_path / "out", wishes or ExportWishes(), Store())


def argv(out: Path, variable: str, *more: str) -> list[str]:
    """The arguments that an export's script gives the program that the variable names."""
    program = out.parent / "program"
    program.write_text('#!/bin/sh\nprintf "%s\\0" "$(pwd)" "$@"\ncat\n')
    program.chmod(0o755)
    env = {**os.environ, variable: str(program)}
    done = subprocess.run([out / "start", *more], env=env, stdout=subprocess.PIPE, check=True, cwd="/", timeout=20)
    here, *found, rest = done.stdout.decode().split("\0")
    assert Path(here) == out and rest == ""
    return found


@pytest.mark.parametrize(
    ("target", "symbols", "option"),
    [("firecracker", MMIO, []), ("firecracker:acpi", PCI, []), ("firecracker:pci", PCI, ["--enable-pci"])],
)
def test_firecracker_gets_a_file_of_its_own_fields(
    tmp_path: Path, target: str, symbols: tuple[str, ...], option: list[str]
) -> None:
    done = export(tmp_path, target, symbols, cpus=2)
    told = json.loads((done.folder / "config.json").read_text())
    follow(told, FIRECRACKER)
    assert told["boot-source"] == {
        "kernel_image_path": "vmlinux",
        "boot_args": f"{' '.join(WORDS)} VT_CONSOLE=plain VT_NET=172.16.0.2/30,172.16.0.1",
    }
    assert told["machine-config"] == {"vcpu_count": 2, "mem_size_mib": 64}
    assert [(one["path_on_host"], one["is_read_only"]) for one in told["drives"]] == [("root.erofs", True)]
    assert told["network-interfaces"][0]["host_dev_name"] == "tap0"
    assert {"vmlinux", "root.erofs", "network", "start", "web.service", "README.md"} <= set(done.files)
    told_by_script = ["--no-api", "--config-file", "config.json", "--level", "Error", *option]
    assert argv(done.folder, "FIRECRACKER", "--id", "x y") == [*told_by_script, "--id", "x y"]


def test_firecracker_for_arm64_has_another_kernel_and_another_line(tmp_path: Path) -> None:
    other: dict[str, Any] = {
        "architecture": "arm64",
        "machine": "virt",
        "kernel": "Image",
        "words": ("console=ttyAMA0", "quiet"),
    }
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "Image").write_text("kernel")
    symbols = ("VIRTIO_MMIO", "SERIAL_8250", "SERIAL_8250_CONSOLE", "SERIAL_OF_PLATFORM")
    done = export(tmp_path, "firecracker", symbols, **other)
    told = json.loads((done.folder / "config.json").read_text())["boot-source"]
    assert told["kernel_image_path"] == "Image" and told["boot_args"].startswith("console=ttyS0 quiet VT_CONSOLE=plain")
    with pytest.raises(UserInputError, match="no arm64 machine to Firecracker"):
        export(tmp_path, "firecracker:acpi", PCI, **other)
    with pytest.raises(UserInputError, match="lacks SERIAL_8250"):
        export(tmp_path, "firecracker", MMIO, **other)


def test_a_kernel_that_reads_acpi_is_told_to_leave_it_where_words_name_devices(tmp_path: Path) -> None:
    done = export(tmp_path, "firecracker:mmio", (*MMIO, *PCI))
    told = json.loads((done.folder / "config.json").read_text())
    assert "acpi=off" in told["boot-source"]["boot_args"].split()


def test_cloud_hypervisor_gets_options_and_the_same_for_its_api(tmp_path: Path) -> None:
    done = export(tmp_path, "cloud-hypervisor", PCI, cpus=2)
    told = json.loads((done.folder / "vm.json").read_text())
    follow(told, CLOUD_HYPERVISOR)
    words = " ".join((*WORDS[:-1], "VT_CONSOLE=plain", "VT_NET=172.16.0.2/30,172.16.0.1", "VT_END=off"))
    assert told["payload"] == {"kernel": "vmlinux", "cmdline": words}
    assert argv(done.folder, "CLOUD_HYPERVISOR", "--api-socket", "a b") == [
        "--cpus", "boot=2", "--memory", "size=65536K", "--kernel", "vmlinux", "--cmdline", words, "--console", "off",
        "--serial", "tty", "--disk", "path=root.erofs,readonly=on",
        "--net", "tap=tap0,mac=52:54:00:12:34:56,ip=172.16.0.1,mask=255.255.255.252", "--api-socket", "a b",
    ]  # fmt: skip
    assert told["memory"] == {"size": 64 << 20} and told["disks"] == [{"path": "root.erofs", "readonly": True}]
    assert told["net"][0] | {"mac": ""} == {"tap": "tap0", "mac": "", "ip": "172.16.0.1", "mask": "255.255.255.252"}


@pytest.mark.parametrize("target", ["firecracker:acpi", "firecracker:pci", "cloud-hypervisor"])
def test_a_kernel_that_lacks_something_is_refused_with_the_command_that_keeps_it(tmp_path: Path, target: str) -> None:
    with pytest.raises(UserInputError, match=r"it lacks .*PCI") as error:
        export(tmp_path, target, MMIO)
    assert f"--for {target} " in error.value.hint


def test_what_the_monitor_cannot_give_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="Firecracker cannot start this bundle: it has no 64 CPUs"):
        export(tmp_path, "firecracker", MMIO, ExportWishes(cpus=64))


@pytest.mark.parametrize("target", ["firecracker", "cloud-hypervisor"])
def test_a_machine_without_a_network_has_none(tmp_path: Path, target: str) -> None:
    done = export(tmp_path, target, (*MMIO, *PCI), network=False)
    told = json.loads((done.folder / ("vm.json" if target == "cloud-hypervisor" else "config.json")).read_text())
    assert not {"net", "network-interfaces"} & set(told) and "network" not in done.files
    assert (
        "VT_NET" not in str(told) and "network" not in (done.folder / "web.service").read_text().split("[Service]")[1]
    )
    assert done.guide.first == "./start"


@pytest.mark.parametrize("target", ["firecracker", "cloud-hypervisor"])
def test_a_disk_with_the_users_variables_is_its_owners_alone(tmp_path: Path, target: str) -> None:
    done = export(tmp_path, target, (*MMIO, *PCI), ExportWishes(env=("PASSWORD=x",)))
    unit = (done.folder / "web.service").read_text()
    assert (done.folder / "run.img").stat().st_mode & 0o777 == 0o600
    assert "DynamicUser" not in unit and "CapabilityBoundingSet=" in unit
    assert "DynamicUser=yes" in (export(tmp_path, target, (*MMIO, *PCI)).folder / "web.service").read_text()


@pytest.mark.parametrize("tap", ["", "a b", "../x", "tap0;reboot", "a" * 16, "-x", 'a"', "tap.0"])
def test_what_is_no_name_of_a_tap_device_is_refused(tmp_path: Path, tap: str) -> None:
    with pytest.raises(UserInputError, match="is no name of a TAP device"):
        export(tmp_path, "firecracker", MMIO, ExportWishes(tap=tap))


@pytest.mark.parametrize(
    "address", ["172.16.0.2/30,172.16.0.2", "172.16.0.2/30,10.0.0.1", "300.1.1.1/24,300.1.1.2", "1.2.3.4/99,1.2.3.5"]
)
def test_what_is_no_address_of_a_link_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(UserInputError, match="is no address of a machine"):
        export(tmp_path, "firecracker", MMIO, ExportWishes(address=address))


@pytest.mark.parametrize("port", [PublishedPort("::1", 8080, 80), PublishedPort("127.0.0.1", 0, 80)])
def test_a_port_that_cannot_be_led_is_refused(tmp_path: Path, port: PublishedPort) -> None:
    with pytest.raises(UserInputError, match="cannot be led to a TAP device"):
        export(tmp_path, "firecracker", MMIO, ExportWishes(ports=(port,)))


def test_only_ports_that_others_reach_make_the_host_forward(tmp_path: Path) -> None:
    own = (export(tmp_path, "firecracker", MMIO, ExportWishes(ports=(PORT,))).folder / "network").read_text()
    assert "ip daddr 127.0.0.1 tcp dport 8080 dnat to 172.16.0.2:80" in own and "ip_forward" not in own
    every = ExportWishes(ports=(PublishedPort("0.0.0.0", 53, 53, "udp"),), tap="tap_1", address="10.1.0.9/24,10.1.0.1")
    others = (export(tmp_path, "firecracker", MMIO, every).folder / "network").read_text()
    assert others.count("fib daddr type local udp dport 53 dnat to 10.1.0.9:53") == 2 and "ip_forward" in others
    assert 'iifname "tap_1" ip daddr 127.0.0.0/8 drop' in others and "address replace 10.1.0.1/24 dev tap_1" in others


def test_a_way_out_to_the_world_is_asked_for(tmp_path: Path) -> None:
    ports = ExportWishes(ports=(PORT,))
    shut = (export(tmp_path, "firecracker", MMIO, ports).folder / "network").read_text()
    done = export(tmp_path, "firecracker", MMIO, replace(ports, outbound=True))
    opened = (done.folder / "network").read_text()
    rule, forward = "        ip saddr 172.16.0.2 masquerade\n", "    echo 1 >/proc/sys/net/ipv4/ip_forward\n"
    assert opened.replace(rule, "").replace(forward, "") == shut != opened and rule in opened and forward in opened


HOSTILE = ("'\"`touch${IFS}owned`", "$(touch\\towned)", "a,b]]>%n%s", "--api-socket=/etc/x", "x='", "&&reboot;#")


@pytest.mark.attack
@pytest.mark.parametrize("target", ["firecracker", "cloud-hypervisor"])
def test_words_names_and_references_of_a_hostile_bundle_stay_data(tmp_path: Path, target: str) -> None:
    wishes = ExportWishes(env=("A=$(touch owned)\n'\"",))
    done = export(
        tmp_path, target, (*MMIO, *PCI), wishes, words=(*WORDS, *HOSTILE), name="../../'x'; reboot\n#",
        image_reference="docker://x`touch owned`\n```\n$(reboot)",
    )  # fmt: skip
    assert all(Path(name).name == name and " " not in name for name in done.files)
    if target == "firecracker":
        told = json.loads((done.folder / "config.json").read_text())
        follow(told, FIRECRACKER)
        line = told["boot-source"]["boot_args"]
        paths = [told["boot-source"]["kernel_image_path"], *(one["path_on_host"] for one in told["drives"])]
    else:
        told = json.loads((done.folder / "vm.json").read_text())
        follow(told, CLOUD_HYPERVISOR)
        line = told["payload"]["cmdline"]
        paths = [told["payload"]["kernel"], *(one["path"] for one in told["disks"])]
        given = argv(done.folder, "CLOUD_HYPERVISOR")
        assert given[given.index("--cmdline") + 1] == line and sum(one.startswith("--") for one in given) == 8
    assert paths == ["vmlinux", "root.erofs", "run.img"]
    assert set(HOSTILE) <= set(line.split())
    argv(done.folder, "FIRECRACKER" if target == "firecracker" else "CLOUD_HYPERVISOR")
    for script in ("start", "network"):
        subprocess.run(["sh", "-n", done.folder / script], check=True, timeout=20)
    assert not list(tmp_path.rglob("owned")) and not Path("/owned").exists()
    readme = (done.folder / "README.md").read_text()
    assert "\n```\n$(reboot)" not in readme and shlex.split(done.guide.second)[0] == "curl"
