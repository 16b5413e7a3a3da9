# SPDX-License-Identifier: Apache-2.0
"""Firecracker as a target: its configuration file, a script that starts it, and a unit of systemd."""

from __future__ import annotations

import json
from dataclasses import replace

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import StartPlace
from vmtailor.drivers.targets import system_parts, tap_network, unit
from vmtailor.drivers.targets.target import Export, ExportFolder, ExportTarget, Guide
from vmtailor.model.architecture import named
from vmtailor.model.machine import Disk, DiskMode, Machine

_CONFIGURATION = "config.json"

_SCRIPT = """\
#!/bin/sh
# Starts the machine {name} in Firecracker, with its console at this terminal. {end}
# FIRECRACKER=PATH: another program. Further arguments go to it.
set -eu
cd "$(dirname "$0")"
exec "${{FIRECRACKER:-firecracker}}" --no-api --config-file {configuration} --level Error{more} "$@"{stdin}
"""

_END, _END_SYSTEM = "Ctrl-C ends it.", "It ends when the system restarts."
#: The system's disk in an export.
_DISK = "disk.raw"
_SYSTEM = (
    "- The system's disk is the root device, and what it writes stays in `disk.raw`. The system sets its own address: "
    "`{address}` (its own, then the gateway).\n"
    "- Firecracker has no power-off. `reboot` ends the machine; after `poweroff`, end Firecracker."
)

_JAIL = """\
- Firecracker's jailer starts it, too, as root; the names in `{configuration}` are those of its jail:

  ```sh
  jail=/srv/jailer/firecracker/{name}/root gid=$(getent group kvm | cut -d: -f3)
  mkdir -p $jail && cp {files} $jail && chown 10000:$gid $jail/*
  jailer --id {name} --exec-file "$(command -v firecracker)" --uid 10000 --gid $gid -- \\
      --no-api --config-file {configuration}{more}
  ```"""


class FirecrackerTarget(ExportTarget):
    """Writes `config.json`, `start`, a unit, kernel and disks."""

    def refusal(self, export: Export) -> UserInputError | None:
        """Return the error for a machine that Firecracker cannot give."""
        if export.is_system and system_parts.on_volume(export.files.system):
            return self.refuse("the root is an LVM volume, which is no root device", "--to qemu starts it")
        refused = monitors.named(self.row.monitor).refusals(_machine(export))
        if refused:
            return self.refuse(f"it has no {', no '.join(refused)}", "choose another target, or leave the option out")
        return None

    def write(self, export: Export, folder: ExportFolder) -> Guide:
        network = tap_network.of(export) if export.machine.network else None
        folder.copy(export.kernel, export.kernel_name)
        machine = replace(_machine(export), kernel=export.kernel_name)
        place = StartPlace(".", tap=network.tap if network else "")
        if export.is_system:
            with system_parts.opened(export) as system:
                folder.copy(system.raw.resolve(), _DISK)
                told = _rooted(self._told(machine, place), system.root_uuid)
        else:
            machine = replace(machine, disks=folder.disks(export))
            told = self._told(machine, place)
        folder.text(_CONFIGURATION, told + b"\n")
        more = " --enable-pci" if export.variant == "pci" else ""
        script = _SCRIPT.format(
            name=export.name, configuration=_CONFIGURATION, more=more, stdin="" if export.is_system else " </dev/null",
            end=_END_SYSTEM if export.is_system else _END,
        )  # fmt: skip
        folder.text("start", script, executable=True)
        notes = tap_network.write(export, network, folder) if network else ()
        notes += unit.write(export, folder, tap_network.SCRIPT if network else "")
        files = " ".join((export.kernel_name, *(disk.path for disk in machine.disks), _CONFIGURATION))
        jail = _JAIL.format(name=export.name, configuration=_CONFIGURATION, files=files, more=more)
        notes += tuple(_SYSTEM.format(address=export.address or "none") for _ in range(export.is_system))
        return Guide(*tap_network.commands(export, network), (*notes, jail))

    def _told(self, machine: Machine, place: StartPlace) -> bytes:
        return monitors.named(self.row.monitor).orders(machine, place).files[_CONFIGURATION]


def _machine(export: Export) -> Machine:
    """Return the machine as Firecracker has it, whatever the bundle's board: the needs of its kernel decide. A system's
    disk is raw in any case. A kernel that can read tables of ACPI leaves them where words name its devices: it would
    find each device twice."""
    words = _rootless(export.machine.words) if export.is_system else export.machine.words
    disks = (Disk(_DISK, mode=DiskMode.WRITTEN),) if export.is_system else export.machine.disks
    if export.variant == "mmio" and export.config.get("ACPI") == "y":
        words = (*words, "acpi=off")
    board = named(export.machine.architecture).board_names[0]
    return replace(tap_network.under_kvm(export.machine), board=board, words=words, disks=disks)


def _rootless(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return words without those of the root, which Firecracker adds for a root device."""
    return tuple(word for word in words if not word.startswith("root=") and word not in ("ro", "rw"))


def _rooted(told: bytes, partition: str) -> bytes:
    """Return a configuration whose first drive is the root device. `partition`: the UUID of the root's partition; empty
    where the root fills the drive."""
    document = json.loads(told)
    document["drives"][0] |= {"is_root_device": True, **({"partuuid": partition} if partition else {})}
    return json.dumps(document, indent=1).encode()
