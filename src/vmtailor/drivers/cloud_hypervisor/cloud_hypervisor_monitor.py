# SPDX-License-Identifier: Apache-2.0
"""Cloud Hypervisor as a monitor: a command line, devices on PCI, tables of ACPI."""

from __future__ import annotations

import re

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.monitors.kvm_monitor import MAC, KvmMonitor, words
from vmtailor.drivers.monitors.monitor import Orders, StartPlace
from vmtailor.model.machine import DiskMode, Machine

#: Characters that mean something in its options, and that quotes do not take that from.
_MEANING = re.compile(r'["\[\]]')


def _option(path: str) -> str:
    """Return a path as part of an option. Raises UserInputError for one that cannot be said there."""
    if _MEANING.search(path):
        raise UserInputError(
            f"Cloud Hypervisor cannot be told the path {path[:200]!r}: it has quotes or brackets in it",
            hint="put the file at another path",
        )
    return f'"{path}"' if "," in path else path


class CloudHypervisorMonitor(KvmMonitor):
    """Starts machines in Cloud Hypervisor. It always has a source of entropy."""

    program = "cloud-hypervisor"
    source = "put the program of a Cloud Hypervisor release on the PATH"

    def _orders(self, machine: Machine, kernel: str, place: StartPlace) -> Orders:
        """Return the command. Its virtual console would have the first name, so there is none."""
        argv = [self.program, "--cpus", f"boot={machine.cpus}", "--memory", f"size={machine.memory_bytes >> 10}K"]
        argv += ["--kernel", place.name(kernel), "--cmdline", words(machine)]
        argv += ["--console", "off", "--serial", "tty"]
        if machine.disks:
            argv += ["--disk"]
        for disk in machine.disks:
            read_only = ",readonly=on" if disk.mode is DiskMode.READ_ONLY else ""
            argv.append(f"path={_option(place.name(disk.path))}{read_only}")
        if machine.network:
            argv += ["--net", f"tap={place.tap},mac={MAC}"]
        return Orders(tuple(argv))
