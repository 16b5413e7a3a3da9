# SPDX-License-Identifier: Apache-2.0
"""Disks beside the root: our init's orders for one run, and the tracer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vmtailor.model.machine import Disk, DiskMode, Machine


def with_run(machine: Machine, volume: str) -> Machine:
    """Return the machine with the run volume at a path, behind its own disks. The disk is writable, because init takes
    the key out of it."""
    disks = (*machine.disks, Disk(volume, mode=DiskMode.WRITTEN))
    return replace(machine, disks=disks, words=(*machine.words, "VT_RUN=1"))


def with_tools(machine: Machine, tools: Path) -> Machine:
    """Return the machine with the tracer's volume, behind the run volume. The suffix of its name tells its format."""
    words = (*machine.words, f"VT_TOOLS={tools.suffix.removeprefix('.')}")
    return replace(machine, disks=(*machine.disks, Disk(str(tools))), words=words)
