# SPDX-License-Identifier: Apache-2.0
"""What is counted and marked in a boot, by addresses of code."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from vmtailor.model.architecture import presumed_name

#: The mark where the kernel proper begins.
START_KERNEL = "start_kernel"


@dataclass(frozen=True)
class CodeMark:
    """A phase ends and the next begins just before the instruction at `address` runs: the first or `every` time."""

    name: str
    address: int
    every: bool = False


@dataclass(frozen=True)
class CodeSpan:
    """The totals are noted whenever the instruction at `address` is reached."""

    name: str
    address: int


class CountingMode(StrEnum):
    """`counts`: every instruction exactly. `coverage`: entries of blocks only, cheaper. `settle`: nothing is counted;
    a device's work is only finished before the guest goes on."""

    COUNTS = "counts"
    COVERAGE = "coverage"
    SETTLE = "settle"


@dataclass(frozen=True)
class CodeOwner:
    """User code at start <= address < end belongs to `name`."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class CountingConfig:
    """What is counted in a boot.

    `kernel`: the address of start_kernel; code below the kernel's half before it is firmware and early kernel,
    afterwards user code, unless it is firmware that stays. By default that of the mark of that name.
    `devices`: count memory-mapped device accesses, and let a device's work finish before the guest goes on;
    without it, boots with disks differ a little. `architecture`: its name, as model/architecture.py knows it.
    """

    kernel: int | None = None
    mode: CountingMode = CountingMode.COUNTS
    devices: bool = True
    marks: tuple[CodeMark, ...] = ()
    spans: tuple[CodeSpan, ...] = ()
    owners: tuple[CodeOwner, ...] = ()
    architecture: str = field(default_factory=presumed_name)
