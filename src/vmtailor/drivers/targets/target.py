# SPDX-License-Identifier: Apache-2.0
"""The protocol of a target: a program or a service for which a bundle's machine is written as files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.holes import copy_with_holes
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.monitors import monitors
from vmtailor.model.architecture import named
from vmtailor.model.bundle import Bundle
from vmtailor.model.kernel_needs import KernelNeed, NeedPrice
from vmtailor.model.machine import Disk, Machine, PublishedPort

#: In place of an address: the guest gets one by DHCP.
DHCP = "dhcp"
#: The second command where the first one ends with the machine.
ENDED = 'echo "it ended with $?"'
#: Words for curl, which asks a machine that has just been started: each second, half a minute long.
_ASKS = "-sS --retry 30 --retry-delay 1 --retry-all-errors"


def asks(place: str) -> str:
    """Return the command that asks a machine's web server at ADDRESS:PORT once it is there."""
    return f"curl {_ASKS} http://{place}/"


@dataclass(frozen=True)
class TargetVariant:
    """A way in which a target can start a machine. `about`: in words. The first of a row is the usual one.
    `needs`, `architectures`, `address`, `console`, `tried` and `checked`: in place of the row's, where they are not
    empty.
    `kernel`: the form of the kernel that it takes, by its name in data/kernel_forms.toml; empty for the bundle's own
    file. `price`: of all that it needs."""

    name: str
    about: str
    needs: str = ""
    architectures: tuple[str, ...] = ()
    address: str = ""
    console: str = ""
    tried: str = ""
    checked: str = ""
    kernel: str = ""
    price: NeedPrice | None = None


@dataclass(frozen=True)
class TargetRow:
    """One row of data/targets. `title` is for people; `driver`: MODULE:CLASS of the target. `page`: of docs/how-to.
    `needs`: what must be installed where it is started, in words. `architectures`: by name. `systems`: it takes systems
    with an init of their own, too. `tap`: its network is a TAP device. `address`: of its network, as VT_NET has it;
    empty where the target gives one otherwise. `power_off`: a reset starts its machines again, so that they end by
    ACPI. `console`: what kernels call its serial line, where that is not the processor's usual one. `board`: its
    machines' kind, as the target calls it; `features`, `absent_timers`: of these, in the target's own words.
    `tried`: what vmtailor's tests do with its files, behind "vmtailor's tests"; empty where they start nothing of it.
    `checked`: a sentence of what is checked instead. `price`: of all that it needs; None where that was not fitted."""

    name: str
    title: str
    driver: str
    page: str
    needs: str
    architectures: tuple[str, ...]
    tried: str = ""
    checked: str = ""
    systems: bool = False
    tap: bool = False
    address: str = ""
    power_off: bool = False
    console: str = ""
    board: str = ""
    features: tuple[str, ...] = ()
    absent_timers: tuple[str, ...] = ()
    monitor: str = ""
    price: NeedPrice | None = None
    variant: tuple[TargetVariant, ...] = ()
    need: tuple[KernelNeed, ...] = ()
    tool: tuple[dict[str, Any], ...] = ()

    @property
    def variants(self) -> tuple[str, ...]:
        """Return the names of its variants, the usual one first."""
        return tuple(one.name for one in self.variant)

    def of(self, variant: str) -> TargetRow:
        """Return the row as it is for one of its variants."""
        own = next((one for one in self.variant if one.name == variant), None)
        if own is None:
            return self
        fields = {name: value for name in ("needs", "address", "console") if (value := getattr(own, name))}
        if own.tried or own.checked:
            fields |= {"tried": own.tried, "checked": own.checked}
        return replace(self, **fields)

    def needed(self, architecture: str, variant: str, *, network: bool = True) -> tuple[KernelNeed, ...]:
        """Return what kernels of a processor need for a variant."""
        return tuple(
            one
            for one in (*self.need, *(monitors.named(self.monitor).row.need if self.monitor else ()))
            if (not one.architectures or architecture in one.architectures)
            and (not one.variants or variant in one.variants)
            and (network or not one.network)
        )


@dataclass(frozen=True)
class ExportWishes:
    """The user's choices for an exported machine. Sizes in bytes; None and empty keep what the bundle has. `outbound`:
    the guest may open connections to the world; `tap`: the name of a TAP device; `address`: of the guest, as
    ADDRESS/PREFIX,GATEWAY[,DNS]; `env`: NAME=VALUE, over the image's; `command`: in place of the image's. `image`:
    where the target's image is pushed to. `patches`: those of the kernel's source that may be exported."""

    name: str = ""
    memory_bytes: int | None = None
    cpus: int | None = None
    ports: tuple[PublishedPort, ...] = ()
    outbound: bool = False
    tap: str = "tap0"
    address: str = ""
    env: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    image: str = ""
    patches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Export:
    """A machine to be written for a target. `machine` has the words and disks of the exported machine, its paths those
    of the bundle's files here. `name`: letters, digits and `-` alone. `volume`: content of the run volume, the second
    disk; None where there is none. `address`: of the guest, as VT_NET has it; empty where the target gives one
    otherwise, or there is no network. `form`: the kernel in the form that the variant takes; None for the bundle's
    own."""

    bundle: Bundle
    files: BundleFolder
    machine: Machine
    variant: str
    name: str
    wishes: ExportWishes
    config: Mapping[str, str]
    volume: bytes | None = None
    address: str = ""
    form: Path | None = None

    @property
    def is_system(self) -> bool:
        """Return whether it is a system with an init of its own."""
        return self.files.is_system

    @property
    def kernel(self) -> Path:
        """Return the kernel in the variant's form, or the bundle's own file, checked."""
        return self.form or Path(self.machine.kernel or "")

    @property
    def root(self) -> Path:
        """Return the file of the first disk, checked."""
        return Path(self.machine.disks[0].path)

    @property
    def kernel_name(self) -> str:
        """Return the kernel's name in the export: `vmlinux`, or as its processor or its form calls it."""
        return self.form.name if self.form is not None else Path(named(self.bundle.architecture).kernel.file).name


@dataclass(frozen=True)
class Guide:
    """Tell a person what to do with an export. `first`: the command that prepares or starts; `second`: the one that
    shows that it works. Both are lines of a shell in the export's folder. `notes`: lines of Markdown.
    `unproven`: what could not be started here, and what was checked instead; empty where it was started."""

    first: str
    second: str
    notes: tuple[str, ...] = ()
    unproven: str = ""


@dataclass
class ExportFolder:
    """The folder that an export is written to, before it gets its place. Names are relative and plain."""

    path: Path
    written: list[str] = field(default_factory=list)

    def text(self, name: str, content: str | bytes, *, executable: bool = False) -> Path:
        """Write a file, and return its path."""
        target = self._new(name)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(0o755 if executable else 0o644)
        return target

    def copy(self, source: Path, name: str) -> Path:
        """Copy a file, its holes kept, and return the copy's path."""
        target = self._new(name)
        copy_with_holes(source, target)
        target.chmod(0o644)
        return target

    def made(self, name: str) -> Path:
        """Return the path of a file that a tool is to write."""
        return self._new(name)

    def disks(self, export: Export) -> tuple[Disk, ...]:
        """Copy a machine's disks: root.erofs or disk.qcow2, and run.img; return them by their names here."""
        found = []
        for disk in export.machine.disks:
            name = Path(disk.path).name
            self.copy(Path(disk.path), name)
            found.append(Disk(name, disk.format, disk.mode))
        if export.volume is not None:
            self.text("run.img", export.volume).chmod(0o600)  # it may hold secrets of the environment
            found.append(Disk("run.img"))
        return tuple(found)

    def _new(self, name: str) -> Path:
        assert name not in self.written and not Path(name).is_absolute() and ".." not in Path(name).parts
        self.written.append(name)
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


class ExportTarget(ABC):
    """Writes machines for one program or service."""

    def __init__(self, row: TargetRow) -> None:
        self.row = row

    def refusal(self, export: Export) -> UserInputError | None:
        """Return the error for a machine that this target cannot start for another reason than its kernel's symbols,
        which are checked before."""
        return None

    @abstractmethod
    def write(self, export: Export, folder: ExportFolder) -> Guide:
        """Write an export's files, without its README, and return what a person does with them. Raises UserInputError
        for values that the target's formats cannot hold, HostError where a tool is missing."""

    def refuse(self, why: str, hint: str) -> UserInputError:
        """Return the error for a machine that this target cannot have."""
        return UserInputError(f"{self.row.title} cannot start this bundle: {why}", hint=hint)
