# SPDX-License-Identifier: Apache-2.0
"""KubeVirt as a target: one image with kernel and disks, and the manifests of a machine that starts from it.

KubeVirt takes the kernel from an image (`kernelBoot`), and disks from images (`containerDisk`): here it is the same
one. Its QEMU is a user of its own, which must be able to read the files."""

from __future__ import annotations

from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image.image_writer import ImageFile, NewImage, write_image
from vmtailor.drivers.targets import kubernetes_manifests as manifests
from vmtailor.drivers.targets import targets
from vmtailor.drivers.targets.target import Export, ExportFolder, ExportTarget, Guide
from vmtailor.model.architecture import image_name

KERNEL, ROOT, RUN = "/boot/vmlinux", "/disk/root.img", "/disk/run.img"
#: Number of the user and of the group of QEMU in KubeVirt.
QEMU = 107
_API = "kubevirt.io/v1"
_NET = "default"


class KubevirtTarget(ExportTarget):
    """Writes `image`, an OCI layout, `vmi.yaml`, which runs once, and `vm.yaml`, which can be started again."""

    def refusal(self, export: Export) -> UserInputError | None:
        manifests.image_of(export)
        return None

    def write(self, export: Export, folder: ExportFolder) -> Guide:
        files = [
            ImageFile(KERNEL.lstrip("/"), export.kernel, QEMU),
            ImageFile(ROOT.lstrip("/"), export.root, QEMU),
        ]
        if export.volume is not None:
            files.append(ImageFile(RUN.lstrip("/"), export.volume, QEMU, 0o600))  # it may hold secrets
        image = NewImage(image_name(export.bundle.architecture), export.name, files)
        write_image(folder.made("image"), image)
        served = [_service(export)] if export.machine.ports else []
        instance = {"apiVersion": _API, "kind": "VirtualMachineInstance", "metadata": manifests.metadata(export)}
        folder.text("vmi.yaml", manifests.text({**instance, "spec": _instance(export)}, *served))
        folder.text("vm.yaml", manifests.text(_machine(export), *served))
        return Guide(manifests.push(export), "kubectl apply -f vmi.yaml", _notes(export))


def _instance(export: Export) -> dict[str, Any]:
    """Return the specification of an instance."""
    network = export.machine.network
    volumes = [("root", ROOT), *([("run", RUN)] if export.volume is not None else [])]
    return {
        # No stop signal reaches the container.
        "terminationGracePeriodSeconds": 0,
        "domain": {
            "cpu": {"cores": export.machine.cpus},
            "memory": {"guest": manifests.quantity(export.machine.memory_bytes)},
            "machine": {"type": targets.chosen("kubevirt").row.board},
            "features": {"acpi": {}},
            "firmware": {"bootloader": {"bios": {}}, "kernelBoot": _kernel(export)},
            "devices": {
                "autoattachPodInterface": network,
                "autoattachSerialConsole": True,
                "autoattachGraphicsDevice": False,
                "autoattachMemBalloon": False,
                "disks": [{"name": name, "disk": {"bus": "virtio"}} for name, _ in volumes],
                **({"interfaces": [_interface(export)]} if network else {}),
            },
        },
        **({"networks": [{"name": _NET, "pod": {}}]} if network else {}),
        "volumes": [
            {"name": name, "containerDisk": {"image": manifests.image_of(export), "path": path}}
            for name, path in volumes
        ],
    }


def _kernel(export: Export) -> dict[str, Any]:
    return {
        "container": {"image": manifests.image_of(export), "kernelPath": KERNEL},
        "kernelArgs": " ".join(export.machine.words),
    }


def _interface(export: Export) -> dict[str, Any]:
    ports = [
        {"name": f"{one.protocol}-{one.guest_port}", "port": one.guest_port, "protocol": one.protocol.upper()}
        for one in export.machine.ports
    ]
    return {"name": _NET, "model": "virtio", "masquerade": {}, **({"ports": ports} if ports else {})}


def _machine(export: Export) -> dict[str, Any]:
    """Return a machine that is started again where it failed, and not where its container has ended."""
    labels = manifests.metadata(export)["labels"]
    return {
        "apiVersion": _API, "kind": "VirtualMachine", "metadata": manifests.metadata(export),
        "spec": {
            "runStrategy": "RerunOnFailure", "template": {"metadata": {"labels": labels}, "spec": _instance(export)},
        },
    }  # fmt: skip


def _service(export: Export) -> dict[str, Any]:
    meta = manifests.metadata(export)
    ports = [
        {"name": f"{one.protocol}-{one.guest_port}", "port": one.guest_port, "protocol": one.protocol.upper()}
        for one in export.machine.ports
    ]
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": meta["labels"], "ports": ports},
    }  # fmt: skip


def _notes(export: Export) -> tuple[str, ...]:
    port = next((one.guest_port for one in export.machine.ports if one.protocol == "tcp"), None)
    return (
        manifests.image_note(export),
        f"- `kubectl wait --for=jsonpath='{{.status.phase}}'=Running vmi/{export.name}` waits for it; "
        f"`virtctl console {export.name}` shows what the container writes.",
        *(
            [
                f"- In the cluster the service `{export.name}` leads to it; from here, "
                f"`virtctl port-forward vmi/{export.name} 8080:{port}` does."
            ]
            if port
            else []
        ),
        "- `vm.yaml` is the same as a VirtualMachine, which is started again where it failed. Apply one of the two.",
        *(["- Variables and command of `-e` are in the image: whoever can pull it can read them."]
          if export.volume is not None else []),
    )  # fmt: skip
