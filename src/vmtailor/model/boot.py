# SPDX-License-Identifier: Apache-2.0
"""One start of a machine, with its milestones on one clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class Phase(StrEnum):
    """The stretches of a boot, in their order. Each begins at the mark of the same name."""

    FIRMWARE = "firmware"  # reset → kernel entered (decompression included, where there is one)
    KERNEL = "kernel"  # kernel entered → first instruction of our PID 1 on the real root
    INIT = "init"  # PID 1 → entry point executed
    START_UP = "start-up"  # entry point executed → ready
    SETTLE = "settle"  # ready → the guest is at rest, and its load begins
    LOAD = "load"
    STOP = "stop"


@dataclass(frozen=True)
class Milestone:
    """`executed`: instructions since reset. `virtual_ns`: executed plus waited, where known. `wall_s`: of QEMU."""

    name: str
    executed: int | None = None
    virtual_ns: int | None = None
    wall_s: float | None = None


@dataclass(frozen=True)
class PhaseCounts:
    """Exact counts of one phase. `client_*` is what the exercise's own client cost, kept apart."""

    phase: Phase
    kernel: int
    user: int
    client_kernel: int = 0
    client_user: int = 0
    port_accesses: int | None = None
    mmio_accesses: int | None = None


@dataclass(frozen=True)
class FunctionCost:
    """Instructions executed in one function itself (not in what it called), by phase. `port_accesses`: its accesses to
    ports, a repeated string instruction as one."""

    function: str
    phase: Phase
    instructions: int
    port_accesses: int = 0


@dataclass(frozen=True)
class Boot:
    """What one boot gave. `exit_code` is the container's; `answers_right` the exercise's word (None: not driven)."""

    SCHEMA: ClassVar[str] = "vmtailor/boot/1"

    milestones: tuple[Milestone, ...]
    phases: tuple[PhaseCounts, ...]
    functions: tuple[FunctionCost, ...]
    exit_code: int | None
    answers_right: bool | None
    requests: int
    stdout: str
    stderr: str
    console: str
    failures: tuple[str, ...]
    command: str
    wall_seconds: float
    conditions: tuple[tuple[str, str], ...]

    def milestone(self, name: str) -> Milestone | None:
        return next((m for m in self.milestones if m.name == name), None)
