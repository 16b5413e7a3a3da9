# SPDX-License-Identifier: Apache-2.0
"""One way to boot a machine, however it is driven."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from vmtailor.booting import container_boot, signal_boot, system_boot
from vmtailor.booting.boot_counter import Counting, settling
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.workload import Attended, Exercised, Workload
from vmtailor.model.machine import Machine

#: Called with the host seconds since the start, while a machine runs.
OnProgress = Callable[[float], None]


def boot(
    machine: Machine,
    workload: Workload,
    scratch: Path,
    *,
    counting: Counting | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[Boot, Gathered]:
    """Start a machine, drive it by its workload, and wait for the end. A guest that crashes, hangs or never gets ready
    is a result; HostError or GuestError are raised when the monitor itself does not start. Nothing is left running,
    whatever happens. `scratch`: where temporary files may lie; `counting`: what the plugin counts. On the instruction
    clock the guest waits for its disks in any case (`settling`)."""
    if counting is None:
        counting = settling(machine)
    if isinstance(workload, Exercised):
        return container_boot.boot(machine, workload, scratch, counting, on_progress)
    if isinstance(workload, Attended):
        return system_boot.boot(machine, workload, scratch, counting, on_progress)
    return signal_boot.boot(machine, workload, scratch, counting, on_progress)


class Booter(Protocol):
    """Boots a machine as `boot` does; on the way, it may make it one that can be counted."""

    def __call__(
        self, machine: Machine, workload: Workload, scratch: Path, *, on_progress: OnProgress | None = None
    ) -> tuple[Boot, Gathered]: ...
