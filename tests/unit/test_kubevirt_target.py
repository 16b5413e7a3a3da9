# SPDX-License-Identifier: Apache-2.0
"""Manifests for KubeVirt: what is written of a machine, and that nothing of a bundle becomes a key of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fakes.exports import exported

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.targets.target import ExportWishes
from vmtailor.pipeline.bundle_export import Exported

IMAGE = "ghcr.io/x/web:1"


def instance_of(done: Exported) -> dict[str, Any]:
    found: dict[str, Any] = next(yaml.safe_load_all((done.folder / "vmi.yaml").read_text()))
    return found


def test_an_instance_starts_the_kernel_of_the_image_with_its_disk(tmp_path: Path) -> None:
    wishes = ExportWishes(name="web", image=IMAGE, memory_bytes=48 << 20, cpus=2)
    found = instance_of(exported(tmp_path, "kubevirt", wishes))
    assert found["kind"] == "VirtualMachineInstance" and found["metadata"]["name"] == "web"
    domain = found["spec"]["domain"]
    assert domain["firmware"]["kernelBoot"] == {
        "container": {"image": IMAGE, "kernelPath": "/boot/vmlinux"},
        "kernelArgs": "root=/dev/vda quiet VT_CONSOLE=plain VT_NET=dhcp VT_END=off",
    }
    assert domain["memory"] == {"guest": "48Mi"} and domain["cpu"] == {"cores": 2}
    assert domain["devices"]["interfaces"] == [
        {"name": "default", "model": "virtio", "masquerade": {},
         "ports": [{"name": "tcp-80", "port": 80, "protocol": "TCP"}]},
    ]  # fmt: skip
    assert found["spec"]["volumes"] == [{"name": "root", "containerDisk": {"image": IMAGE, "path": "/disk/root.img"}}]


def test_a_machine_is_the_same_instance_with_a_strategy(tmp_path: Path) -> None:
    done = exported(tmp_path, "kubevirt")
    machine, service = yaml.safe_load_all((done.folder / "vm.yaml").read_text())
    assert machine["spec"]["template"]["spec"] == instance_of(done)["spec"]
    assert machine["spec"]["runStrategy"] == "RerunOnFailure"
    assert "&id" not in (done.folder / "vm.yaml").read_text()
    assert service["spec"]["selector"] == machine["spec"]["template"]["metadata"]["labels"]


def test_variables_are_on_a_second_disk_of_the_image(tmp_path: Path) -> None:
    done = exported(tmp_path, "kubevirt", ExportWishes(env=("SECRET=x",)))
    found = instance_of(done)["spec"]
    assert [one["containerDisk"]["path"] for one in found["volumes"]] == ["/disk/root.img", "/disk/run.img"]
    assert [one["name"] for one in found["domain"]["devices"]["disks"]] == ["root", "run"]
    assert "VT_RUN=1" in found["domain"]["firmware"]["kernelBoot"]["kernelArgs"].split()
    assert "whoever can pull it can read them" in "\n".join(done.guide.notes)
    assert b"SECRET" not in b"".join(
        one.read_bytes() for one in done.folder.iterdir() if one.is_file() and one.name != "image"
    )


def test_a_machine_without_a_network_has_no_interface_and_no_service(tmp_path: Path) -> None:
    done = exported(tmp_path, "kubevirt", network=False)
    (found,) = yaml.safe_load_all((done.folder / "vmi.yaml").read_text())
    devices = found["spec"]["domain"]["devices"]
    assert devices["autoattachPodInterface"] is False and "interfaces" not in devices
    assert "networks" not in found["spec"]


def test_an_address_with_a_resolver_replaces_the_usual_one(tmp_path: Path) -> None:
    done = exported(tmp_path, "kubevirt", ExportWishes(address="10.0.2.2/24,10.0.2.1,10.96.0.10"))
    words = instance_of(done)["spec"]["domain"]["firmware"]["kernelBoot"]["kernelArgs"].split()
    assert "VT_NET=10.0.2.2/24,10.0.2.1,10.96.0.10" in words


def test_hostile_values_stay_values(tmp_path: Path) -> None:
    hostile = """a: - {x: y} &a *a !!python/object/apply:os.system ' " #x | > %s ${x} ]]> no 1e3"""
    words = ("root=/dev/vda", *hostile.split())
    done = exported(
        tmp_path, "kubevirt", words=words, image_reference="oci:x`$(y)`\n# injected", name="yes: [no]\n---\nkind: Pod"
    )
    documents = list(yaml.safe_load_all((done.folder / "vmi.yaml").read_text()))
    assert [one["kind"] for one in documents] == ["VirtualMachineInstance", "Service"]
    args = documents[0]["spec"]["domain"]["firmware"]["kernelBoot"]["kernelArgs"]
    assert args.split(" ")[: len(words)] == list(words)
    assert "\n# injected" not in (done.folder / "README.md").read_text()


def test_what_is_no_place_in_a_registry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="no place for an image"):
        exported(tmp_path, "kubevirt", ExportWishes(image="x"))
