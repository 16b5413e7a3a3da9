# SPDX-License-Identifier: Apache-2.0
"""Virtual machines among the ways to run a container."""

from __future__ import annotations

from dataclasses import dataclass

from vmtailor.model.machine import Machine

#: What begins the name of every one, and that of the image on the distribution's packaged kernel.
VM = "vm:"
STOCK = "vm:stock"


@dataclass(frozen=True)
class BenchMachine:
    """One that is ready to be booted. `machine`: with the image as its root; `kernel`: its release; `system_map`: the
    symbols of the stock one's kernel; `folder`: of the bundle that any other is. `subsystems`: the file that says which
    subsystem each function of its kernel is of; empty where that is not known. `digest`: of the bundle or the disk,
    as much of it as tells it from others."""

    name: str
    machine: Machine
    kernel: str
    system_map: str = ""
    folder: str = ""
    subsystems: str = ""
    digest: str = ""


@dataclass(frozen=True)
class BenchInside:
    """A machine in which engines run: a system of the user's, on its first disk, with the image's files on the second
    one and ours on the third. `root`, `root_type`, `init`: where its system is, and what is started there; `writable`:
    whether it is mounted so. `disk`: the file, as the user named it."""

    machine: BenchMachine
    disk: str
    root: str
    root_type: str
    init: str
    writable: bool
