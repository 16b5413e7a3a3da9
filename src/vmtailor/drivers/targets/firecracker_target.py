# SPDX-License-Identifier: Apache-2.0
"""Firecracker as a target: its configuration file, a script that starts it, and a unit of systemd."""

from __future__ import annotations

from dataclasses import replace

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import StartPlace
from vmtailor.drivers.targets import tap_network, unit
from vmtailor.drivers.targets.target import Export, ExportFolder, ExportTarget, Guide
from vmtailor.model.machine import Machine

_CONFIGURATION = "config.json"

_SCRIPT = """\
#!/bin/sh
# Starts the machine {name} in Firecracker, with its console at this terminal. Ctrl-C ends it.
# FIRECRACKER=PATH: another program. Further arguments go to it.
set -eu
cd "$(dirname "$0")"
exec "${{FIRECRACKER:-firecracker}}" --no-api --config-file {configuration} --level Error{more} "$@" </dev/null
"""

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
        refused = monitors.named(self.row.monitor).refusals(_machine(export))
        if refused:
            return self.refuse(f"it has no {', no '.join(refused)}", "choose another target, or leave the option out")
        return None

    def write(self, export: Export, folder: ExportFolder) -> Guide:
        network = tap_network.of(export) if export.machine.network else None
        folder.copy(export.kernel, export.kernel_name)
        machine = replace(_machine(export), kernel=export.kernel_name, disks=folder.disks(export))
        place = StartPlace(".", tap=network.tap if network else "")
        told = monitors.named(self.row.monitor).orders(machine, place).files[_CONFIGURATION]
        folder.text(_CONFIGURATION, told + b"\n")
        more = " --enable-pci" if export.variant == "pci" else ""
        folder.text("start", _SCRIPT.format(name=export.name, configuration=_CONFIGURATION, more=more), executable=True)
        notes = tap_network.write(export, network, folder) if network else ()
        notes += unit.write(export, folder, tap_network.SCRIPT if network else "")
        files = " ".join((export.kernel_name, *(disk.path for disk in machine.disks), _CONFIGURATION))
        jail = _JAIL.format(name=export.name, configuration=_CONFIGURATION, files=files, more=more)
        return Guide(*tap_network.commands(export, network), (*notes, jail))


def _machine(export: Export) -> Machine:
    """Return the machine as Firecracker has it. A kernel that can read tables of ACPI leaves them where words name its
    devices: it would find each device twice."""
    words = export.machine.words
    if export.variant == "mmio" and export.config.get("ACPI") == "y":
        words = (*words, "acpi=off")
    return replace(tap_network.under_kvm(export.machine), words=words)
