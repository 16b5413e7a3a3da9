# SPDX-License-Identifier: Apache-2.0
"""A machine to boot, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from vmtailor.model.architecture import MachineType, named, presumed_name


class Clock(StrEnum):
    """`instructions`: TCG with -icount, exact. `wall`: host time, KVM where it works."""

    INSTRUCTIONS = "instructions"
    WALL = "wall"


class Accelerator(StrEnum):
    TCG = "tcg"
    KVM = "kvm"


class DiskFormat(StrEnum):
    RAW = "raw"
    QCOW2 = "qcow2"


class DiskMode(StrEnum):
    """What becomes of what the guest writes to a disk."""

    READ_ONLY = "read-only"  # the guest cannot write
    OVERLAID = "overlaid"  # QEMU keeps it in a temporary file: the image stays as it is
    WRITTEN = "written"


@dataclass(frozen=True)
class Disk:
    """A virtio disk; the first is /dev/vda."""

    path: str
    format: DiskFormat = DiskFormat.RAW
    mode: DiskMode = DiskMode.READ_ONLY


@dataclass(frozen=True)
class PublishedPort:
    """A port of the guest on the host. `host_port` 0: any that is free."""

    host_address: str
    host_port: int
    guest_port: int
    protocol: str = "tcp"


class Devices(StrEnum):
    """What a machine has besides its disks and ports, and in which order."""

    BARE = "bare"  # nothing that it was not fitted for: disks, then a network device for IPv4 without a boot ROM
    USUAL = "usual"  # what a whole system expects of such a machine, first the network device


# vmtailor/machine/1: of containers only; disks were raw, and either read-only or written. A machine with an init of
#     its own was another record.
# vmtailor/machine/2: one record for both: `devices`, `entropy`, `machine_options` and `options`; a disk has a format
#     and a mode; without `kernel`, the loader on the first disk starts.
@dataclass(frozen=True)
class Machine:
    """One virtual machine: everything that QEMU is told. Without a `kernel` the first disk's own loader starts.

    `kind` is one of the machines of its `architecture` (both by name; model/architecture.py). `network` adds a virtio
    network device behind QEMU's user-mode stack (no root). `acpi`: with the tables of firmware, where a packaged kernel
    finds its devices no other way. `outbound`: the guest may open connections to the world; otherwise
    only published ports lead in. `host_loopback`: with `outbound`, to the servers on the host's loopback address, too
    (as 10.0.2.2). `entropy`: a device that gives the host's randomness. `machine_options` go with QEMU's machine type,
    `options` are further arguments. `pace`: on the instruction clock an instruction takes 2**pace times as
    long as its processor's usually do."""

    SCHEMA: ClassVar[str] = "vmtailor/machine/2"

    kind: str
    memory_bytes: int
    kernel: str | None = None
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
    devices: Devices = Devices.BARE
    entropy: bool = False
    machine_options: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    architecture: str = field(default_factory=presumed_name)
    pace: int = 0

    @property
    def type(self) -> MachineType:
        """What is known of such a machine. Raises UserInputError for a kind that its architecture does not have."""
        return named(self.architecture).machine_type(self.kind)

    @property
    def files(self) -> dict[str, str]:
        """The files that QEMU opens by name: what it calls each → its path."""
        asked = {"kernel": self.kernel, "initrd": self.initrd}
        return {called: path for called, path in asked.items() if path}
