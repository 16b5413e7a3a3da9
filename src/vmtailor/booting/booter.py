# SPDX-License-Identifier: Apache-2.0
"""The one function that boots a machine, whatever drives it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from vmtailor.base.cache import core_bookings
from vmtailor.base.cache.core_bookings import CoreShare
from vmtailor.base.files import temporary
from vmtailor.booting import container_boot, signal_boot, system_boot
from vmtailor.booting.boot_counter import Counting, settling
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.workload import Attended, Exercised, Workload
from vmtailor.model.machine import Clock, Machine

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
    is a result. Raises HostError or GuestError when the monitor itself does not start. No process is left running.
    `scratch`: place for temporary files. `counting`: the counts of the plugin. On the instruction clock the guest
    always waits for its disks (`settling`)."""
    if counting is None:
        counting = settling(machine)
    with core_bookings.booked(CoreShare.ONE if machine.clock is Clock.INSTRUCTIONS else CoreShare.ALL):
        if isinstance(workload, Exercised):
            return container_boot.boot(machine, workload, scratch, counting, on_progress)
        if isinstance(workload, Attended):
            found = system_boot.boot(machine, workload, scratch, counting, on_progress)
        else:
            found = signal_boot.boot(machine, workload, scratch, counting, on_progress)
    temporary.require_room(scratch)  # a log that ends where the disk was full looks like a whole one
    return found


class Booter(Protocol):
    """A function that boots a machine as `boot` does; it may first make it one that can be counted."""

    def __call__(
        self, machine: Machine, workload: Workload, scratch: Path, *, on_progress: OnProgress | None = None
    ) -> tuple[Boot, Gathered]: ...
