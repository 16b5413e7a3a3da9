# SPDX-License-Identifier: Apache-2.0
"""/etc/fstab and os-release."""

from __future__ import annotations

import re
import shlex

from vmtailor.base.text import MOST_SHELL_LINE
from vmtailor.model.systems.system import LinearVolume, Mount, OsRelease, Partition

#: Lines of a table that are read; no system has a tenth.
MOST_LINES = 1000
_OCTAL = re.compile(r"\\([0-7]{3})")


def parse_fstab(text: str) -> tuple[Mount, ...]:
    """Return the lines of /etc/fstab; those that make no sense are left out."""
    found = []
    for line in text.splitlines()[:MOST_LINES]:
        fields = [_OCTAL.sub(lambda m: chr(int(m[1], 8)), field) for field in line.split()]
        if len(fields) >= 3 and not fields[0].startswith("#"):
            options = fields[3].split(",") if len(fields) > 3 else ["defaults"]
            found.append(Mount(fields[0], fields[1], fields[2], tuple(options)))
    return tuple(found)


def parse_os_release(text: str) -> OsRelease:
    """Parse os-release: assignments as a shell reads them."""
    values: dict[str, str] = {}
    for line in text.splitlines()[:MOST_LINES]:
        name, found, value = line.strip().partition("=")
        if found and not name.startswith("#") and len(value) <= MOST_SHELL_LINE:
            try:
                values[name] = "".join(shlex.split(value))[:200]
            except ValueError:  # a quotation without an end
                continue
    return OsRelease(
        values.get("ID", ""), values.get("VERSION_ID", ""), values.get("VERSION_CODENAME", ""),
        values.get("PRETTY_NAME", "") or values.get("NAME", ""),
    )  # fmt: skip


def names_partition(device: str, partition: Partition) -> bool:
    """Return whether a device that fstab or the kernel's command line names is this partition. Names of device nodes
    are told by their number alone: which disk is which is the machine's matter."""
    kind, found, value = device.partition("=")
    value = value.strip('"')
    if found:
        own = {"UUID": partition.uuid, "LABEL": partition.label, "PARTUUID": partition.partition_uuid}.get(kind, "")
        return bool(own) and own.lower() == value.lower()
    number = re.fullmatch(r"/dev/(?:[hsv]d[a-z]|xvd[a-z]|(?:nvme\d+n\d+|mmcblk\d+)p)(\d+)", device)
    if number is not None:
        return int(number[1]) == partition.number
    by = re.fullmatch(r"/dev/disk/by-(uuid|label|partuuid)/(.+)", device)
    return by is not None and names_partition(f"{by[1].upper()}={by[2]}", partition)


def names_volume(device: str, volume: LinearVolume) -> bool:
    """Return whether a device that fstab or the kernel's command line names is this LVM volume."""
    kind, found, value = device.partition("=")
    if found:
        own = {"UUID": volume.uuid, "LABEL": volume.label}.get(kind, "")
        return bool(own) and own.lower() == value.strip('"').lower()
    by = re.fullmatch(r"/dev/disk/by-(uuid|label)/(.+)", device)
    if by is not None:
        return names_volume(f"{by[1].upper()}={by[2]}", volume)
    return device in (f"/dev/{volume.full_name}", f"/dev/mapper/{volume.mapped_name}")
