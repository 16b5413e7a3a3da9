# SPDX-License-Identifier: Apache-2.0
"""A system with an init of its own: what it is, read from its files without starting it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar


class SubjectKind(StrEnum):
    """The kinds of places where a system is kept. The value is the prefix of its reference."""

    DISK = "disk"
    ROOT = "rootfs"
    IMAGE = "image"


class TableKind(StrEnum):
    """The kinds of partition tables."""

    NONE = "none"  # one file system fills it
    MBR = "mbr"
    GPT = "gpt"


@dataclass(frozen=True)
class Partition:
    """A stretch of a disk. `type`: the table's number or GUID. `content`: what is in it, as libblkid calls it (ext4,
    vfat, swap …); empty where that is not known. `uuid`, `label`: of what is in it; `partition_uuid`: of the table's
    entry."""

    number: int
    start_bytes: int
    size_bytes: int
    type: str = ""
    content: str = ""
    uuid: str = ""
    label: str = ""
    partition_uuid: str = ""


@dataclass(frozen=True)
class VolumeSegment:
    """A stretch of a volume: a part of the partition `partition` (0: of the whole disk), from `start_bytes` on."""

    partition: int
    start_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class LinearVolume:
    """A linear logical volume of LVM, its segments in their order. `id`: as the device mapper has it (`LVM-…`).
    `content`, `uuid`, `label`: as of a partition."""

    group: str
    name: str
    id: str
    segments: tuple[VolumeSegment, ...]
    content: str = ""
    uuid: str = ""
    label: str = ""

    @property
    def full_name(self) -> str:
        """Return `GROUP/NAME`, as LVM's commands take it."""
        return f"{self.group}/{self.name}"

    @property
    def mapped_name(self) -> str:
        """Return the name below /dev/mapper."""
        return f"{self.group.replace('-', '--')}-{self.name.replace('-', '--')}"

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.segments)


@dataclass(frozen=True)
class DiskLayout:
    """A disk image. `root`: the number of the partition that has the system; 0 where one file system fills the disk.
    `boot`: that of a partition of its own for /boot; 0 for none. `firmware`: what its loaders start from (`bios`,
    `uefi`); none where it can only be booted with a kernel from outside. `volumes`: LVM's; `root_volume`: the one that
    has the system (`GROUP/NAME`), whose first segment lies on the partition `root`; empty for none. `root_type`: the
    file system of the system."""

    format: str
    size_bytes: int
    table: TableKind
    partitions: tuple[Partition, ...]
    root: int = 0
    boot: int = 0
    firmware: tuple[str, ...] = ()
    volumes: tuple[LinearVolume, ...] = ()
    root_volume: str = ""
    root_type: str = "ext4"

    @property
    def volume(self) -> LinearVolume | None:
        """Return the volume that has the system; None where it is on a partition of its own."""
        return next((one for one in self.volumes if one.full_name == self.root_volume), None)


@dataclass(frozen=True)
class OsRelease:
    """The fields of os-release; a missing one is empty."""

    id: str = ""
    version_id: str = ""
    codename: str = ""
    pretty_name: str = ""


class InitKind(StrEnum):
    SYSTEMD = "systemd"
    SYSVINIT = "sysvinit"
    OPENRC = "openrc"
    RUNIT = "runit"
    BUSYBOX = "busybox"
    SCRIPT = "script"
    OTHER = "other"


@dataclass(frozen=True)
class Init:
    """The program that the kernel starts: `path` as it is asked for, `program` where that leads."""

    path: str
    program: str
    kind: InitKind


@dataclass(frozen=True)
class InstalledKernel:
    """A kernel of the system; paths are inside it, and empty for what is not there. `modules`, `modules_bytes`: files
    below the folder of its modules, packed as they are."""

    release: str
    image: str = ""
    image_bytes: int = 0
    config: str = ""
    initrd: str = ""
    initrd_bytes: int = 0
    modules: int = 0
    modules_bytes: int = 0


@dataclass(frozen=True)
class LoaderEntry:
    """One entry of a boot loader. `kernel`, `initrd`: paths inside the system. `words`: the kernel's command line.
    `source`: the file that has it. `chosen`: the loader starts it by default."""

    title: str
    kernel: str
    initrd: tuple[str, ...]
    words: tuple[str, ...]
    source: str
    chosen: bool = False


@dataclass(frozen=True)
class Mount:
    """A line of /etc/fstab."""

    device: str
    place: str
    type: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class EnabledUnit:
    """A service that starts by itself. `wanted_by`: the target, or the run level."""

    name: str
    wanted_by: str


# vmtailor/subject/1: first.
# vmtailor/subject/2: of a disk its LVM volumes, and the file system of the root.
@dataclass(frozen=True)
class System:
    """A system as it was read from its disk or image. `identity`: differs when the content differs. `kernel`: the
    release that starts by default; empty for a system without a kernel. `masked`: names of units that are switched off.
    `notes`: remarks for the reader, in sentences."""

    SCHEMA: ClassVar[str] = "vmtailor/subject/2"
    OLDER: ClassVar[Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
        "vmtailor/subject/1": lambda document: document,
    }

    reference: str
    kind: SubjectKind
    architecture: str
    os: OsRelease
    init: Init
    kernel: str
    kernels: tuple[InstalledKernel, ...]
    entries: tuple[LoaderEntry, ...]
    mounts: tuple[Mount, ...]
    units: tuple[EnabledUnit, ...]
    masked: tuple[str, ...] = ()
    default_target: str = ""
    disk: DiskLayout | None = None
    identity: str = ""
    notes: tuple[str, ...] = ()

    @property
    def installed(self) -> InstalledKernel | None:
        """Return the kernel that starts by default."""
        return next((one for one in self.kernels if one.release == self.kernel), None)

    @property
    def root_word(self) -> str:
        """Return the word by which a kernel mounts the root if no loader's entry says it. An init mounts again, for
        writing, what /etc/fstab has a line for; without one the root would never be written."""
        return "ro" if any(mount.place == "/" for mount in self.mounts) else "rw"

    @property
    def entry(self) -> LoaderEntry | None:
        """Return the loader's entry that starts by default."""
        return next((one for one in self.entries if one.chosen), None)
