# SPDX-License-Identifier: Apache-2.0
"""Mounts of a run: what the machine has of them, and init's orders."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.shares import file_servers, volumes
from vmtailor.model.architecture import Bus
from vmtailor.model.guest_mounts import FOLDERS, FOLDERS_9P, GROUPS, VOLUMES, GuestMount, MountKind, Share
from vmtailor.model.machine import Disk
from vmtailor.pipeline.mount_words import WantedMount

#: Most mounts of a machine.
MOST = 16
#: Transports of a board that has no PCI.
_TRANSPORTS = 8
_TAG = "vtfs{}"


@dataclass(frozen=True)
class Mounted:
    """The mounts of a machine: what it shares, its further disks behind init's own, and init's orders. `locks`:
    descriptors that hold volumes against other machines as long as anybody has them."""

    shares: tuple[Share, ...] = ()
    disks: tuple[Disk, ...] = ()
    orders: tuple[GuestMount, ...] = ()
    locks: tuple[int, ...] = ()


def require_meant(wanted: Sequence[WantedMount], files: BundleFolder) -> None:
    """Raise UserInputError for mounts that a bundle's machine cannot have, with the command that makes one that can."""
    if not wanted:
        return
    if len(wanted) > MOST:
        raise UserInputError(f"{len(wanted)} mounts are too many for a machine", hint=f"at most {MOST}")
    seen: set[str] = set()
    for one in wanted:
        if one.target in seen:
            raise UserInputError(
                f"two mounts have the same target {plain(one.target)}", hint="give each a target of its own"
            )
        seen.add(one.target)
    groups = lacking(wanted, files)
    if groups:
        says = f"cannot mount {words(groups)}: it lacks {_symbols(groups, files)}"
        if not files.is_fitted:
            raise UserInputError(
                f"this family kernel {says}",
                hint=f"{family_command(groups)} makes one that can, which takes minutes; the next run takes it",
            )
        raise UserInputError(
            f"the kernel of {files.path} {says}",
            hint=f"vmtailor refit {files.path} --keep {','.join(groups)} makes a second kernel, which takes minutes",
        )
    by_9p = MountKind.FOLDER in {one.kind for one in wanted} and way_of_folders(files)[0] is MountKind.FOLDER_9P
    if not guest_volume.can_mount(files.init, by_9p=by_9p):
        raise UserInputError(
            f"the init of {files.path} is too old to mount anything",
            hint="fit the image again",
        )


def lacking(wanted: Sequence[WantedMount], files: BundleFolder) -> list[str]:
    """Return the groups of symbols, by their words of --keep, that these mounts need and a bundle's kernel lacks. For
    folders one of two groups is enough."""
    kinds = {one.kind for one in wanted}
    found = []
    if MountKind.FOLDER in kinds and not (_has(files, FOLDERS) or _has(files, FOLDERS_9P)):
        found.append(FOLDERS if file_servers.place() is not None else FOLDERS_9P)
    if MountKind.VOLUME in kinds and not _has(files, VOLUMES):
        found.append(VOLUMES)
    return found


def family_command(groups: Sequence[str]) -> str:
    """Return the command that makes a family kernel with these groups. It has all but 9p by itself."""
    return "vmtailor family build" + (f" --keep {FOLDERS_9P}" if FOLDERS_9P in groups else "")


def words(groups: Sequence[str]) -> str:
    """Return what these groups mount, in words."""
    return " and ".join("volumes" if name == VOLUMES else "folders of the host" for name in groups)


def _symbols(groups: Sequence[str], files: BundleFolder) -> str:
    return ", ".join(symbol for name in groups for symbol in GROUPS[name] if files.config.get(symbol) != "y")


def _has(files: BundleFolder, group: str) -> bool:
    return all(files.config.get(symbol) == "y" for symbol in GROUPS[group])


def way_of_folders(files: BundleFolder) -> tuple[MountKind, str]:
    """Return how a bundle's machine on this host mounts folders, and why it is 9p; empty where it is virtiofs."""
    if not _has(files, FOLDERS_9P) or (_has(files, FOLDERS) and file_servers.place() is not None):
        return MountKind.FOLDER, ""
    why = "this host has no virtiofsd" if _has(files, FOLDERS) else "the kernel has no VIRTIO_FS"
    return MountKind.FOLDER_9P, why


def held(wanted: Sequence[WantedMount], first_disk: int, folders: MountKind = MountKind.FOLDER) -> Mounted:
    """Find what is mounted, make what is made, and hold volumes against other machines. `first_disk`: the number of the
    first further disk; `folders`: how folders are mounted. Raises UserInputError for what is not there, and for a
    volume that another machine uses."""
    shares: list[Share] = []
    disks: dict[str, Disk] = {}
    orders: list[GuestMount] = []
    locks: list[int] = []
    # As engines do it: what lies below another mount comes after it.
    for one in sorted(wanted, key=lambda one: one.target.count("/")):
        order = GuestMount(
            kind=one.kind, target=one.target, read_only=one.read_only, options=one.options,
            as_image=one.kind is MountKind.VOLUME and one.as_image,
        )  # fmt: skip
        if one.kind is MountKind.FOLDER:
            shares.append(replace(_share(one, len(shares)), by=folders))
            order = replace(order, kind=folders, source=shares[-1].tag, single_file=shares[-1].single_file)
        elif one.kind is MountKind.VOLUME:
            if one.source not in disks:
                disks[one.source], lock = volumes.held(one.source)
                locks.append(lock)
            order = replace(order, source=str(first_disk + list(disks).index(one.source)))
        orders.append(order)
    return Mounted(tuple(shares), tuple(disks.values()), tuple(orders), tuple(locks))


def _share(one: WantedMount, number: int) -> Share:
    if one.made and not os.path.lexists(one.source):
        try:
            Path(one.source).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot(one, error) from error
    try:
        path = Path(one.source).resolve(strict=True)
        mode = path.stat().st_mode
    except OSError as error:
        raise _cannot(one, error) from error
    except RuntimeError as error:
        raise UserInputError(f"{plain(one.source)} is a link that leads to itself", hint="check the path") from error
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise UserInputError(
            f"{plain(one.source)} is neither a folder nor a file, and cannot be shared with a machine",
            hint="sockets, FIFOs and devices of the host stay there",
        )
    if str(path) == "/":
        raise UserInputError("the host's whole root cannot be shared with a machine", hint="name a folder in it")
    return Share(_TAG.format(number), str(path), one.read_only, stat.S_ISREG(mode))


def _cannot(one: WantedMount, error: OSError) -> UserInputError:
    why = os.strerror(error.errno or 0).lower()
    return UserInputError(f"{plain(one.source)} cannot be shared: {why}", hint="check the path given with -v")


def require_room(mounted: Mounted, bus: Bus, others: int) -> None:
    """Raise UserInputError where a board without PCI has too few places for the devices. `others`: those beside."""
    if bus is Bus.MMIO and len(mounted.shares) + len(mounted.disks) + others > _TRANSPORTS:
        raise UserInputError(
            f"this machine has {_TRANSPORTS} places for devices, too few for so many folders and volumes",
            hint=f"at most {_TRANSPORTS - others}; a folder above several of them takes one",
        )
