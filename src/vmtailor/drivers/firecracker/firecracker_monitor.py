# SPDX-License-Identifier: Apache-2.0
"""Firecracker as a monitor: one configuration file, no API, its own seccomp filters."""

from __future__ import annotations

import json
from typing import Any

from vmtailor.drivers.monitors.kvm_monitor import LOG, MAC, KvmMonitor, mebibytes, words
from vmtailor.drivers.monitors.monitor import Orders, StartPlace
from vmtailor.model.machine import DiskMode, Machine

#: The file that it reads.
CONFIGURATION = "config.json"


def configuration(machine: Machine, kernel: str, place: StartPlace, console: str) -> dict[str, Any]:
    """Return what Firecracker is told of a machine.

    No drive is marked as the root device: Firecracker puts that one first, and adds words for it. The machine's own
    words name its root, and drives are given to the guest in their order."""
    found: dict[str, Any] = {
        "boot-source": {"kernel_image_path": place.name(kernel), "boot_args": words(machine, console)},
        "machine-config": {"vcpu_count": machine.cpus, "mem_size_mib": mebibytes(machine)},
        "drives": [
            {
                "drive_id": f"disk{number}",
                "path_on_host": place.name(disk.path),
                "is_root_device": False,
                "is_read_only": disk.mode is DiskMode.READ_ONLY,
            }
            for number, disk in enumerate(machine.disks)
        ],
    }
    if machine.network:
        found["network-interfaces"] = [{"iface_id": "eth0", "host_dev_name": place.tap, "guest_mac": MAC}]
    if machine.entropy:
        found["entropy"] = {}
    return found


class FirecrackerMonitor(KvmMonitor):
    """Starts machines in Firecracker."""

    program = "firecracker"
    source = "put the program of a Firecracker release on the PATH"

    def _orders(self, machine: Machine, kernel: str, place: StartPlace) -> Orders:
        """Return the command and its configuration. Its log must not go where the serial line is, standard output."""
        told = json.dumps(configuration(machine, kernel, place, self.row.console), indent=1).encode()
        file = f"{place.folder}/{CONFIGURATION}"
        argv = (self.program, "--no-api", "--config-file", file, "--log-path", LOG, "--level", "Warning")
        return Orders(argv, {CONFIGURATION: told})
