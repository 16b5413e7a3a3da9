# SPDX-License-Identifier: Apache-2.0
"""A machine to boot: everything QEMU is told, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from vmtailor.model.architecture import presumed_name


class MachineKind(StrEnum):
    MICROVM = "microvm"
    Q35 = "q35"


class Clock(StrEnum):
    """`instructions`: TCG with -icount, exact. `wall`: host time, KVM where it works."""

    INSTRUCTIONS = "instructions"
    WALL = "wall"


class Accelerator(StrEnum):
    TCG = "tcg"
    KVM = "kvm"


@dataclass(frozen=True)
class Disk:
    """A raw virtio disk; the first is /dev/vda."""

    path: str
    read_only: bool = True


@dataclass(frozen=True)
class PublishedPort:
    host_address: str
    host_port: int
    guest_port: int
    protocol: str = "tcp"


@dataclass(frozen=True)
class Machine:
    """One virtual machine. `network` adds a virtio network device behind QEMU's user-mode stack (no root). `acpi`: only
    for microvm, where a packaged kernel finds its devices no other way. `outbound`: the guest may open connections
    to the world; otherwise only published ports lead in. `host_loopback`: with `outbound`, to the servers on the
    host's loopback address, too (as 10.0.2.2)."""

    SCHEMA: ClassVar[str] = "vmtailor/machine/1"

    kind: MachineKind
    memory_bytes: int
    kernel: str
    append: tuple[str, ...] = ()
    initrd: str | None = None
    disks: tuple[Disk, ...] = ()
    network: bool = False
    ports: tuple[PublishedPort, ...] = ()
    cpus: int = 1
    cpu_model: str = "max"
    clock: Clock = Clock.INSTRUCTIONS
    accelerator: Accelerator = Accelerator.TCG
    acpi: bool = False
    outbound: bool = False
    host_loopback: bool = False
    architecture: str = field(default_factory=presumed_name)
