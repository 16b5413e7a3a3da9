# SPDX-License-Identifier: Apache-2.0
"""Mounts of a run: folders and files of the host, named volumes, and memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MountKind(StrEnum):
    """A kind of mount, by the file system that the guest's kernel mounts."""

    FOLDER = "virtiofs"  # of the host, or a file alone, by a server beside the monitor
    FOLDER_9P = "9p"  # the same, by the monitor itself
    VOLUME = "ext4"  # a disk of its own
    MEMORY = "tmpfs"
    PLACE = "place"  # a volume without a name: a folder in the root, which can be written and is thrown away


#: Symbols that a kernel needs for mounts, by their words of `--keep`.
FOLDERS, FOLDERS_9P, VOLUMES = "folders", "folders-9p", "volumes"
GROUPS = {
    FOLDERS: ("FUSE_FS", "VIRTIO_FS"),
    FOLDERS_9P: ("NET_9P", "NET_9P_VIRTIO", "9P_FS"),
    VOLUMES: ("EXT4_FS", "EXT4_FS_SECURITY"),
}


@dataclass(frozen=True)
class Share:
    """A folder of the host, or a file alone, that a machine shares under a tag. `path`: absolute, without links. `by`:
    the file system in between, one of those of folders."""

    tag: str
    path: str
    read_only: bool = False
    single_file: bool = False
    by: MountKind = MountKind.FOLDER

    @property
    def word(self) -> str:
        """Return what native/launch and native/serve call a share of its kind."""
        return ("file" if self.single_file else "folder") + ("-ro" if self.read_only else "")


@dataclass(frozen=True, kw_only=True)
class GuestMount:
    """An order to init. `source`: a tag, the number of a disk, or "-". `as_image`: a volume that is used for the first
    time begins with the image's content. `options`: of a tmpfs."""

    kind: MountKind
    target: str
    source: str = "-"
    read_only: bool = False
    single_file: bool = False
    as_image: bool = False
    options: tuple[str, ...] = ()

    @property
    def record(self) -> str:
        """Return the value of init's record (native/init/container/mounts.c)."""
        flags = ["ro" if self.read_only else "rw"]
        flags += [name for name, given in (("file", self.single_file), ("copy", self.as_image)) if given]
        return f"{self.kind} {','.join((*flags, *self.options))} {self.source} {self.target}"
