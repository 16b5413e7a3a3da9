# SPDX-License-Identifier: Apache-2.0
"""The domain of an export to libvirt, validated against libvirt's own schema, and its script run by a shell."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from tests.fakes.bundle_data import bundle, exportable

from vmtailor.base.cache.store import Store
from vmtailor.base.files import records
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.targets import libvirt_target, targets
from vmtailor.drivers.targets.libvirt_target import LibvirtTarget
from vmtailor.drivers.targets.target import Export, ExportFolder, ExportWishes
from vmtailor.model.bundle import SYSTEM, Bundle
from vmtailor.model.machine import Disk, DiskFormat, DiskMode, Machine, PublishedPort
from vmtailor.pipeline import bundle_export

pytestmark = pytest.mark.contract

SAVED = Path(__file__).parents[1] / "data" / "saved" / "container" / "bundle.json"
PORTS = (PublishedPort("127.0.0.1", 8080, 80), PublishedPort("0.0.0.0", 5353, 53, "udp"))
#: Words of somebody who means no good.
HOSTILE = 'quiet </cmdline><kernel>/etc/shadow</kernel> ]]> & " \' <!-- ${HOME} $(id) `id` %s , type="kvm" | \\'


def export(folder: Path, variant: str = "session", words: tuple[str, ...] = ("ro", "quiet"), **more: Any) -> Export:
    """A machine of files in a folder."""
    for name in ("vmlinux", "root.erofs"):
        (folder / name).write_bytes(name.encode())
    disks = (Disk(str(folder / "root.erofs")),)
    machine = Machine(
        board="microvm", memory_bytes=256 << 20, kernel=str(folder / "vmlinux"), words=words, disks=disks,
        network=True, ports=PORTS, architecture="x86_64",
    )  # fmt: skip
    return Export(
        bundle=replace(records.load(Bundle, SAVED), architecture="x86_64"), files=cast(Any, None),
        machine=replace(machine, **more), variant=variant, name="web", wishes=ExportWishes(), config={},
        address="10.0.2.15/24,10.0.2.2",
    )  # fmt: skip


def validated(content: bytes, folder: Path) -> ElementTree.Element:
    """The domain that libvirt's schema takes."""
    file = folder / "domain.xml"
    file.write_bytes(content)
    done = subprocess.run(
        ["virt-xml-validate", file, "domain"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return ElementTree.fromstring(content)


def domain(made: Export) -> bytes:
    machine = replace(
        made.machine,
        kernel="vmlinux",
        disks=tuple(replace(one, path=Path(one.path).name) for one in made.machine.disks),
    )
    return libvirt_target.domain(made, machine, "/var/lib/libvirt/images/web")


@pytest.mark.parametrize("variant", targets.chosen("libvirt").row.variants)
def test_libvirts_schema_takes_each_variant(variant: str, tmp_path: Path) -> None:
    top = validated(domain(export(tmp_path, variant)), tmp_path)
    assert top.findtext("os/kernel") == "/var/lib/libvirt/images/web/vmlinux"
    assert top.findtext("os/cmdline") == "ro quiet"
    assert top.find("devices/disk/readonly") is not None
    # Of its own network device: slirp's ports are words of QEMU's, and passt's are libvirt's.
    assert (b"hostfwd=tcp:127.0.0.1:8080-:80,hostfwd=udp:0.0.0.0:5353-:53" in domain(export(tmp_path, variant))) == (
        variant == "session"
    )
    assert len(top.findall("devices/interface")) == (variant != "session")
    assert len(top.findall("devices/interface/portForward")) == 2 * (variant == "passt")


@pytest.mark.attack
def test_hostile_words_stay_words(tmp_path: Path) -> None:
    top = validated(domain(export(tmp_path, words=tuple(HOSTILE.split(" ")))), tmp_path)
    assert top.findtext("os/cmdline") == HOSTILE
    assert [one.text for one in top.findall("os/kernel")] == ["/var/lib/libvirt/images/web/vmlinux"]
    for bad in ("a\nb", "a\x00b", "a\x1bb", "a\uffffb"):
        refused = LibvirtTarget(targets.chosen("libvirt").row).refusal(export(tmp_path, words=(bad,)))
        assert refused is not None and "XML cannot hold" in refused.message


def test_the_disk_of_a_system_is_the_exports_own_and_written(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path / "disk.qcow2"), DiskFormat.QCOW2, DiskMode.OVERLAID)
    top = validated(domain(export(tmp_path, disks=(disk,))), tmp_path)
    driver = top.find("devices/disk/driver")
    assert driver is not None and driver.get("type") == "qcow2"
    assert top.find("devices/disk/readonly") is None


def test_a_bundle_of_a_system_is_exported_with_its_disk(tmp_path: Path) -> None:
    row = targets.chosen("libvirt").row
    made = exportable(tmp_path / "bundle", *(name for need in row.need for name in need.symbols))
    (made / SYSTEM).write_text("{}")
    (made / "disk.qcow2").write_bytes(b"disk")
    words = ("root=/dev/vda1", "console=ttyS0")
    seal(made, bundle(image=None, root="disk.qcow2", architecture="x86_64", words=words))
    ports = (PublishedPort("127.0.0.1", 2222, 22),)
    done = bundle_export.export(made, "libvirt", tmp_path / "out", ExportWishes(ports=ports), Store(tmp_path / "cache"))
    assert set(done.files) == {
        "README.md", "define", "disk.qcow2", "kvm-probe.bin", "made-up.xml", "vmlinux",
    }  # fmt: skip
    top = validated((done.folder / "made-up.xml").read_bytes(), tmp_path)
    assert top.findtext("os/cmdline") == " ".join(words) and top.find("devices/disk/readonly") is None
    assert "hostfwd=tcp:127.0.0.1:2222-:22" in (done.folder / "made-up.xml").read_text()


def test_a_machine_has_its_name_and_addresses_of_its_own_and_keeps_them(tmp_path: Path) -> None:
    first, again = domain(export(tmp_path)), domain(export(tmp_path))
    other = domain(replace(export(tmp_path), name="web2"))
    assert first == again
    for field in ("uuid", "name"):
        assert ElementTree.fromstring(first).findtext(field) != ElementTree.fromstring(other).findtext(field)


@pytest.mark.parametrize(("folder", "code"), [("plain-1.0_x+y", 0), ("with space", 1), ("a|b", 1), ("a&b", 1)])
def test_the_script_defines_the_files_of_its_folder(folder: str, code: int, tmp_path: Path) -> None:
    """With a virsh that shows what it is given. Words that look like the script's own marks stay as they are, or name
    its folder."""
    (tmp_path / "from").mkdir()
    out = tmp_path / folder
    out.mkdir()
    LibvirtTarget(targets.chosen("libvirt").row).write(
        export(tmp_path / "from", words=tuple(HOSTILE.split(" "))), ExportFolder(out)
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "virsh").write_text('#!/bin/sh\nfor last; do :; done\necho "$@" >&2\ncat "$last"\n')
    (tmp_path / "bin" / "virsh").chmod(0o755)
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "TYPE": "qemu"}
    done = subprocess.run([out / "define"], cwd="/", env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    if code == 0:
        assert done.stderr == b"--connect qemu:///session define /dev/stdin\n"
        top = validated(done.stdout, tmp_path)
        assert top.get("type") == "qemu" and top.findtext("os/cmdline") == HOSTILE
        assert top.findtext("os/kernel") == f"{out}/vmlinux"
    else:
        assert b"letters, digits" in done.stderr and done.stdout == b""
