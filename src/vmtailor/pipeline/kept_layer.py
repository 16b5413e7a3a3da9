# SPDX-License-Identifier: Apache-2.0
"""The disk of what a machine with a name writes, in its folder; without one that is in memory."""

from __future__ import annotations

from dataclasses import replace

from vmtailor.base import process
from vmtailor.base.disk_full import disk_full_is_a_host_error
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.guest import guest_surroundings
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.host.machine_folders import MachineFolder
from vmtailor.drivers.shares import ext4_disks
from vmtailor.model.boots.surroundings import GuestSurroundings
from vmtailor.model.guest_mounts import GROUPS
from vmtailor.model.option_values import parse_volume_size

#: Bytes that the disk may hold unless the user says otherwise. Nothing of them is taken before it is written.
USUAL_BYTES = 10 << 30
#: Hundredths of a second after which the guest's kernel writes out what was written: a machine that is killed loses
#: no more than what came last.
_SOON = "100"
_SOON_SETTINGS = ("vm/dirty_expire_centisecs", "vm/dirty_writeback_centisecs")


def parse_storage(text: str) -> int:
    """Return the bytes of `size=20G`. Raises UserInputError for another option, and for other text."""
    name, _, value = text.partition("=")
    if name != "size":
        raise UserInputError(f"--storage-opt {text[:80]}: '{name[:40]}' is not known", hint="size=20G")
    size = parse_volume_size(value)
    ext4_disks.require_size("the disk of a machine", size)
    return size


def lacks(files: BundleFolder) -> tuple[str, str]:
    """Return why a machine of this bundle cannot keep what it writes, and the command that helps; empty where it
    can."""
    config = files.config if files.lists(files.bundle.kernel_config) else {}
    missing = [name for name in ("OVERLAY_FS", *GROUPS["volumes"]) if config.get(name) != "y"]
    if missing:
        helps = f"vmtailor refit {files.path} --keep volumes makes one that can"
        return f"its kernel lacks {', '.join(missing)}", helps
    if not guest_surroundings.known(files.init, GuestSurroundings(layer="0")):
        return "its init is older than that", f"vmtailor refit {files.path} renews it"
    if process.on_path("mkfs.ext4") is None:
        return "there is no mkfs.ext4 on this host", "install e2fsprogs"
    return "", ""


def make(folder: MachineFolder) -> None:
    """Make the disk of a new machine, where it has one. Raises HostError."""
    if folder.layer is not None:
        with disk_full_is_a_host_error(folder.path):
            ext4_disks.make(folder.layer, folder.record.layer_bytes)


def given(asked: GuestSurroundings, number: int) -> GuestSurroundings:
    """Return surroundings with the disk of this number for what is written."""
    return replace(asked, layer=f"{number} commit=1")


def written_soon(asked: GuestSurroundings, files: BundleFolder) -> GuestSurroundings:
    """Return surroundings in which the guest writes to its disks soon, where its kernel has these settings and its init
    knows them. What the user sets stays."""
    names = {name for name, _ in asked.sysctls}
    soon = tuple((name, _SOON) for name in _SOON_SETTINGS if name not in names)
    wanted = replace(asked, sysctls=(*soon, *asked.sysctls))
    able = files.config.get("PROC_SYSCTL") == "y" and guest_surroundings.known(files.init, wanted)
    return wanted if able else asked
