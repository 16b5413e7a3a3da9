# SPDX-License-Identifier: Apache-2.0
"""libkrun as a monitor: a library, and a small program of ours that calls it (native/krun-start)."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base import natives
from vmtailor.base.errors import HostError
from vmtailor.base.natives import Natives
from vmtailor.base.process import run
from vmtailor.drivers.monitors import processor_table
from vmtailor.drivers.monitors.kvm_monitor import MAC, KvmMonitor, mebibytes, words
from vmtailor.drivers.monitors.monitor import Orders, StartPlace
from vmtailor.model.architecture import Packing, named
from vmtailor.model.machine import DiskMode, Machine

#: Formats of kernels, as krun_set_kernel numbers them: a file that is copied, as it is, and an ELF file.
_RAW, _ELF = 0, 1


class LibkrunMonitor(KvmMonitor):
    """Starts machines in libkrun, which adds a balloon and a source of entropy to each, before its disks."""

    program = "krun-start"
    source = "tools/build_libkrun.py, in a source tree of vmtailor, builds libkrun.so.1"

    def _orders(self, machine: Machine, kernel: str, place: StartPlace) -> Orders:
        """Return the command."""
        is_elf = named(machine.architecture).kernel.packing is Packing.ELF
        argv = [self.program, "cpus", str(machine.cpus), "memory", str(mebibytes(machine))]
        argv += ["format", str(_ELF if is_elf else _RAW), "kernel", place.name(kernel), "words", words(machine)]
        for disk in machine.disks:
            argv += ["disk" if disk.mode is DiskMode.READ_ONLY else "written", place.name(disk.path)]
        if machine.network:
            argv += ["tap", place.tap, MAC]
        if processor_table.is_read_by(Path(kernel)):
            argv += ["without", "pic"]
        return Orders(tuple(argv))

    def _program(self) -> str:
        return str(natives.locate().krun_start)

    def identity(self, architecture: str, natives: Natives) -> tuple[str | Path, ...]:
        """Return our program and the library that it finds, by their content."""
        self.version(architecture)
        return (natives.krun_start, self.library())

    def library(self) -> Path:
        """Return the file of the library that the program finds. Raises HostError when it finds none."""
        said = run([self._program(), *self.asked], timeout_s=20, ok=range(-64, 256))
        path = Path(said.text.strip())
        if said.returncode or not path.is_file():
            raise HostError("libkrun.so.1 is not installed", hint=self.source, details=said.error_text)
        return path

    def version(self, architecture: str) -> str:
        """Return the library's version, which the name of its file ends with; libkrun does not say it otherwise.
        Raises HostError when there is no library."""
        name = self.library().name
        return name.rpartition(".so.")[2] or name
