# SPDX-License-Identifier: Apache-2.0
"""The disk that tells our init what to do in one run."""

from __future__ import annotations

from dataclasses import replace

from vmtailor.model.machine import Disk, DiskMode, Machine


def with_run(machine: Machine, volume: str) -> Machine:
    """The machine with the run volume at a path, behind its own disks. Init takes the key out of it: it is written."""
    disks = (*machine.disks, Disk(volume, mode=DiskMode.WRITTEN))
    return replace(machine, disks=disks, append=(*machine.append, "VT_RUN=1"))
