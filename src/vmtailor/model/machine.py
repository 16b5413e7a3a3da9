# SPDX-License-Identifier: Apache-2.0
"""A machine to boot, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from vmtailor.base.files.portable import FileName
from vmtailor.base.files.records import Older
from vmtailor.model.architecture import Board, named, presumed_name


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
    """The ways to treat the guest's writes to a disk."""

    READ_ONLY = "read-only"  # the guest cannot write
    OVERLAID = "overlaid"  # the monitor keeps it in a temporary file: the image stays as it is
    WRITTEN = "written"


@dataclass(frozen=True)
class Disk:
    """A virtio disk; the first is /dev/vda."""

    path: FileName
    format: DiskFormat = DiskFormat.RAW
    mode: DiskMode = DiskMode.READ_ONLY


@dataclass(frozen=True)
class PublishedPort:
    """A port of the guest on the host. `host_port` 0: any that is free."""

    host_address: str
    host_port: int
    guest_port: int
    protocol: str = "tcp"

    @property
    def six(self) -> bool:
        """Return whether the host's address is one of IPv6."""
        return ":" in self.host_address

    @property
    def host_place(self) -> str:
        """Return address and port on the host, such as `[::1]:8080`."""
        return f"[{self.host_address}]:{self.host_port}" if self.six else f"{self.host_address}:{self.host_port}"


class TalkLine(StrEnum):
    """The line on which our init and the host talk. The kernel's own messages are on the serial line in any case."""

    SERIAL = "serial"
    VIRTIO = "virtio"  # a port of a virtio console: streams go in blocks


class Devices(StrEnum):
    """The devices of a machine besides its disks and ports, in their order."""

    BARE = "bare"  # nothing that it was not fitted for: disks, then a network device for IPv4 without a boot ROM
    USUAL = "usual"  # what a whole system expects of such a machine, first the network device


#: CPU models that every monitor knows: this host's own, as it is; all that the monitor can give.
HOST_CPU, MOST_CPU = "host", "max"
#: The address of a machine's network device.
USUAL_MAC = "52:54:00:12:34:56"
#: The monitor of machines that name none, and of records that are older than the others.
USUAL_MONITOR = "qemu"
#: Begins the name of a monitor that is started in the lab (drivers/lab), and not on this host.
LAB = "lab/"


def _renewed(old: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a vmtailor/machine/2 as this version calls them."""
    names = {"kind": "board", "append": "words", "options": "extras"}
    found = {names.get(name, name): value for name, value in old.items()}
    typed, words = found.pop("machine_options", []), found.get("extras", [])
    if not isinstance(typed, list) or not isinstance(words, list):
        return old
    if words[-2:-1] == ["-bios"]:
        words, found["firmware"] = words[:-2], words[-1]
    found["extras"] = [*words, *(("-machine", ",".join(map(str, typed))) if typed else ())]
    return found


# vmtailor/machine/1: of containers only; disks were raw, and either read-only or written. A machine with an init of
#     its own was another record.
# vmtailor/machine/2: one record for both: `devices`, `entropy`, `machine_options` and `options`; a disk has a format
#     and a mode; without `kernel`, the loader on the first disk starts. All monitors but QEMU were unknown.
# vmtailor/machine/3: `board` was `kind`, `words` was `append`, `extras` was `options`; `monitor` and `firmware`. In
#     records without `line`, it is the serial line. Later ones have `mac`, `tap` and `network6`.
@dataclass(frozen=True)
class Machine:
    """One virtual machine, in words that no monitor calls its own.

    `board` is one of its `architecture` (both by name; model/architecture.py): it says where devices are found.
    Without a `kernel` the first disk's own loader starts; `words` are the kernel's command line. `firmware`: another
    than the board's, by a name that the monitor knows. `acpi`: with the tables of firmware, where a packaged kernel
    finds its devices no other way.

    `cpu_model`: HOST_CPU, MOST_CPU, or a model that the monitor knows; features follow it, separated by commas.
    `entropy`: a device that gives the host's randomness. `pace`: on the instruction clock an instruction takes 2**pace
    times as long as its processor's usually do.

    `network` adds a virtio network device, for which no root is needed. `network6`: the guest's address in an IPv6
    network that the monitor's own is, too, as `ADDRESS/PREFIX`; empty: it is none. `outbound`: the guest may open
    connections to the world; otherwise only published ports lead in. `host_loopback`: with `outbound`, to the servers
    on the host's loopback address, too. `mac`: its own address. `tap`: a TAP device of the host that it leads to, in
    place of the monitor's own network. `line`: where our init and the host talk.

    `monitor` starts the machine. `extras` are further words for this one monitor, as it spells them."""

    SCHEMA: ClassVar[str] = "vmtailor/machine/3"
    OLDER: ClassVar[Older] = {"vmtailor/machine/2": _renewed}

    board: str
    memory_bytes: int
    kernel: FileName | None = None
    words: tuple[str, ...] = ()
    initrd: FileName | None = None
    disks: tuple[Disk, ...] = ()
    network: bool = False
    ports: tuple[PublishedPort, ...] = ()
    cpus: int = 1
    cpu_model: str = MOST_CPU
    clock: Clock = Clock.INSTRUCTIONS
    accelerator: Accelerator = Accelerator.TCG
    acpi: bool = False
    outbound: bool = False
    host_loopback: bool = False
    devices: Devices = Devices.BARE
    entropy: bool = False
    firmware: str | None = None
    extras: tuple[str, ...] = ()
    architecture: str = field(default_factory=presumed_name)
    pace: int = 0
    monitor: str = USUAL_MONITOR
    mac: str = USUAL_MAC
    tap: str = ""
    network6: str = ""
    line: TalkLine = TalkLine.SERIAL

    @property
    def hardware(self) -> Board:
        """Return what is known of its board. Raises UserInputError for one that its architecture does not have."""
        return named(self.architecture).board_named(self.board)

    @property
    def files(self) -> dict[str, str]:
        """Return the paths of what a monitor loads, by name: the kernel, the initial RAM disk."""
        loaded = {"kernel": self.kernel, "initrd": self.initrd}
        return {name: path for name, path in loaded.items() if path}


def with_machine(old: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose field `machine` is a vmtailor/machine/2, with this version's in its place."""
    machine = old.get("machine")
    return {**old, "machine": _renewed(machine)} if isinstance(machine, dict) else old
