# SPDX-License-Identifier: Apache-2.0
"""An image for crun's handler krun: it holds the machine's kernel, its root file system as a file, and our init.

The handler shares the container's folder as the root of the machine (virtio-fs), and reads the kernel and its words
from `/.krun_vm.json`. So our init begins in that folder, and mounts the file in it as the root (`VT_ROOTFILE`)."""

from __future__ import annotations

import json
import shlex

from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.image.image_writer import ImageFile, NewImage, write_image
from vmtailor.drivers.targets.target import DHCP, Export, ExportFolder, Guide
from vmtailor.model.architecture import image_name
from vmtailor.model.plan import RootFormat

KERNEL, ROOT, INIT, SETTINGS = "/vmlinux", "/root.erofs", "/.vmtailor/init", ".krun_vm.json"
#: The format of an ELF kernel, as libkrun numbers it.
_ELF = 1
#: MiB: of a machine with this much or less, crun ignores the number.
_IGNORED_MIB = 128
#: Words of a root on a disk; crun's is a folder, by its tag.
_OF_A_DISK = ("root=", "rootfstype=", "init=")
_ROOT_WORDS = ("root=/dev/root", "rootfstype=virtiofs", "ro", f"init={INIT}", f"VT_ROOTFILE={ROOT}")


def refused(export: Export) -> tuple[str, str] | None:
    """Return why crun cannot have a machine, and the hint; None where it can."""
    if export.volume is not None:
        return (
            "crun gives it no disk, for variables, a command or rights of the user's",
            "leave -e and the command out, or put them into the image and fit it again",
        )
    if export.bundle.root_format is not RootFormat.EROFS:
        return "its root file system is mounted from a file, which erofs alone can", "fit it with --root erofs"
    if not guest_volume.mounts_root_file(export.files.init):
        return "its init is older than this export", "refit or fit it again; its kernel is in the cache"
    return None


def settings(export: Export) -> bytes:
    """Return the content of `/.krun_vm.json`."""
    words = [one for one in export.machine.words if one not in ("ro", "rw") and not one.startswith(_OF_A_DISK)]
    told = {
        "cpus": export.machine.cpus, "ram_mib": max(-(-export.machine.memory_bytes >> 20), _IGNORED_MIB + 1),
        "kernel_path": KERNEL, "kernel_format": _ELF, "kernel_cmdline": " ".join((*_ROOT_WORDS, *words)),
    }  # fmt: skip
    return json.dumps(told, indent=1).encode() + b"\n"


def write(export: Export, folder: ExportFolder) -> Guide:
    """Write `image`, an OCI layout, and return what a person does with it."""
    write_image(
        folder.made("image"),
        NewImage(
            architecture=image_name(export.bundle.architecture), name=export.name, entrypoint=(INIT,),
            files=(
                ImageFile(KERNEL.lstrip("/"), export.kernel), ImageFile(ROOT.lstrip("/"), export.root),
                ImageFile(INIT.lstrip("/"), export.files.init, mode=0o755), ImageFile(SETTINGS, settings(export)),
            ),
        ),
    )  # fmt: skip
    image = f"localhost/{export.name}:latest"
    # Without a terminal, libkrun gives what the console shows to its own log.
    argv = ["podman", "run", "--rm", "-t", "--runtime", "krun", "--annotation", "krun.custom_kernel=1"]
    if export.address:
        argv += ["--annotation", "krun.use_passt=1"]
        argv += ["--ip", export.address.partition("/")[0]] if export.address != DHCP else []
        for port in export.machine.ports:
            protocol = "/udp" if port.protocol == "udp" else ""
            argv += ["-p", f"{port.host_place}:{port.guest_port}{protocol}"]
    return Guide(
        f"sudo skopeo copy oci:image:latest containers-storage:{image}", f"sudo {shlex.join([*argv, image])}",
        _notes(export),
    )  # fmt: skip


def _notes(export: Export) -> tuple[str, ...]:
    found = []
    if port := next((one for one in export.machine.ports if one.protocol == "tcp"), None):
        found.append(f"- From another terminal, `curl http://{port.host_place}/` asks the container.")
    if export.address not in ("", DHCP):
        found.append(
            f"- The machine has a fixed address, {export.address.partition('/')[0]} of podman's usual network, and its "
            "container must have the same: `--ip`. `--address` of `vmtailor export` chooses."
        )
    if export.address:
        tap = shlex.quote(f"krun.tap_name={export.wishes.tap}")
        found.append(
            f"- With a TAP device of the container's network in place of passt: `--annotation {tap}`, for crun's "
            "versions that have it."
        )
    return tuple(found)
