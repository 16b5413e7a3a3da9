# SPDX-License-Identifier: Apache-2.0
"""The driver of a monitor that is not QEMU (toyvm, beside this file): all that it needs besides its row of data."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vmtailor.base.natives import Natives
from vmtailor.base.process import pasteable, spawn
from vmtailor.drivers.confinement import confinement
from vmtailor.drivers.guest.serial_line import SerialLine
from vmtailor.drivers.monitors.monitor import KvmState, KvmVerdict, Monitor, Wants
from vmtailor.drivers.monitors.running_machine import Lines, RunningMachine
from vmtailor.drivers.monitors.supervised_start import MEMORY, RUN_VOLUME, SupervisedStart
from vmtailor.model.guest_mounts import Share
from vmtailor.model.machine import DiskMode, Machine

PROGRAM = Path(__file__).with_name("toyvm")


def configuration(machine: Machine) -> dict[str, Any]:
    """Return what the monitor is told of a machine."""
    drives = [{"path": disk.path, "is_read_only": disk.mode is DiskMode.READ_ONLY} for disk in machine.disks]
    return {
        "boot-source": {"kernel_image_path": machine.kernel, "boot_args": " ".join(machine.words)},
        "machine-config": {"vcpu_count": machine.cpus, "mem_size_mib": machine.memory_bytes >> 20},
        "drives": drives,
    }


class ToyMachine(RunningMachine):
    """A machine under way in this monitor."""

    title = "Toy VM"


class ToyMonitor(Monitor):
    """Starts machines with a configuration file, and asks them nothing."""

    def command(self, machine: Machine) -> list[str]:
        """Return the command, with the configuration in the place of its file."""
        return [str(PROGRAM), "--config-file", json.dumps(configuration(machine))]

    @contextlib.contextmanager
    def run(self, machine: Machine, wants: Wants) -> Iterator[RunningMachine]:
        """Write the configuration and start the program, its standard output as the serial line."""
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            config = folder / "machine.json"
            config.write_text(json.dumps(configuration(machine)))
            errors, serial = stack.enter_context(tempfile.TemporaryFile()), stack.enter_context(SerialLine())
            argv = [str(PROGRAM), "--config-file", str(config)]
            process = stack.enter_context(
                spawn(argv, stdin=serial.guest_in, stdout=serial.guest_out, stderr=errors, env=None)
            )
            serial.started()
            yield ToyMachine(process, Lines(serial), pasteable(self.command(machine)), errors)

    def supervised(self, machine: Machine, shares: tuple[Share, ...] = ()) -> SupervisedStart:
        """Return the program with its configuration, which it inherits."""
        described = configuration(machine)
        for drive in described["drives"]:
            drive["path"] = drive["path"].replace(RUN_VOLUME, f"/proc/self/fd/{MEMORY}")
        words = [str(PROGRAM), "--config", json.dumps(described)]
        return SupervisedStart((str(confinement.launcher()), "--", *words), pasteable(self.command(machine)))

    def version(self, architecture: str) -> str:
        """Return its version."""
        return "1.0"

    def identity(self, architecture: str, natives: Natives) -> tuple[str | Path, ...]:
        """Return its program: it has no firmware."""
        return (PROGRAM,)

    def kvm(self) -> KvmVerdict:
        """Return that it would work."""
        return KvmVerdict(KvmState.WORKS)
