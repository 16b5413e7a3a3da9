# SPDX-License-Identifier: Apache-2.0
"""A unit of systemd for an exported machine that a script `start` starts."""

from __future__ import annotations

from vmtailor.drivers.targets.target import Export, ExportFolder
from vmtailor.model.machine import DiskMode

_UNIT = """\
# Put this folder at {place} (or change the paths), then:
#   systemctl enable --now {place}/{name}.service
[Unit]
Description=virtual machine {name}
Wants=network-online.target
After=network-online.target

[Service]
{before}ExecStart={place}/start
{after}StandardInput=null
Restart=on-failure
{user}NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""
#: The unit's own capability, where it runs as another user than root.
_AMBIENT = "AmbientCapabilities={capability}\n"
#: A disk that the machine writes, or run.img, is root's alone: root reads its own files without any capability.
_ANY_USER = "DynamicUser=yes\nSupplementaryGroups=kvm\n"
_ROOT = "CapabilityBoundingSet={capability}\nSupplementaryGroups=kvm\n"
_WRITES = "ReadWritePaths={place}\n"


def write(export: Export, folder: ExportFolder, network: str = "", capability: str = "") -> tuple[str, ...]:
    """Write the unit, and return a note on it. `network`: a script of the export that makes the machine's network as
    root, by `up` and `down`; `capability`: one that the monitor needs."""
    place = f"/var/lib/machines/{export.name}"
    writes = any(disk.mode is DiskMode.WRITTEN for disk in export.machine.disks)
    own = export.volume is not None or writes
    user = _ROOT.format(capability=capability) if own else _ANY_USER
    user += _AMBIENT.format(capability=capability) if capability and not own else ""
    user += _WRITES.format(place=place) if writes else ""
    content = _UNIT.format(
        name=export.name, place=place, user=user,
        before=f"ExecStartPre=+{place}/{network} up\n" if network else "",
        after=f"ExecStopPost=+{place}/{network} down\n" if network else "",
    )  # fmt: skip
    folder.text(f"{export.name}.service", content)
    return (
        f"- `{export.name}.service` starts it with the host: its head says how. Stopping the unit ends the machine at "
        "once, as a power cut does.",
    )
