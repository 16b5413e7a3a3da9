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
    """One that is ready to be booted. `machine`: with the image as its root; `system_map`: its kernel's symbols;
    `kernel`: its release; `folder`: of the bundle that it is, empty for the stock one."""

    name: str
    machine: Machine
    system_map: str
    kernel: str
    folder: str = ""
