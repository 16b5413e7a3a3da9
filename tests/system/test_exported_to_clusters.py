# SPDX-License-Identifier: Apache-2.0
"""Images of exports, started as other projects start them, but by emulation: on their boards, with their words."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fakes import urunc_rules
from tests.system.conftest import Fitted, with_image
from tests.system.test_exported_machines import answer, exported, free_port, started

pytestmark = pytest.mark.system

#: An emulated machine with a serial line and nothing else.
QEMU = ("qemu-system-x86_64", "-accel", "tcg", "-icount", "shift=auto", "-cpu", "max", "-m", "256M", "-display", "none",
        "-vga", "none", "-serial", "stdio", "-nodefaults")  # fmt: skip
#: Variables that engines add to those of an image.
ENGINE = ("PATH=/usr/local/sbin:/usr/bin", "HOSTNAME=0123456789ab", "container=urunc")
#: Places and interrupts of two devices on the smallest board, by which Firecracker's machines are told of theirs.
MMIO = ("virtio_mmio.device=512@0xfeb00e00:12", "virtio_mmio.device=512@0xfeb00c00:11")
HELLO = b"Hello from a machine made to measure.\r\nvmtailor: the container ended with status 3\r\n"


@dataclass
class Unpacked:
    """An image of an export: its configuration, and its files below `root`."""

    root: Path
    env: list[str]
    entrypoint: list[str]
    annotations: dict[str, str]

    def file(self, path: str) -> str:
        return str(self.root / path.lstrip("/"))


def unpacked(out: Path) -> Unpacked:
    """The layout `image` of an export, unpacked beside it."""

    def blob(descriptor: dict[str, Any]) -> Path:
        return out / "image" / "blobs" / str(descriptor["digest"]).replace(":", "/")

    manifest = json.loads(blob(json.loads((out / "image" / "index.json").read_bytes())["manifests"][0]).read_bytes())
    config = json.loads(blob(manifest["config"]).read_bytes())["config"]
    with tarfile.open(blob(manifest["layers"][0])) as layer:
        layer.extractall(out / "unpacked", filter="data")
    return Unpacked(out / "unpacked", config["Env"], config["Entrypoint"], manifest.get("annotations", {}))


def of_urunc(out: Path, *more: str, address: bool = False) -> tuple[str, ...]:
    """The command by which urunc starts an export's machine, emulated, with the annotations as they are."""
    image = unpacked(out)
    told = {name.removeprefix(urunc_rules.PREFIX): value for name, value in image.annotations.items()}
    net = ("10.0.2.15", "10.0.2.2", "255.255.255.0") if address else ()
    mmio = told["hypervisor"] == "firecracker"
    line = urunc_rules.command_line(image.entrypoint, [*ENGINE, *image.env, *(MMIO if mmio else ())], *net)
    board = ("-machine", "microvm,acpi=off,auto-kernel-cmdline=off") if mmio else ("-machine", "pc")
    disk = ("-device", "virtio-blk-device,bus=virtio-mmio-bus.7,drive=rootfs") if mmio else (
        "-device", "virtio-blk-pci,serial=rootfs,drive=rootfs")  # fmt: skip
    drive = f"format=raw,if=none,id=rootfs,file={image.file(told['block'])}"
    kernel = ("-kernel", image.file(told["binary"]), "-append", line)
    return (*QEMU, *board, "-no-reboot", *kernel, *disk, "-drive", drive, *more)


def of_kubevirt(out: Path, *more: str) -> tuple[str, ...]:
    """The machine of an export's manifest, emulated. A reset would start it again."""
    image = unpacked(out)
    spec = next(yaml.safe_load_all((out / "vmi.yaml").read_text()))["spec"]
    boot = spec["domain"]["firmware"]["kernelBoot"]
    words: list[str] = []
    for number, volume in enumerate(spec["volumes"]):
        path = image.file(volume["containerDisk"]["path"])
        words += ["-device", f"pcie-root-port,id=port{number},chassis={number + 1}"]
        words += ["-drive", f"if=none,id=disk{number},format=raw,file={path}"]
        words += ["-device", f"virtio-blk-pci,bus=port{number},drive=disk{number}"]
    kernel = ("-kernel", image.file(boot["container"]["kernelPath"]), "-append", boot["kernelArgs"])
    return (*QEMU, "-machine", spec["domain"]["machine"]["type"], *kernel, *words, *more)


def said(argv: tuple[str, ...], out: Path) -> bytes:
    """What a machine says until it ends by itself, without the kernel's own last words."""
    done = subprocess.run(argv, cwd=out, stdin=subprocess.DEVNULL, capture_output=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return re.sub(rb"reboot: (Restarting system|Power down)\r\n\Z", b"", done.stdout)


def test_uruncs_words_start_the_container_as_in_firecracker(hello: Path, tmp_path: Path) -> None:
    out = exported(hello, tmp_path, "--to", "urunc:firecracker")
    assert said(of_urunc(out), out) == HELLO


def test_a_machine_takes_its_address_from_uruncs_word(lighttpd: Fitted, tmp_path: Path) -> None:
    port = free_port()
    out = exported(lighttpd.bundle, tmp_path, "--to", "urunc:firecracker")
    net = ("-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-:80", "-device",
           "virtio-net-device,bus=virtio-mmio-bus.6,netdev=net")  # fmt: skip
    with started(*of_urunc(out, *net, address=True), cwd=out):
        assert b"<html" in answer(f"http://127.0.0.1:{port}/").lower()


@pytest.mark.slow
def test_urunc_starts_the_machine_on_qemus_usual_board(exportable: Path, tmp_path: Path) -> None:
    port = free_port()
    out = exported(exportable, tmp_path, "--to", "urunc")
    net = ("-net", "nic,model=virtio", "-net", f"user,hostfwd=tcp:127.0.0.1:{port}-:80")
    with started(*of_urunc(out, *net, address=True), cwd=out):
        assert b"<html" in answer(f"http://127.0.0.1:{port}/").lower()


@pytest.mark.slow
def test_a_machine_of_urunc_ends_with_its_container(exportable: Path, tmp_path: Path) -> None:
    bundle = with_image(exportable, "hello", tmp_path, network=False)
    out = exported(bundle, tmp_path, "--to", "urunc")
    assert said(of_urunc(out), out) == HELLO


@pytest.mark.slow
def test_kubevirts_manifest_is_a_machine_that_gets_its_address(exportable: Path, tmp_path: Path) -> None:
    port = free_port()
    out = exported(exportable, tmp_path, "--to", "kubevirt", "-e", "A=1")
    net = ("-device", "pcie-root-port,id=net,chassis=9", "-netdev", f"user,id=n,hostfwd=tcp:127.0.0.1:{port}-:80",
           "-device", "virtio-net-pci,bus=net,netdev=n")  # fmt: skip
    with started(*of_kubevirt(out, *net), cwd=out):
        assert b"<html" in answer(f"http://127.0.0.1:{port}/").lower()


@pytest.mark.slow
def test_a_machine_of_kubevirt_powers_off_with_its_container(exportable: Path, tmp_path: Path) -> None:
    bundle = with_image(exportable, "hello", tmp_path, network=False)
    out = exported(bundle, tmp_path, "--to", "kubevirt")
    assert said(of_kubevirt(out), out) == HELLO
