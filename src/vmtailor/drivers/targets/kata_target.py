# SPDX-License-Identifier: Apache-2.0
"""Kata Containers as a target: the kernel alone, a drop-in of its configuration, and a pod that asks for that kernel.

The container's root file system is not in the export: Kata takes it from the container's own image, and its agent is
in its guest image."""

from __future__ import annotations

from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image.image_reference import image_name
from vmtailor.drivers.targets import kubernetes_manifests as manifests
from vmtailor.drivers.targets.target import Export, ExportFolder, ExportTarget, Guide

#: Where the kernel lies on a node: below a folder of the export's name.
PLACE = "/opt/vmtailor"
#: Where the drop-in lies, beside a configuration.toml of Kata's.
DROP_IN = "/etc/kata-containers/config.d"
_ANNOTATION = "io.katacontainers.config.hypervisor.kernel"
_DOCKER = "docker://"

_CONFIGURATION = """\
# Lets pods name their kernel. Put it into the folder config.d beside Kata's configuration.toml.
# A list here takes the place of the list there: add the names that it has.
[hypervisor.{hypervisor}]
enable_annotations = ["kernel"]

# In place of that, for every pod of this configuration:
# kernel = "{kernel}"
"""


class KataTarget(ExportTarget):
    """Writes the kernel, `50-NAME.toml` and `pod.yaml`."""

    def refusal(self, export: Export) -> UserInputError | None:
        if export.wishes.address:
            return self.refuse("Kata gives each machine its pod's address", "leave --address out")
        if export.bundle.privileged:
            return self.refuse(
                "its container is privileged, and Kata would give it the node's devices", "fit it without --privileged"
            )
        _image_of(export)
        return None

    def write(self, export: Export, folder: ExportFolder) -> Guide:
        folder.copy(export.kernel, export.kernel_name)
        kernel = f"{PLACE}/{export.name}/{export.kernel_name}"
        drop_in = f"50-{export.name}.toml"
        folder.text(drop_in, _CONFIGURATION.format(hypervisor=export.variant, kernel=kernel))
        folder.text("pod.yaml", manifests.text(_runtime_class(export), _pod(export, kernel)))
        install = (
            f"sudo install -D -m 644 {export.kernel_name} {kernel} && "
            f"sudo install -D -m 644 {drop_in} {DROP_IN}/{drop_in}"
        )
        return Guide(install, "kubectl apply -f pod.yaml", _notes(export, drop_in))


def _image_of(export: Export) -> str:
    """Return the container's image: the user's, or the one that the bundle was fitted to if a registry has it."""
    reference = export.bundle.image_reference
    named = reference.removeprefix(_DOCKER)
    if not export.wishes.image and reference.startswith(_DOCKER) and named.isascii() and image_name(named):
        return named
    return manifests.image_of(export)


def _unexpanded(text: str) -> str:
    """Return a text in which Kubernetes replaces no $(NAME)."""
    return text.replace("$", "$$")


def _handler(export: Export) -> str:
    return f"kata-{export.variant}"


def _runtime_class(export: Export) -> dict[str, Any]:
    name = _handler(export)
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}


def _pod(export: Export, kernel: str) -> dict[str, Any]:
    container: dict[str, Any] = {"name": export.name, "image": _image_of(export)}
    if export.wishes.command:
        container["args"] = [_unexpanded(one) for one in export.wishes.command]
    if export.wishes.env:
        pairs = [one.partition("=") for one in export.wishes.env]
        container["env"] = [{"name": name, "value": _unexpanded(value)} for name, _, value in pairs]
    if ports := manifests.ports(export):
        container["ports"] = ports
    limits = {
        **({"memory": manifests.quantity(export.wishes.memory_bytes)} if export.wishes.memory_bytes else {}),
        **({"cpu": str(export.wishes.cpus)} if export.wishes.cpus else {}),
    }
    if limits:
        container["resources"] = {"limits": limits}
    metadata = {**manifests.metadata(export), "annotations": {_ANNOTATION: kernel}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"runtimeClassName": _handler(export), "containers": [container]},
    }  # fmt: skip


def _notes(export: Export, drop_in: str) -> tuple[str, ...]:
    shown = _image_of(export)
    example = shown.startswith(f"{manifests.NOWHERE}/")
    more = " That is only an example: export again with `--image REGISTRY/NAME:TAG`." if example else ""
    return (
        f"- The first command is for each node. Where Kata has its configuration elsewhere, put `{drop_in}` into the "
        "folder `config.d` beside it: `kata-runtime --show-default-config-paths` tells.",
        f"- containerd must hand on annotations: `pod_annotations = [\"io.katacontainers.*\"]` for its runtime "
        f"`{_handler(export)}`.",
        f"- The pod's image is the container's own, `{shown}`.{more} It is not in this folder.",
        "- The agent is in Kata's guest image, which stays as it is.",
    )  # fmt: skip
