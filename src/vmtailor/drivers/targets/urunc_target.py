# SPDX-License-Identifier: Apache-2.0
"""urunc as a target: an OCI image with kernel and root file system, whose annotations tell urunc what to start.

urunc writes the kernel's command line itself: console and root device, `ip=` with the address of the container, the
image's variables word by word, and `init=` with the image's entry point. So the machine's own words are variables of
the image. Containerd hands on the annotations of an image's manifest; Docker does not, and urunc then reads
`/urunc.json`."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.image.image_writer import ImageFile, NewImage, write_image
from vmtailor.drivers.targets import kubernetes_manifests as manifests
from vmtailor.drivers.targets.target import Export, ExportFolder, ExportTarget, Guide
from vmtailor.model.architecture import image_name

KERNEL, ROOT, INIT = "/boot/vmlinux", "/boot/root.img", "/.vmtailor/init"
_PREFIX = "com.urunc.unikernel."
#: Begin the words that urunc writes itself.
_ITS_OWN = ("root=", "init=", "console=", "panic=", "VT_NET=")
_FLAGS_OF_ITS_OWN = ("ro", "rw")
#: Flags without a value, each with a word that does the same.
_SPELLED = {"quiet": "loglevel=4"}
#: Init takes the address from urunc's own word.
_NET = "VT_NET=kernel-word-ip"
_RUNTIME = "io.containerd.urunc.v2"


class UruncTarget(ExportTarget):
    """Writes `image`, an OCI layout, and `pod.yaml`."""

    def refusal(self, export: Export) -> UserInputError | None:
        if export.volume is not None:
            return self.refuse(
                "it has one disk, and none for variables, a command or rights of the user's",
                "leave -e and the command out, or put them into the image and fit it again",
            )
        if export.wishes.address:
            return self.refuse("urunc gives each machine its container's address", "leave --address out")
        if export.machine.network and not guest_volume.reads_kernel_word(export.files.init):
            return self.refuse(
                "its init cannot take an address from urunc", "refit or fit it again; its kernel is in the cache"
            )
        return None

    def write(self, export: Export, folder: ExportFolder) -> Guide:
        told = annotations_of(export.variant)
        variables, left_out = variables_of(export)
        write_image(
            folder.made("image"),
            NewImage(
                architecture=image_name(export.bundle.architecture), name=export.name, entrypoint=(INIT,),
                env=variables, annotations=told,
                files=(
                    ImageFile(KERNEL.lstrip("/"), export.kernel), ImageFile(ROOT.lstrip("/"), export.root),
                    ImageFile("urunc.json", encoded(told)),
                ),
            ),
        )  # fmt: skip
        folder.text("pod.yaml", manifests.text(_runtime_class(), _pod(export)))
        memory = export.machine.memory_bytes >> 20
        start = f"sudo nerdctl run --rm --runtime {_RUNTIME} -m {memory}m {export.name}:latest"
        return Guide("tar -C image -c . | sudo nerdctl load", start, (*_notes(export), *_left_out(left_out)))


def annotations_of(hypervisor: str) -> dict[str, str]:
    """Return the annotations of an image for a hypervisor."""
    told = {
        "unikernelType": "linux", "hypervisor": hypervisor, "binary": KERNEL, "block": ROOT, "blkMntPoint": "/",
        "mountRootfs": "false",
    }  # fmt: skip
    return {f"{_PREFIX}{name}": value for name, value in told.items()}


def encoded(told: Mapping[str, str]) -> bytes:
    """Return the content of /urunc.json: the annotations, their values in base64."""
    values = {name: base64.b64encode(value.encode()).decode() for name, value in told.items()}
    return json.dumps(values, indent=1).encode() + b"\n"


def variables_of(export: Export) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the machine's words as variables of the image, and those that no variable can hold."""
    kept: list[str] = []
    left_out: list[str] = []
    for word in (_SPELLED.get(one, one) for one in export.machine.words):
        if word.startswith(_ITS_OWN) or word in _FLAGS_OF_ITS_OWN:
            continue
        (kept if manifests.plain_word(word) else left_out).append(word)
    if export.machine.network:
        kept.append(_NET)
    return tuple(kept), tuple(left_out)


def _runtime_class() -> dict[str, object]:
    return {
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "urunc"}, "handler": "urunc",
    }  # fmt: skip


def _pod(export: Export) -> dict[str, object]:
    container: dict[str, object] = {"name": export.name, "image": manifests.image_of(export)}
    if ports := manifests.ports(export):
        container["ports"] = ports
    container["resources"] = {"limits": {"memory": manifests.quantity(export.machine.memory_bytes)}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": manifests.metadata(export),
        # Variables of services would be words of the kernel, which takes 32 of a kind.
        "spec": {"runtimeClassName": "urunc", "enableServiceLinks": False, "containers": [container]},
    }  # fmt: skip


def _notes(export: Export) -> tuple[str, ...]:
    served = ", ".join(str(port.guest_port) for port in export.machine.ports if port.protocol == "tcp")
    return (
        *([f"- It answers at the container's address, at its own port ({served}): `sudo nerdctl inspect` tells the "
           "address."] if served else []),
        "- `-m`, and the limit of memory in the pod, is the machine's memory.",
        f"- In Kubernetes: `{manifests.push(export)}`, then `kubectl apply -f pod.yaml`.",
        manifests.image_note(export),
        "- Use urunc 0.8.0 or later: it fixes two security faults, by which annotations of an image reached the "
        "monitor's command line and files of the host (GHSA-crxr-jm9v-349c, GHSA-3385-hmpj-4678).",
    )  # fmt: skip


def _left_out(words: tuple[str, ...]) -> tuple[str, ...]:
    shown = ", ".join("".join(c if c.isprintable() and c != "`" else "?" for c in word)[:80] for word in words[:20])
    return (f"- Words of the kernel that urunc has no place for are left out: `{shown}`.",) if words else ()
