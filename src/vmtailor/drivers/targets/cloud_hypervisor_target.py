# SPDX-License-Identifier: Apache-2.0
"""Cloud Hypervisor as a target: a script with its options, the same machine for its API, and a unit of systemd."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.monitors import kvm_monitor, monitors
from vmtailor.drivers.monitors.monitor import StartPlace
from vmtailor.drivers.targets import tap_network, targets, unit
from vmtailor.drivers.targets.tap_network import TapNetwork
from vmtailor.drivers.targets.target import Export, ExportFolder, ExportTarget, Guide
from vmtailor.model.machine import DiskMode, Machine

#: The machine as the API's vm.create takes it.
_API = "vm.json"

_SCRIPT = """\
#!/bin/sh
# Starts the machine {name} in Cloud Hypervisor, with its console at this terminal. Ctrl-C ends it.
# CLOUD_HYPERVISOR=PATH: another program. Further arguments go to it.
set -eu
cd "$(dirname "$0")"
exec "${{CLOUD_HYPERVISOR:-cloud-hypervisor}}" \\
    {options} "$@" </dev/null
"""

_ASKED = """\
- `vm.json` is the same machine for Cloud Hypervisor's API. In this folder:

  ```sh
  cloud-hypervisor --api-socket api.sock &
  curl --unix-socket api.sock -X PUT -H 'Content-Type: application/json' -d @vm.json http://localhost/api/v1/vm.create
  curl --unix-socket api.sock -X PUT http://localhost/api/v1/vm.boot
  ```"""

_CAPABLE = """\
- Cloud Hypervisor sets its TAP device up itself, so it needs the capability `cap_net_admin`. The unit gives it. For
  other users: `setcap cap_net_admin+ep "$(command -v cloud-hypervisor)"`."""


class CloudHypervisorTarget(ExportTarget):
    """Writes `start`, `vm.json`, a unit, kernel and disks."""

    def refusal(self, export: Export) -> UserInputError | None:
        """Return the error for a machine that Cloud Hypervisor cannot give."""
        refused = monitors.named(self.row.monitor).refusals(_machine(export))
        if refused:
            return self.refuse(f"it has no {', no '.join(refused)}", "choose another target, or leave the option out")
        return None

    def write(self, export: Export, folder: ExportFolder) -> Guide:
        network = tap_network.of(export) if export.machine.network else None
        folder.copy(export.kernel, export.kernel_name)
        machine = replace(_machine(export), kernel=export.kernel_name, disks=folder.disks(export))
        place = StartPlace(".", tap=network.tap if network else "")
        argv = list(monitors.named(self.row.monitor).orders(machine, place).argv[1:])
        if network is not None:  # older versions give the device an address of their own otherwise
            argv[-1] += f",ip={network.gateway.ip},mask={network.gateway.netmask}"
        folder.text("start", _SCRIPT.format(name=export.name, options=_lines(argv)), executable=True)
        folder.text(_API, json.dumps(configuration(machine, network), indent=1) + "\n")
        notes: tuple[str, ...] = ()
        if network is not None:
            notes = (*tap_network.write(export, network, folder), _CAPABLE)
        capability = "CAP_NET_ADMIN" if network else ""
        notes += unit.write(export, folder, tap_network.SCRIPT if network else "", capability)
        first, second = tap_network.commands(export, network)
        return Guide(first.replace("./start", "sudo ./start") if network else first, second, (*notes, _ASKED))


def configuration(machine: Machine, network: TapNetwork | None) -> dict[str, Any]:
    """Return a machine as the API's vm.create takes it."""
    found: dict[str, Any] = {
        "payload": {"kernel": machine.kernel, "cmdline": kvm_monitor.words(machine)},
        "cpus": {"boot_vcpus": machine.cpus, "max_vcpus": machine.cpus},
        "memory": {"size": machine.memory_bytes},
        "disks": [{"path": disk.path, "readonly": disk.mode is DiskMode.READ_ONLY} for disk in machine.disks],
        "serial": {"mode": "Tty"},
        "console": {"mode": "Off"},
    }
    if network is not None:
        own = {"ip": str(network.gateway.ip), "mask": str(network.gateway.netmask)}
        found["net"] = [{"tap": network.tap, "mac": kvm_monitor.MAC, **own}]
    return found


def _machine(export: Export) -> Machine:
    """Return the machine as Cloud Hypervisor has it: devices on PCI, tables of ACPI."""
    return replace(tap_network.under_kvm(export.machine), board=targets.chosen("cloud-hypervisor").row.board, acpi=True)


def _lines(argv: list[str]) -> str:
    """Return arguments for a shell, one option a line."""
    lines: list[str] = []
    for word in argv:
        if word.startswith("-"):
            lines.append(shlex.quote(word))
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return " \\\n    ".join(lines)
